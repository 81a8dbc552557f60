/*
 * control.c - control messages: who we are, refusals, text from the wire. Into bytes and back: messages.c.
 */
#include "proto/control/control.h"

#include "common/base/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void rg_control_text(char *field, size_t field_size, const char *text, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        size_t length = rg_printable_character((const unsigned char *)text + at, size - at);
        size_t need = length ? length : 1;
        if (need >= field_size - used)
            break;
        if (length)
            memcpy(field + used, text + at, length);
        else
            field[used] = '?';
        used += need;
        at += need;
    }
    field[used] = 0;
}

/* This process's command line as one line of text. */
static void own_command(char *field, size_t field_size)
{
    char line[RG_CONTROL_TEXT];
    ssize_t got = 0;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, line, sizeof line);
        close(fd);
    }
    if (got <= 0)
        got = snprintf(line, sizeof line, "%s", program_invocation_short_name);
    size_t size = (size_t)got < sizeof line ? (size_t)got : sizeof line;
    while (size && line[size - 1] == 0)
        size--;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] <= ' ')
            line[i] = ' '; /* between arguments, and line ends inside them */
    rg_control_text(field, field_size, line, size);
}

static void own_identity(struct rg_identity *identity)
{
    char text[RG_CONTROL_TEXT] = "";
    if (gethostname(text, sizeof text - 1) != 0)
        snprintf(text, sizeof text, "unknown");
    rg_control_text(identity->host, sizeof identity->host, text, strlen(text));

    struct passwd entry, *found = NULL;
    char memory[4096];
    if (getpwuid_r(geteuid(), &entry, memory, sizeof memory, &found) == 0 && found)
        rg_control_text(identity->user, sizeof identity->user, found->pw_name, strlen(found->pw_name));
    else
        snprintf(identity->user, sizeof identity->user, "%u", (unsigned)geteuid());
    own_command(identity->command, sizeof identity->command);
    identity->pid = (uint32_t)getpid();
}

static const char own_software[] = "remote-gpu " RG_VERSION;

void rg_client_hello_init(struct rg_control *message, enum rg_purpose purpose)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_CLIENT_HELLO;
    struct rg_client_hello *hello = &message->client_hello;
    hello->protocol_major = RG_PROTOCOL_MAJOR;
    hello->protocol_minor = RG_PROTOCOL_MINOR;
    hello->purpose = purpose;
    memcpy(hello->software, own_software, sizeof own_software);
    own_identity(&hello->identity);
    hello->transports.n = 1;
    strcpy(hello->transports.names[0], "tcp");
}

void rg_server_hello_init(struct rg_control *message)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_SERVER_HELLO;
    struct rg_server_hello *hello = &message->server_hello;
    hello->protocol_major = RG_PROTOCOL_MAJOR;
    hello->protocol_minor = RG_PROTOCOL_MINOR;
    memcpy(hello->software, own_software, sizeof own_software);
    hello->limits.message_bytes = RG_MESSAGE_MAX;
    hello->limits.bulk_bytes = RG_BULK_MAX;
    hello->transports.n = 1;
    strcpy(hello->transports.names[0], "tcp");
}

/* Formats into a field, cleaned: the sentence may quote what came from the wire. */
static void format_text(char *field, size_t field_size, const char *format, va_list arguments)
{
    char text[RG_CONTROL_REASON];
    int size = vsnprintf(text, sizeof text, format, arguments);
    size_t used = size < 0 ? 0 : (size_t)size < sizeof text ? (size_t)size : sizeof text - 1;
    rg_control_text(field, field_size, text, used);
}

enum rg_status rg_refusal_init(struct rg_control *message, enum rg_refusal_code code, const char *format, ...)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_REFUSAL;
    struct rg_refusal *refusal = &message->refusal;
    refusal->code = code;
    refusal->protocol_major = RG_PROTOCOL_MAJOR;
    refusal->protocol_minor = RG_PROTOCOL_MINOR;
    memcpy(refusal->software, own_software, sizeof own_software);
    va_list arguments;
    va_start(arguments, format);
    format_text(refusal->reason, sizeof refusal->reason, format, arguments);
    va_end(arguments);
    return RG_ERR_REFUSED;
}

