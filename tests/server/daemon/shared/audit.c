/* audit.c - the audit log: what an entry of the journal holds, and that nothing in it can pretend to be another. */
#include "server/daemon/shared/audit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int journal = -1;
static char entry[8192];

static void open_journal(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/remote-gpu-audit-%d", (int)getpid());
    journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    cr_assert_eq(bind(journal, (const struct sockaddr *)&address, sizeof address), 0);
    rg_audit_open(address.sun_path);
    unlink(address.sun_path);
}

static bool receive(void)
{
    const ssize_t got = recv(journal, entry, sizeof entry - 1, 0);
    entry[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* Whether there is a line that is this. */
static bool has(const char *line)
{
    char wanted[1024], all[8194];
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    snprintf(all, sizeof all, "\n%s", entry);
    return strstr(all, wanted) != NULL;
}

TestSuite(audit, .init = open_journal);

Test(audit, grant)
{
    const uint8_t serial[] = {1, 0xab};
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_GRANT,
                                .user = "alice",
                                .serial = serial,
                                .serial_size = 2,
                                .from = "10.0.0.7:1",
                                .session = 3,
                                .gpus = "0,1",
                                .encrypted = true});
    cr_assert(receive());
    cr_expect(
        has("MESSAGE=audit: event=grant user=\"alice\" serial=01ab from=\"10.0.0.7:1\" session=3 gpus=0,1 "
            "encrypted=yes"));
    static const char *const lines[] = {"RG_EVENT=grant",     "RG_USER=alice", "RG_SERIAL=01ab",
                                        "RG_FROM=10.0.0.7:1", "RG_SESSION=3",  "RG_GPUS=0,1",
                                        "RG_ENCRYPTED=yes"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(has(lines[i]), "%s is not in %s", lines[i], entry);
    cr_expect_null(strstr(entry, "RG_WHY"));
}

Test(audit, by_the_operator)
{
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_TOKEN, .user = "alice", .from = "uid 0"});
    cr_assert(receive());
    cr_expect(has("MESSAGE=audit: event=token user=\"alice\" from=\"uid 0\""));
    cr_expect(has("RG_EVENT=token"));
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_REVOKE, .user = "alice", .from = "uid 0"});
    cr_assert(receive());
    cr_expect(has("MESSAGE=audit: event=revoke user=\"alice\" from=\"uid 0\""));
}

Test(audit, nobody_writes_fields_of_their_own)
{
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_REFUSE,
                                .user = "eve\nRG_USER=root",
                                .from = "\" user=\"root",
                                .why = "no\n\nMESSAGE=audit: event=grant\x1b[2J"});
    cr_assert(receive());
    cr_expect_not(has("RG_USER=root"));
    cr_expect_null(strstr(entry, "\nMESSAGE="));
    cr_expect_null(strstr(entry, "\" user=\"root\""));
    cr_expect_null(strchr(entry, '\x1b'));
}

/* Of so many that are said one after another, how many there are. */
static unsigned said(enum rg_audit_event event, unsigned times)
{
    unsigned n = 0;
    for (unsigned i = 0; i < times; i++) {
        rg_audit(&(struct rg_audit){.event = event, .user = "", .from = "x", .why = "y"});
        n += receive();
    }
    return n;
}

Test(audit, what_others_can_say_without_end_has_a_limit)
{
    static const enum rg_audit_event deeds[] = {RG_AUDIT_LEASE,  RG_AUDIT_LINK,    RG_AUDIT_LOGIN,
                                                RG_AUDIT_DRAIN,  RG_AUDIT_UNDRAIN, RG_AUDIT_SUSPEND,
                                                RG_AUDIT_RESUME, RG_AUDIT_END};
    cr_expect_eq(said(RG_AUDIT_REFUSE, 10 * RG_AUDIT_REFUSALS), RG_AUDIT_REFUSALS);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) /* whatever was left out of others */
        cr_expect_eq(said(deeds[i], 3 * RG_AUDIT_DEEDS), RG_AUDIT_DEEDS, "event %d", (int)deeds[i]);
}

Test(audit, what_has_an_end_by_itself_has_no_limit)
{
    static const enum rg_audit_event events[] = {RG_AUDIT_GRANT, RG_AUDIT_JOIN,   RG_AUDIT_RENEW,
                                                 RG_AUDIT_TOKEN, RG_AUDIT_REVOKE, RG_AUDIT_EXPIRE,
                                                 RG_AUDIT_QUOTA};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        cr_expect_eq(said(events[i], 3 * RG_AUDIT_DEEDS), 3 * RG_AUDIT_DEEDS, "event %d", (int)events[i]);
}

Test(audit, long_texts_are_cut)
{
    char text[5000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_REFUSE, .user = text, .from = text, .why = text});
    cr_assert(receive());
    cr_expect(has("RG_EVENT=refuse"));
    cr_expect_eq(entry[strlen(entry) - 1], '\n');
}
