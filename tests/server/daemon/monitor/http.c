/* http.c - what the process that answers HTTP may ask of the monitor, and what figures a worker can bring about. */
#include "common/base/clock.h"
#include "common/base/packet.h"
#include "server/daemon/monitor/monitor.h"
#include "server/daemon/monitor/requests.h"
#include "server/daemon/sessions/gauges.h"
#include "server/daemon/shared/snapshot.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rg_monitor monitor;
static int http = -1; /* the process's end */

static void init(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    monitor.board = rg_board_create(2, &monitor.board_fd);
    cr_assert(monitor.board && rg_sessions_init(&monitor.sessions, monitor.board, "worker") == RG_OK);
    monitor.http.process = (struct rg_frontend_process){.program = &rg_http_program,
                                                        .pid = INT_MAX,
                                                        .socket = ends[0],
                                                        .tls_file = -1}; /* nobody has that number */
    http = ends[1];
}

TestSuite(http, .init = init);
TestSuite(gauges, .init = init);

/* As the holder of a certificate of that name; `fd`: where a descriptor that comes with the answer goes. */
static struct rg_monitor_answer ask_as(const struct rg_monitor_page *page, enum rg_monitor_question_kind kind,
                                       const char *name, int *fd)
{
    struct rg_monitor_question question;
    struct rg_monitor_word word;
    unsigned n_fds;
    memset(&question, 0, sizeof question);
    question.kind = kind;
    question.number = 7;
    question.page = *page;
    question.peer.proof = name ? RG_PROOF_CERTIFICATE : RG_PROOF_NONE;
    question.peer.encrypted = 1;
    strcpy(question.peer.name, name ? name : "");
    cr_assert(rg_packet_send(http, &question, sizeof question, NULL, 0));
    rg_http_serve(&monitor);
    *fd = -1;
    cr_assert_eq(rg_packet_receive(http, MSG_DONTWAIT, &word, sizeof word, fd, 1, &n_fds), RG_OK);
    cr_assert(word.kind == RG_TELL_ANSWER && word.answer.number == 7);
    return word.answer;
}

static const struct rg_monitor_page plain = {.proof = RG_READER_NONE};

/* What somebody sees; NULL: nothing, and `status` says why. */
static struct rg_snapshot *look_as(struct rg_monitor_page page, bool names, enum rg_status *status)
{
    static struct rg_snapshot *snapshot;
    struct stat about;
    int fd;
    page.names = names;
    free(snapshot);
    snapshot = NULL;
    *status = ask_as(&page, RG_ASK_LOOK, NULL, &fd).status;
    if (fd >= 0 && fstat(fd, &about) == 0 && (snapshot = malloc((size_t)about.st_size)))
        cr_assert_eq(pread(fd, snapshot, (size_t)about.st_size, 0), about.st_size);
    if (fd >= 0)
        close(fd);
    return snapshot;
}

/* A session of a user of this machine. */
static struct rg_session_entry *begin_session(uint64_t id, uid_t uid, const char *user)
{
    struct rg_session_entry *entry = calloc(1, sizeof *entry);
    entry->info.id = id;
    rg_who_user(uid, &entry->who);
    entry->pid = INT_MAX;
    strcpy(entry->info.identity.user, user);
    strcpy(entry->info.identity.command, "/bin/train --secret");
    strcpy(entry->info.peer, "10.0.0.7:1234");
    monitor.sessions.entries[monitor.sessions.n++] = entry;
    return entry;
}

/* A login of a user of this machine, by a link. */
static struct rg_monitor_page log_in(uid_t uid)
{
    struct rg_monitor_page page = {.proof = RG_READER_NONE};
    struct rg_login_grant grant;
    struct rg_who who;
    int fd;
    rg_who_user(uid, &who);
    cr_assert_eq(rg_logins_make_link(&monitor.logins, &who, page.secret), RG_OK);
    cr_assert_eq(ask_as(&page, RG_ASK_LOGIN, NULL, &fd).status, RG_OK);
    cr_assert_eq(pread(fd, &grant, sizeof grant, 0), (ssize_t)sizeof grant);
    close(fd);
    cr_assert_eq(ask_as(&page, RG_ASK_LOGIN, NULL, &fd).status, RG_ERR_REFUSED, "a link works once");
    page.proof = RG_READER_COOKIE;
    memcpy(page.secret, grant.cookie, sizeof page.secret);
    memcpy(page.guard, grant.guard, sizeof page.guard);
    return page;
}

