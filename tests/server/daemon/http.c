/* http.c - what the process that answers HTTP may ask of the monitor, and what figures a worker can bring about. */
#include "common/base/clock.h"
#include "common/base/packet.h"
#include "server/daemon/gauges.h"
#include "server/daemon/monitor.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
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

static struct rg_monitor_answer ask(enum rg_monitor_question_kind kind)
{
    struct rg_monitor_question question;
    struct rg_monitor_word word;
    unsigned n_fds;
    memset(&question, 0, sizeof question);
    question.kind = kind;
    question.number = 7;
    question.peer.proof = RG_PROOF_CERTIFICATE;
    question.peer.encrypted = 1;
    strcpy(question.peer.name, "alice");
    cr_assert(rg_packet_send(http, &question, sizeof question, NULL, 0));
    rg_http_serve(&monitor);
    cr_assert_eq(rg_packet_receive(http, MSG_DONTWAIT, &word, sizeof word, NULL, 0, &n_fds), RG_OK);
    cr_assert(word.kind == RG_TELL_ANSWER && word.answer.number == 7);
    return word.answer;
}

Test(http, a_look_shows_what_is_now)
{
    struct rg_gauges gauges;
    monitor.sessions.gauges.granted = 3;
    rg_board_gauges(monitor.board, &gauges);
    cr_assert_eq(gauges.granted, 0);
    cr_assert_eq(ask(RG_ASK_LOOK).status, RG_OK);
    rg_board_gauges(monitor.board, &gauges);
    cr_assert_eq(gauges.granted, 3);
    cr_assert(!monitor.http.process.killed);
}

Test(http, what_there_is_not_is_refused)
{
    cr_assert_eq(ask(RG_ASK_CHECK).status, RG_ERR_REFUSED);
    cr_assert_eq(ask(RG_ASK_LIST).status, RG_ERR_REFUSED);
    cr_assert(!monitor.http.process.killed);
}

/* It begins no session, gets no certificate, and asks for nobody. */
Test(http, what_only_a_frontend_may_ask_is_its_end)
{
    static const enum rg_monitor_question_kind kinds[] = {
        RG_ASK_START, RG_ASK_HAND_OVER, RG_ASK_STAY,  RG_ASK_JOIN, RG_ASK_RENEW,   RG_ASK_PROBE, RG_ASK_USAGE,
        RG_ASK_QUOTA, RG_ASK_POOL,      RG_ASK_LEASE, 0,           RG_ASK_LIST + 1};
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
    static const struct rg_monitor_question question = {.kind = RG_ASK_LOOK};
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
