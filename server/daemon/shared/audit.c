/* audit.c - see audit.h. The journal's native protocol: one datagram an entry, a line FIELD=value each. */
#include "server/daemon/shared/audit.h"

#include "common/base/clock.h"
#include "common/base/log_limit.h"
#include "common/base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define WINDOW_NS 10000000000ull

enum {
    NAME_SIZE = 300,
    TEXT_SIZE = 1100,
    LINE_SIZE = 1900,
    ENTRY_SIZE = LINE_SIZE + 2 * NAME_SIZE + TEXT_SIZE + 512
};

static int journal = -1;
static bool no_grants; /* set before there are threads */

#define LIMIT(most)                                                                                          \
    {                                                                                                        \
        most, RG_LOG_LIMIT_INIT                                                                              \
    }
/* Each event's own: no other line is left out for those of which there are too many. */
static struct {
    unsigned most; /* in WINDOW_NS; 0: as many as there are sessions, tokens, certificates */
    struct rg_log_limit limit;
} limits[RG_AUDIT_EVENTS] = {
    [RG_AUDIT_REFUSE] = LIMIT(RG_AUDIT_REFUSALS), [RG_AUDIT_LEASE] = LIMIT(RG_AUDIT_DEEDS),
    [RG_AUDIT_LINK] = LIMIT(RG_AUDIT_DEEDS),      [RG_AUDIT_LOGIN] = LIMIT(RG_AUDIT_DEEDS),
    [RG_AUDIT_DRAIN] = LIMIT(RG_AUDIT_DEEDS),     [RG_AUDIT_UNDRAIN] = LIMIT(RG_AUDIT_DEEDS),
    [RG_AUDIT_SUSPEND] = LIMIT(RG_AUDIT_DEEDS),   [RG_AUDIT_RESUME] = LIMIT(RG_AUDIT_DEEDS),
    [RG_AUDIT_END] = LIMIT(RG_AUDIT_DEEDS)};

/* The variable is inherited also by those whose stderr goes elsewhere: it says which file it is about. */
static bool is_stderr_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat is;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &is) == 0 &&
           is.st_dev == device && is.st_ino == inode;
}

void rg_audit_open(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path && !is_stderr_journal())
        return;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : RG_AUDIT_JOURNAL);
    journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (journal >= 0 && connect(journal, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(journal);
        journal = -1;
    }
}

/* Whether this one is said; *missed: how many before it were not. */
static bool may_say(enum rg_audit_event event, unsigned *missed)
{
    bool last;
    *missed = 0;
    return !limits[event].most ||
           rg_log_limit_take(&limits[event].limit, limits[event].most, WINDOW_NS, rg_now_ns(), missed, &last);
}

struct text {
    char *at;
    size_t size, used;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->at + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    if (n > 0)
        text->used += (size_t)n < text->size - text->used ? (size_t)n : text->size - text->used - 1;
}

/* What others chose: no control characters, and no quotation mark that would end it. */
static void clean(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
    rg_printable_clean(out);
    for (char *at = out; (at = strchr(at, '"')) != NULL;)
        *at = '\'';
}

static void hexadecimal(char *out, size_t size, const uint8_t *bytes, size_t n)
{
    out[0] = 0;
    for (size_t i = 0; i < n && 2 * i + 2 < size; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void rg_audit_no_grants(void)
{
    no_grants = true;
}

void rg_audit(const struct rg_audit *what)
{
    static const char *const names[] = {"grant",   "refuse",  "join",   "renew", "revoke", "token",
                                        "expire",  "lease",   "quota",  "link",  "login",  "drain",
                                        "undrain", "suspend", "resume", "end"};
    char user[NAME_SIZE], from[NAME_SIZE], why[TEXT_SIZE], serial[48], line[LINE_SIZE], entry[ENTRY_SIZE];
    struct text text = {line, sizeof line, 0}, fields = {entry, sizeof entry, 0};
    const bool by_operator =
        what->event == RG_AUDIT_TOKEN || (what->event == RG_AUDIT_REVOKE && !what->session);
    unsigned missed;
    if ((no_grants && what->event == RG_AUDIT_GRANT) || !may_say(what->event, &missed))
        return;
    clean(user, sizeof user, what->user);
    clean(from, sizeof from, what->from);
    clean(why, sizeof why, what->why);
    hexadecimal(serial, sizeof serial, what->serial, what->serial ? what->serial_size : 0);
    add(&text, "audit: event=%s user=\"%s\"", names[what->event], user);
    if (serial[0])
        add(&text, " serial=%s", serial);
    add(&text, " from=\"%s\"", from);
    if (what->session)
        add(&text, " session=%llu", (unsigned long long)what->session);
    if (what->gpus)
        add(&text, " gpus=%s", what->gpus);
    if (!by_operator)
        add(&text, " encrypted=%s", what->encrypted ? "yes" : "no");
    if (what->why)
        add(&text, " why=\"%s\"", why);
    if (missed)
        add(&text, " left_out=%u", missed);
    if (journal >= 0) {
        add(&fields,
            "MESSAGE=%s\nPRIORITY=5\nSYSLOG_IDENTIFIER=remote-gpud\nRG_EVENT=%s\nRG_USER=%s\nRG_SERIAL=%s\n"
            "RG_FROM=%s\n",
            line, names[what->event], user, serial, from);
        if (!by_operator)
            add(&fields, "RG_ENCRYPTED=%s\n", what->encrypted ? "yes" : "no");
        if (what->session)
            add(&fields, "RG_SESSION=%llu\n", (unsigned long long)what->session);
        if (what->gpus)
            add(&fields, "RG_GPUS=%s\n", what->gpus);
        if (what->why)
            add(&fields, "RG_WHY=%s\n", why);
        if (send(journal, entry, fields.used, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)fields.used)
            return;
    }
    rg_log(RG_LOG_ERROR, "%s", line); /* whatever the level */
}