Test(http, a_look_shows_what_is_now)
{
    enum rg_status status;
    monitor.sessions.gauges.granted = 3;
    const struct rg_snapshot *seen = look_as(plain, true, &status);
    cr_assert(status == RG_OK && seen);
    cr_assert_eq(seen->gauges.granted, 3);
    cr_assert_eq(seen->reader.scope, RG_READER_PUBLIC);
    cr_assert(!monitor.http.process.killed);
}

Test(http, who_is_not_known_sees_nothing_beyond_this_machine)
{
    enum rg_status status;
    struct rg_monitor_page page = plain;
    int fd;
    monitor.http.told.listeners[0].reach = RG_REACH_NETWORK;
    cr_assert(!look_as(plain, true, &status) && status == RG_ERR_REFUSED);
    cr_assert(!look_as(plain, false, &status) && status == RG_ERR_REFUSED);
    cr_assert_eq(ask_as(&plain, RG_ASK_LIST, NULL, &fd).status, RG_ERR_REFUSED);
    cr_assert_eq(ask_as(&plain, RG_ASK_LINKS, NULL, &fd).status, RG_ERR_REFUSED);
    cr_assert_eq(ask_as(&plain, RG_ASK_LIST, "mallory", &fd).status, RG_ERR_REFUSED,
                 "a certificate that nobody knows");
    page.action = RG_PAGE_DRAIN;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_REFUSED);
    cr_assert(!monitor.drained);
    page.health = 1; /* whether it is well is told everybody, and nothing of sessions */
    begin_session(1, 1000, "alice");
    const struct rg_snapshot *seen = look_as(page, false, &status);
    cr_assert(status == RG_OK && seen->n_sessions == 0);
}

/* One's own sessions alone, all of them for an operator; for figures all, of nobody. */
Test(http, who_sees_whose_sessions)
{
    enum rg_status status;
    monitor.http.told.listeners[0].reach = RG_REACH_NETWORK;
    begin_session(1, 1000, "alice");
    begin_session(2, 1001, "bob");
    const struct rg_monitor_page alice = log_in(1000), root = log_in(0);
    const struct rg_snapshot *seen = look_as(alice, true, &status);
    cr_assert(status == RG_OK && seen->n_sessions == 1 && seen->sessions[0].info.id == 1);
    cr_assert(seen->sessions[0].is_own && seen->running == 2 && seen->reader.scope == RG_READER_OWN);
    seen = look_as(root, true, &status);
    cr_assert(seen->n_sessions == 2 && !seen->sessions[0].is_own && seen->reader.scope == RG_READER_OPERATOR);
    cr_assert_str_eq(seen->sessions[1].info.peer, "10.0.0.7:1234");
    seen = look_as(alice, false, &status);
    cr_assert_eq(seen->n_sessions, 2);
    cr_assert(!memmem(seen->sessions, 2 * sizeof seen->sessions[0], "bob", 3));
    cr_assert(!memmem(seen->sessions, 2 * sizeof seen->sessions[0], "train", 5));
    monitor.http.told.listeners[0].reach = RG_REACH_LOOPBACK;
    seen = look_as(plain, true, &status);
    cr_assert_eq(seen->n_sessions, 2);
    cr_assert(!memmem(seen->sessions, 2 * sizeof seen->sessions[0], "--secret", 8), "no arguments");
    cr_assert(!memmem(seen->sessions, 2 * sizeof seen->sessions[0], "10.0.0.7", 8), "no addresses");
}

Test(http, a_bearer_sees_figures_alone)
{
    enum rg_status status;
    struct rg_monitor_page page = {.proof = RG_READER_BEARER, .bearer = "0123456789abcdef"};
    monitor.http.told.listeners[0].reach = RG_REACH_NETWORK;
    begin_session(1, 1000, "alice");
    cr_assert(!look_as(page, false, &status) && status == RG_ERR_REFUSED, "there is none");
    strcpy(monitor.logins.bearer, "0123456789abcdef");
    const struct rg_snapshot *seen = look_as(page, false, &status);
    cr_assert(status == RG_OK && seen->n_sessions == 1 && !seen->sessions[0].info.identity.user[0]);
    cr_assert(!look_as(page, true, &status) && status == RG_ERR_REFUSED);
    int fd;
    const struct rg_monitor_answer list = ask_as(&page, RG_ASK_LIST, NULL, &fd);
    cr_assert(list.status == RG_ERR_REFUSED && list.code == RG_REFUSAL_UNAUTHORISED,
              "the pool's servers are no figures");
    cr_assert_eq(ask_as(&page, RG_ASK_LINKS, NULL, &fd).status, RG_ERR_REFUSED, "nor who has measured what");
    page.bearer[15] = 'g';
    cr_assert(!look_as(page, false, &status) && status == RG_ERR_REFUSED);
}

