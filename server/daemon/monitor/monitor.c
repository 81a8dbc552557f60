/*
 * monitor.c - takes the frontend's questions and has each answered, by what it is about: here connections and devices, in admissions.c
 * sessions, in certificates.c who is who, in inquiries.c usage, quotas and leases; see monitor.h. A frontend that asks for what there is not
 * is killed. Main thread.
 */
#include "server/daemon/monitor/monitor.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/monitor/inquiries.h"
#include "server/daemon/monitor/question.h"
#include "server/daemon/monitor/readers.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/monitor/serving.h"
#include "server/daemon/sessions/gauges.h"
#include "server/daemon/sessions/introduction.h"

#include <string.h>
#include <unistd.h>

/* Each may start a process; in between come those who were revoked. */
enum { QUESTIONS_AT_ONCE = 8 };

/* Whether a connection can lead to no other machine: the two ends of one between sessions of this server. */
static bool stays_here(int connection)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

static void hand_over(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      const struct rg_session_files *files, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    const bool peer =
        question->hand_over.purpose == RG_PURPOSE_PEER || question->hand_over.purpose == RG_PURPOSE_INTRODUCE;
    if (peer && !monitor->sessions.peers && !stays_here(files->connection)) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNSUPPORTED,
                        "this server takes no connections of other servers (remote-gpud --peers deny)");
        return;
    }
    if (peer) {
        answered->status = rg_sessions_hand_over(&monitor->sessions, question, NULL, files, answered);
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return;
    }
    answered->status = rg_who_is(&monitor->policy, &question->peer, files->connection, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_sessions_hand_over(&monitor->sessions, question, &who, files, answered);
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

static void connect_to_peer(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                            int connection, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    int socket = -1;
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_introduction_connect(&monitor->sessions, question, &who,
                                                   monitor->policy.allow_unauthenticated, &socket, answered);
    rg_reply_with(&monitor->frontend, answered, socket);
}

void rg_monitor_reload_rules(struct rg_monitor *monitor)
{
    rg_shares_reload(&monitor->sessions.shares);
}

/* --- the pool --------------------------------------------------------------------------------------------- */

static void on_gone(void *data, uint64_t lease)
{
    struct rg_monitor *monitor = data;
    rg_sessions_end_lease(&monitor->sessions, lease);
}

void rg_monitor_open_pool(struct rg_monitor *monitor)
{
    monitor->pool.checked = rg_inquiry_checked;
    monitor->pool.gone = on_gone;
    monitor->pool.judge = rg_inquiry_judge;
    monitor->pool.stays = rg_inquiry_stays;
    monitor->pool.data = monitor;
}

/* --- devices ---------------------------------------------------------------------------------------------- */

static void begin_probe(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    if (monitor->n_probers == RG_MONITOR_PROBERS_MAX ||
        (!rg_probe_runs(&monitor->probe) &&
         !rg_probe_begin(&monitor->probe, monitor->sandboxes, &monitor->driver))) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                        "the devices cannot be looked at now");
        return;
    }
    monitor->probers[monitor->n_probers++] = answered->number;
}

void rg_monitor_probe(struct rg_monitor *monitor)
{
    struct rg_driver *driver = &monitor->driver;
    if (!rg_probe_runs(&monitor->probe))
        return;
    const enum rg_status status = rg_probe_continue(&monitor->probe, driver);
    if (status == RG_ERR_TIMEOUT)
        return;
    rg_daemon_rails_describe(&monitor->sessions.rails, driver->machine.tcp_rails,
                             sizeof driver->machine.tcp_rails);
    rg_board_begin(monitor->board);
    monitor->board->driver = *driver;
    monitor->board->looked_ns = rg_now_ns();
    rg_board_end(monitor->board);
    rg_sessions_looked(&monitor->sessions, driver);
    rg_sessions_show_usage(&monitor->sessions);
    for (unsigned i = 0; i < monitor->n_probers; i++) {
        const struct rg_monitor_answer answered = {.number = monitor->probers[i], .status = status};
        rg_reply(&monitor->frontend, &answered, NULL, 0);
    }
    monitor->n_probers = 0;
}

static void start_manager(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    int socket = -1;
    answered->status = rg_manager_start(&monitor->manager, monitor->sandboxes, &monitor->driver, &socket);
    rg_reply_with(&monitor->frontend, answered, socket);
}

/* What the frontend says or asks of itself. False: it is for a client. */
static bool serve_frontend(struct rg_monitor *monitor, const struct rg_monitor_question *question, int fd,
                           struct rg_monitor_answer *answered)
{
    switch (question->kind) {
    case RG_ASK_READY:
        monitor->frontend.ready = true;
        monitor->frontend.unanswered = 0; /* it may have had longer to begin than it has from now on */
        return true;
    case RG_ASK_ALIVE:
        monitor->frontend.unanswered = 0;
        rg_gauges_refused(&monitor->sessions, &question->refused);
        return true;
    case RG_ASK_LOOK:
        rg_sessions_show_usage(&monitor->sessions);
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return true;
    case RG_ASK_LINK:
        rg_reader_link(monitor, question, fd, answered);
        return true;
    case RG_ASK_LIST: /* not the frontend's: it asks for its clients */
    case RG_ASK_LINKS:
    case RG_ASK_LOGIN:
    case RG_ASK_LOGOUT:
    case RG_ASK_ACT:
        rg_reply(&monitor->frontend, answered, NULL, 0);
        return true;
    default:
        return false;
    }
}