void rg_upgrade_init(struct rg_control *message, const char *transport)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_UPGRADE;
    rg_control_text(message->upgrade.transport, sizeof message->upgrade.transport, transport,
                    strlen(transport));
}

void rg_resumed_init(struct rg_control *message, uint64_t received)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_RESUMED;
    message->resumed.received = received;
}

void rg_session_end_init(struct rg_control *message, const char *format, ...)
{
    memset(message, 0, sizeof *message);
    message->kind = RG_CONTROL_SESSION_END;
    va_list arguments;
    va_start(arguments, format);
    format_text(message->session_end.reason, sizeof message->session_end.reason, format, arguments);
    va_end(arguments);
}

bool rg_token_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    unsigned difference = 0;
    for (size_t i = 0; i < size; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

static const char *const priorities[] = {"default", "low", "normal", "high"};

const char *rg_share_priority_name(enum rg_share_priority priority)
{
    return (unsigned)priority <= RG_SHARE_PRIORITY_HIGH ? priorities[priority] : priorities[0];
}

const char *rg_sharing_name(enum rg_sharing sharing)
{
    static const char *const names[RG_SHARINGS] = {"unknown", "turns", "mps", "exclusive"};
    return names[(unsigned)sharing < RG_SHARINGS ? sharing : RG_SHARING_UNKNOWN];
}

bool rg_share_priority_parse(const char *text, enum rg_share_priority *out)
{
    for (unsigned i = RG_SHARE_PRIORITY_LOW; i <= RG_SHARE_PRIORITY_HIGH; i++)
        if (strcmp(text, priorities[i]) == 0) {
            *out = (enum rg_share_priority)i;
            return true;
        }
    return false;
}

const char *rg_share_state_name(enum rg_share_state state)
{
    static const char *const names[] = {"unknown",   "running",  "idle",   "suspending",
                                        "suspended", "resuming", "waiting"};
    return (unsigned)state < RG_SHARE_STATES ? names[state] : names[0];
}

static const struct {
    enum rg_refusal_code code;
    const char *name;
} refusals[RG_REFUSALS] = {
    {RG_REFUSAL_UNKNOWN, "unknown"},
    {RG_REFUSAL_VERSION, "version"},
    {RG_REFUSAL_FULL, "full"},
    {RG_REFUSAL_NO_SUCH_GPU, "no-such-gpu"},
    {RG_REFUSAL_SHUTTING_DOWN, "shutting-down"},
    {RG_REFUSAL_DRIVER, "driver"},
    {RG_REFUSAL_UNAUTHORISED, "unauthorised"},
    {RG_REFUSAL_MALFORMED, "malformed"},
    {RG_REFUSAL_UNSUPPORTED, "unsupported"},
    {RG_REFUSAL_INTERNAL, "internal"},
    {RG_REFUSAL_NO_SUCH_SESSION, "no-such-session"},
    {RG_REFUSAL_LIMIT, "limit"},
    {RG_REFUSAL_QUOTA, "quota"},
    {RG_REFUSAL_SUSPENDED, "suspended"},
};

uint32_t rg_refusal_place(enum rg_refusal_code code)
{
    for (uint32_t i = 0; i < RG_REFUSALS; i++)
        if (refusals[i].code == code)
            return i;
    return 0;
}

enum rg_refusal_code rg_refusal_at(uint32_t place)
{
    return place < RG_REFUSALS ? refusals[place].code : RG_REFUSAL_UNKNOWN;
}

const char *rg_refusal_name(enum rg_refusal_code code)
{
    return refusals[rg_refusal_place(code)].name;
}