Test(http, who_may_do_what)
{
    static struct rg_requests requests = {.fd = -1, .folder = -1};
    const struct rg_session_entry *own = begin_session(1, 1000, "alice"),
                                  *other = begin_session(2, 1001, "bob");
    struct rg_monitor_page alice, root, page;
    enum rg_status status;
    int fd;
    monitor.requests = &requests;
    alice = log_in(1000);
    root = log_in(0);
    page = alice;
    page.action = RG_PAGE_END;
    page.session = 2;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_NOT_FOUND);
    cr_assert_eq(other->kill_ns, 0);
    page.session = 1;
    page.guard[0] ^= 1;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_UNSUPPORTED,
                 "a cookie alone does nothing");
    cr_assert_eq(own->kill_ns, 0);
    page.guard[0] ^= 1;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_OK);
    cr_assert_neq(own->kill_ns, 0);
    page.action = RG_PAGE_DRAIN;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_UNSUPPORTED);
    cr_assert(!monitor.drained);
    page = root;
    page.action = RG_PAGE_END;
    page.session = 2;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_OK);
    cr_assert_neq(other->kill_ns, 0);
    page = plain;
    page.action = RG_PAGE_END;
    page.session = 2;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_UNSUPPORTED, "nobody does nothing");
    cr_assert_eq(ask_as(&alice, RG_ASK_LOGOUT, NULL, &fd).status, RG_OK);
    cr_assert(!look_as(alice, true, &status) && status == RG_ERR_REFUSED, "the login is over");
}

/* Rights are those of the moment: a login from when they were more has no more than now. */
Test(http, an_operator_who_is_none_any_more)
{
    enum rg_status status;
    int fd;
    monitor.policy.uid = 1000;
    struct rg_monitor_page page = log_in(1000);
    const struct rg_snapshot *seen = look_as(page, true, &status);
    cr_assert(status == RG_OK && seen->reader.scope == RG_READER_OPERATOR);
    monitor.policy.uid = 1001;
    seen = look_as(page, true, &status);
    cr_assert(status == RG_OK && seen->reader.scope == RG_READER_OWN);
    page.action = RG_PAGE_DRAIN;
    cr_assert_eq(ask_as(&page, RG_ASK_ACT, NULL, &fd).status, RG_ERR_UNSUPPORTED);
    cr_assert(!monitor.drained);
    monitor.policy.uid = 1000;
    seen = look_as(page, true, &status);
    cr_assert(status == RG_OK && seen->reader.scope == RG_READER_OPERATOR);
}

/* An identity that makes many links loses its oldest, and nobody else's; when all places are taken, who has none waits. */
Test(http, links_are_few)
{
    uint8_t first[RG_PAGE_SECRET], secret[RG_PAGE_SECRET], others[RG_PAGE_SECRET];
    struct rg_who who;
    rg_who_user(1001, &who);
    cr_assert_eq(rg_logins_make_link(&monitor.logins, &who, others), RG_OK);
    rg_who_user(1000, &who);
    cr_assert_eq(rg_logins_make_link(&monitor.logins, &who, first), RG_OK);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(rg_logins_make_link(&monitor.logins, &who, secret), RG_OK);
    cr_assert(!rg_logins_exchange(&monitor.logins, first));
    cr_assert(rg_logins_exchange(&monitor.logins, secret));
    cr_assert(rg_logins_exchange(&monitor.logins, others));
    for (uid_t uid = 2000; uid < 2000 + RG_LOGINS_MAX; uid++) {
        rg_who_user(uid, &who);
        (void)!rg_logins_make_link(&monitor.logins, &who, secret);
    }
    rg_who_user(5000, &who);
    cr_assert_eq(rg_logins_make_link(&monitor.logins, &who, secret), RG_ERR_LIMIT);
}