static void serve_one(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds)
{
    struct rg_monitor_answer answered = {.number = question->number};
    if (serve_frontend(monitor, question, fds[0], &answered))
        return;
    const struct rg_session_files files = {
        .connection = fds[0], .hello = fds[1], .tls = question->peer.encrypted ? fds[2] : -1};
    switch (question->kind) {
    case RG_ASK_START:
        rg_monitor_start_session(monitor, question, &files, &answered);
        break;
    case RG_ASK_HAND_OVER:
        hand_over(monitor, question, &files, &answered);
        break;
    case RG_ASK_CONNECT:
        connect_to_peer(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_CHECK:
        rg_monitor_check_certificate(monitor, question, &answered);
        break;
    case RG_ASK_SIGN:
        rg_monitor_prove(monitor, &monitor->frontend, question, &answered);
        break;
    case RG_ASK_STAY:
        rg_monitor_stay(monitor, question, &answered);
        break;
    case RG_ASK_JOIN:
    case RG_ASK_RENEW:
        rg_monitor_make_certificate(monitor, question, &answered);
        break;
    case RG_ASK_USAGE:
        rg_inquiry_usage(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_QUOTA:
        rg_inquiry_quotas(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_POOL:
        rg_inquiry_pool(monitor, question, fds, &answered);
        break;
    case RG_ASK_LEASE:
        rg_inquiry_lease(monitor, question, &answered);
        break;
    case RG_ASK_OWNS:
        rg_inquiry_owns(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_PROBE:
        begin_probe(monitor, &answered);
        break;
    case RG_ASK_MANAGER:
        start_manager(monitor, &answered);
        break;
    case RG_ASK_STOP_MANAGER:
        rg_manager_stop(&monitor->manager);
        break;
    default:
        break;
    }
}

void rg_monitor_serve(struct rg_monitor *monitor)
{
    struct rg_monitor_question question;
    int fds[RG_PACKET_FDS_MAX] = {-1};
    unsigned n_fds;
    for (int i = 0; i < QUESTIONS_AT_ONCE && monitor->frontend.pid && !monitor->frontend.killed; i++) {
        const enum rg_status status = rg_frontend_receive(&monitor->frontend, &question, fds, &n_fds);
        if (status == RG_ERR_TIMEOUT)
            return;
        if (status == RG_ERR_CLOSED) { /* it has ended, or is about to */
            rg_frontend_kill(&monitor->frontend, NULL);
            return;
        }
        if (status == RG_ERR_LIMIT) { /* not its fault */
            struct rg_monitor_answer answered = {.number = question.number};
            rg_error("this process can have no more descriptors: LimitNOFILE= of its unit, or ulimit -n, "
                     "allows for more sessions");
            rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_FULL,
                            "the server cannot have more connections open; try again later");
            continue;
        }
        if (status != RG_OK || !rg_question_check(&question, n_fds)) {
            rg_packet_close(fds, n_fds);
            rg_frontend_kill(&monitor->frontend, "it asked for something that there is not");
            return;
        }
        serve_one(monitor, &question, fds);
        if (question.kind == RG_ASK_JOIN)
            explicit_bzero(&question.join, sizeof question.join);
        rg_packet_close(fds, n_fds);
    }
}

uint64_t rg_monitor_keep_warm(struct rg_monitor *monitor)
{
    const bool closed = rg_monitor_why_closed(monitor, RG_PURPOSE_SESSION) != NULL;
    return rg_warm_continue(&monitor->sessions, &monitor->driver, closed);
}

void rg_monitor_forget(struct rg_monitor *monitor)
{
    monitor->n_probers = 0;
    rg_pool_forget(&monitor->pool);
    rg_monitor_forget_admissions(monitor);
}

void rg_monitor_drain(struct rg_monitor *monitor)
{
    const struct rg_monitor_word word = {.kind = RG_TELL_DRAIN};
    monitor->draining = true;
    rg_frontend_tell(&monitor->frontend, &word, NULL, 0);
    rg_pool_drain(&monitor->pool, true);
}

void rg_monitor_fini(struct rg_monitor *monitor)
{
    rg_frontend_stop(&monitor->frontend);
    rg_http_stop(&monitor->http);
    rg_monitor_forget(monitor);
    rg_probe_cancel(&monitor->probe);
    rg_manager_stop(&monitor->manager);
    rg_warm_close(&monitor->sessions);
    rg_shares_close(&monitor->sessions.shares);
    if (monitor->sessions.entries)
        rg_sessions_fini(&monitor->sessions);
    rg_pool_stop(&monitor->pool);
    rg_accountant_stop(&monitor->accountant);
    rg_identity_close(monitor->policy.identity);
    if (monitor->board)
        close(monitor->board_fd);
}