/* It begins no session, gets no certificate, and asks for nobody. */
Test(http, what_only_a_frontend_may_ask_is_its_end)
{
    static const enum rg_monitor_question_kind kinds[] = {
        RG_ASK_START,   RG_ASK_HAND_OVER, RG_ASK_STAY,  RG_ASK_JOIN, RG_ASK_RENEW, RG_ASK_PROBE, RG_ASK_USAGE,
        RG_ASK_QUOTA,   RG_ASK_POOL,      RG_ASK_LEASE, 0,           RG_ASK_CHECK, RG_ASK_LINK,  RG_ASK_OWNS,
        RG_ASK_OWNS + 1};
    const int fds[] = {http, http, http};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (unsigned n_fds = 0; n_fds <= 3; n_fds++) {
            struct rg_monitor_question question;
            memset(&question, 0, sizeof question);
            question.kind = kinds[i];
            question.peer.proof = RG_PROOF_NONE;
            monitor.http.process.killed = false;
            cr_assert(rg_packet_send(http, &question, sizeof question, fds, n_fds));
            rg_http_serve(&monitor);
            cr_assert(monitor.http.process.killed, "kind %d with %u descriptors", (int)kinds[i], n_fds);
        }
}

Test(http, packets_of_another_form_are_its_end)
{
    static const struct rg_monitor_question question = {
        .kind = RG_ASK_LOOK, .peer.proof = RG_PROOF_NONE, .page.proof = RG_READER_NONE};
    struct rg_monitor_question wrong = question;
    wrong.page.proof = RG_READER_BEARER + 1;
    cr_assert(rg_packet_send(http, &wrong, sizeof wrong, NULL, 0));
    rg_http_serve(&monitor);
    cr_assert(monitor.http.process.killed);
    monitor.http.process.killed = false;
    wrong = (struct rg_monitor_question){.kind = RG_ASK_LOOK}; /* whose it is has to be said */
    cr_assert(rg_packet_send(http, &wrong, sizeof wrong, NULL, 0));
    rg_http_serve(&monitor);
    cr_assert(monitor.http.process.killed);
    monitor.http.process.killed = false;
    cr_assert(rg_packet_send(http, &question, sizeof question - 1, NULL, 0));
    rg_http_serve(&monitor);
    cr_assert(monitor.http.process.killed);
    monitor.http.process.killed = false;
    cr_assert(rg_packet_send(http, &question, sizeof question, &http, 1));
    rg_http_serve(&monitor);
    cr_assert(monitor.http.process.killed);
}

/* What a worker says of itself is bounded by its time, and never goes down. */
Test(gauges, a_worker_that_lies)
{
    static struct rg_session_entry entry;
    const struct rg_share_grant grant = {.n_devices = 1};
    struct rg_gauges *gauges = &monitor.sessions.gauges;
    entry.share.grant = grant;
    entry.started_ns = rg_now_ns() - 1000000000u;
    entry.share.slot = rg_share_slot_create(&grant, &entry.share.slot_fd);
    cr_assert(entry.share.slot);
    monitor.sessions.entries[monitor.sessions.n++] = &entry;
    struct rg_share_usage *usage = &entry.share.slot->usage;
    atomic_store(&usage->devices[0].busy_ns, 500u);
    rg_gauges_look(&monitor);
    cr_assert_eq(gauges->devices[0].busy_ns, 500);
    atomic_store(&usage->devices[0].busy_ns, UINT64_MAX);
    atomic_store(&usage->devices[0].throttled_ns, UINT64_MAX);
    atomic_store(&usage->bytes_in, UINT64_MAX);
    rg_gauges_look(&monitor);
    const uint64_t busy = gauges->devices[0].busy_ns;
    cr_assert_leq(busy, rg_now_ns() - entry.started_ns);
    cr_assert_leq(gauges->devices[0].throttled_ns, rg_now_ns() - entry.started_ns);
    cr_assert_lt(gauges->bytes_in, UINT64_MAX / 2);
    atomic_store(&usage->devices[0].busy_ns, 0);
    rg_gauges_look(&monitor);
    cr_assert_eq(gauges->devices[0].busy_ns, busy);
    rg_gauges_end(&monitor.sessions, &entry, 9);
    cr_assert_eq(gauges->ended[RG_GAUGE_KILLED], 1);
    cr_assert_eq(gauges->devices[0].busy_ns, busy);
}
