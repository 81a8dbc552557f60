/* monitor.c - see monitor.h. */
#include "server/daemon/monitor.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/audit.h"
#include "server/daemon/gauges.h"
#include "server/daemon/inquiries.h"
#include "server/daemon/introduction.h"
#include "server/daemon/question.h"
#include "server/daemon/readers.h"
#include "server/daemon/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each may start a process; in between come those who were revoked. */
enum { QUESTIONS_AT_ONCE = 8 };

/* A session waits for room no longer than the workers that make it try to come to rest. */
#define ADMISSION_NS 15000000000ull

/* In a pool, as its lease says. */
static enum rg_status begin_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                    const struct rg_who *who, const struct rg_session_files *files,
                                    struct rg_monitor_answer *answered)
{
    char key[RG_AGENT_WHO];
    struct rg_monitor_question leased = *question;
    if (!monitor->pool.wanted || question->start.purpose != RG_PURPOSE_SESSION) {
        leased.start.pool_lease = 0;
    } else {
        rg_who_key(who, question->peer.address, key, sizeof key);
        RG_TRY(rg_pool_admit(&monitor->pool, who, key, &leased.start, answered));
    }
    return rg_sessions_start(&monitor->sessions, &monitor->driver, &leased, who, files, answered);
}

/* --- sessions --------------------------------------------------------------------------------------------- */

static void drop_admission(struct rg_monitor *monitor, unsigned at)
{
    struct rg_admission *admission = monitor->admissions[at];
    const int fds[] = {admission->files.connection, admission->files.hello, admission->files.tls};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(admission);
    /* in their order: who came first is looked at first */
    memmove(&monitor->admissions[at], &monitor->admissions[at + 1],
            (--monitor->n_admissions - at) * sizeof monitor->admissions[0]);
}

/* The session has to wait for room. False: it cannot. */
static bool keep_admission(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                           const struct rg_who *who, const struct rg_session_files *files)
{
    struct rg_admission *new = monitor->n_admissions < RG_ADMISSIONS_MAX ? calloc(1, sizeof *new) : NULL;
    if (!new)
        return false;
    new->question = *question;
    new->who = *who;
    new->deadline_ns = rg_now_ns() + ADMISSION_NS;
    new->files.connection = fcntl(files->connection, F_DUPFD_CLOEXEC, 3);
    new->files.hello = fcntl(files->hello, F_DUPFD_CLOEXEC, 3);
    new->files.tls = files->tls >= 0 ? fcntl(files->tls, F_DUPFD_CLOEXEC, 3) : -1;
    monitor->admissions[monitor->n_admissions++] = new;
    if (new->files.connection >= 0 && new->files.hello >= 0 && (files->tls < 0 || new->files.tls >= 0))
        return true;
    drop_admission(monitor, monitor->n_admissions - 1);
    return false;
}

/* Why nothing of that kind begins; NULL: it may. */
static const char *why_closed(const struct rg_monitor *monitor, enum rg_purpose purpose)
{
    if (monitor->draining)
        return "the server is shutting down; use another, or try later";
    /* in a pool, what was granted before is still to be used: nothing more is granted */
    if (monitor->drained && !monitor->pool.wanted && purpose == RG_PURPOSE_SESSION)
        return "the server takes no new sessions, as its operator wants it (remote-gpud drain); use another, "
               "or try later";
    return NULL;
}

/* One that waits. False: it still does. */
static bool try_admission(struct rg_monitor *monitor, struct rg_admission *admission)
{
    struct rg_monitor_answer answered = {.number = admission->question.number};
    char why[RG_CONTROL_REASON] = "";
    const char *closed = why_closed(monitor, admission->question.start.purpose);
    if (closed) {
        rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_SHUTTING_DOWN, closed);
        return true;
    }
    if (!rg_who_may_stay(&monitor->policy, &admission->who, why, sizeof why)) {
        rg_reply_refuse(&monitor->frontend, &answered, RG_REFUSAL_UNAUTHORISED, why);
        return true;
    }
    answered.status =
        begin_session(monitor, &admission->question, &admission->who, &admission->files, &answered);
    if (answered.status == RG_ERR_TIMEOUT && rg_now_ns() < admission->deadline_ns)
        return false;
    if (answered.status == RG_ERR_TIMEOUT)
        answered.status = RG_ERR_REFUSED;
    rg_sessions_show_usage(&monitor->sessions); /* first: who asked may look who was suspended for it */
    rg_reply(&monitor->frontend, &answered, NULL, 0);
    return true;
}

uint64_t rg_monitor_admit(struct rg_monitor *monitor)
{
    for (unsigned i = 0; i < monitor->n_admissions;)
        if (try_admission(monitor, monitor->admissions[i]))
            drop_admission(monitor, i);
        else
            i++;
    return rg_preemption_continue(&monitor->sessions, monitor->n_admissions > 0);
}

static void start_session(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                          const struct rg_session_files *files, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    const char *closed = why_closed(monitor, question->start.purpose);
    if (closed) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_SHUTTING_DOWN, closed);
        return;
    }
    answered->status = rg_who_is(&monitor->policy, &question->peer, files->connection, &who, answered);
    rg_inquiry_see_time(monitor);
    if (answered->status == RG_OK)
        answered->status = begin_session(monitor, question, &who, files, answered);
    if (answered->status == RG_ERR_TIMEOUT) {
        if (keep_admission(monitor, question, &who, files))
            return;
        answered->status = RG_ERR_REFUSED;
    }
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

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
    rg_reply(&monitor->frontend, answered, &socket, answered->status == RG_OK ? 1 : 0);
    if (socket >= 0)
        close(socket);
}

/* --- certificates ----------------------------------------------------------------------------------------- */

static void check_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                              struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

void rg_monitor_prove(const struct rg_monitor *monitor, struct rg_frontend_process *process,
                      const struct rg_monitor_question *question, struct rg_monitor_answer *answered)
{
    _Static_assert((int)RG_MONITOR_SIGNATURE == (int)RG_IDENTITY_SIGNATURE, "an answer holds a signature");
    _Static_assert((int)RG_MONITOR_HANDSHAKE == (int)RG_IDENTITY_HANDSHAKE, "a question holds a hash");
    const struct rg_monitor_sign *what = &question->sign;
    size_t size = 0;
    answered->status = RG_ERR_UNSUPPORTED;
    if (monitor->policy.identity)
        answered->status = rg_identity_sign(monitor->policy.identity, what->generation,
                                            (enum rg_identity_digest)what->digest, what->hash,
                                            what->hash_size, answered->signature, &size);
    answered->signature_size = answered->status == RG_OK ? (uint32_t)size : 0;
    rg_reply(process, answered, NULL, 0);
}

static void stay(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                 struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_sessions_stay(&monitor->sessions, question, &who, answered);
    rg_reply(&monitor->frontend, answered, NULL, 0);
}

static void give_certificate(struct rg_monitor *monitor, const struct rg_identity_grant *grant,
                             struct rg_monitor_answer *answered)
{
    const int file = rg_file_in_memory("remote-gpu-grant", grant, sizeof *grant);
    if (file < 0) {
        rg_error("no memory for a certificate: %s", strerror(errno));
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                        "the server is out of memory; try again later");
    } else {
        rg_reply(&monitor->frontend, answered, &file, 1);
    }
    if (file >= 0)
        close(file);
}

static void make_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                             struct rg_monitor_answer *answered)
{
    struct rg_identity_store *store = monitor->policy.identity;
    const struct rg_monitor_peer *peer = &question->peer;
    const bool join = question->kind == RG_ASK_JOIN;
    struct rg_identity_grant grant;
    char why[RG_CONTROL_REASON] = "";
    memset(&grant, 0, sizeof grant);
    if (!store || !rg_identity_is_own(store)) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNSUPPORTED,
                        "this server gives no certificates; its operator's authority does");
        return;
    }
    answered->status = join ? rg_identity_join(store, question->join.secret, question->join.public_key,
                                               &grant, why, sizeof why)
                            : rg_identity_renew(store, peer->name, peer->serial, peer->serial_size,
                                                question->join.public_key, &grant, why, sizeof why);
    if (answered->status == RG_OK) {
        rg_audit(&(struct rg_audit){.event = join ? RG_AUDIT_JOIN : RG_AUDIT_RENEW,
                                    .user = grant.user,
                                    .serial = grant.serial,
                                    .serial_size = grant.serial_size,
                                    .from = peer->address,
                                    .encrypted = true});
        give_certificate(monitor, &grant, answered);
    } else if (answered->status == RG_ERR_REFUSED) {
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_UNAUTHORISED, why);
    } else if (answered->status == RG_ERR_TIMEOUT) {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_FULL,
                        "the server is about to change who may use it; try again");
    } else {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        rg_reply_refuse(&monitor->frontend, answered, RG_REFUSAL_INTERNAL,
                        "the server could not make a certificate; its log says why");
    }
}

void rg_monitor_recheck(struct rg_monitor *monitor)
{
    if (monitor->policy.identity && rg_identity_changed(monitor->policy.identity))
        rg_sessions_recheck(&monitor->sessions, &monitor->policy);
}

void rg_monitor_reload_rules(struct rg_monitor *monitor)
{
    rg_shares_reload(&monitor->sessions.shares);
}

void rg_monitor_reload(struct rg_monitor *monitor)
{
    struct rg_identity_store *store = monitor->policy.identity;
    struct rg_identity_material material;
    char why[RG_CONTROL_REASON] = "";
    bool changed = false;
    if (!store)
        return;
    if (rg_identity_reload(store, &changed, why, sizeof why) != RG_OK) {
        rg_error("the certificates stay as they were: %s", why);
        return;
    }
    rg_sessions_recheck(&monitor->sessions, &monitor->policy);
    if (!changed)
        return;
    rg_identity_material(store, &material);
    if (rg_frontend_set_tls(&monitor->frontend, &material) == RG_OK && rg_http_set_tls(monitor))
        rg_info("new connections get the server's new certificate");
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
    rg_reply(&monitor->frontend, answered, &socket, answered->status == RG_OK ? 1 : 0);
    if (socket >= 0)
        close(socket);
}

static void serve_one(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds)
{
    struct rg_monitor_answer answered = {.number = question->number};
    const struct rg_session_files files = {
        .connection = fds[0], .hello = fds[1], .tls = question->peer.encrypted ? fds[2] : -1};
    switch (question->kind) {
    case RG_ASK_READY:
        monitor->frontend.ready = true;
        monitor->frontend.unanswered = 0; /* it may have had longer to begin than it has from now on */
        break;
    case RG_ASK_START:
        start_session(monitor, question, &files, &answered);
        break;
    case RG_ASK_HAND_OVER:
        hand_over(monitor, question, &files, &answered);
        break;
    case RG_ASK_CONNECT:
        connect_to_peer(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_CHECK:
        check_certificate(monitor, question, &answered);
        break;
    case RG_ASK_SIGN:
        rg_monitor_prove(monitor, &monitor->frontend, question, &answered);
        break;
    case RG_ASK_STAY:
        stay(monitor, question, &answered);
        break;
    case RG_ASK_JOIN:
    case RG_ASK_RENEW:
        make_certificate(monitor, question, &answered);
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
    case RG_ASK_PROBE:
        begin_probe(monitor, &answered);
        break;
    case RG_ASK_MANAGER:
        start_manager(monitor, &answered);
        break;
    case RG_ASK_STOP_MANAGER:
        rg_manager_stop(&monitor->manager);
        break;
    case RG_ASK_ALIVE:
        monitor->frontend.unanswered = 0;
        rg_gauges_refused(&monitor->sessions, &question->refused);
        break;
    case RG_ASK_LOOK:
        rg_sessions_show_usage(&monitor->sessions);
        rg_reply(&monitor->frontend, &answered, NULL, 0);
        break;
    case RG_ASK_LINK:
        rg_reader_link(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_LIST: /* not the frontend's: it asks for its clients */
    case RG_ASK_LOGIN:
    case RG_ASK_LOGOUT:
    case RG_ASK_ACT:
        rg_reply(&monitor->frontend, &answered, NULL, 0);
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
    const bool closed = why_closed(monitor, RG_PURPOSE_SESSION) != NULL;
    return rg_warm_continue(&monitor->sessions, &monitor->driver, closed);
}

void rg_monitor_forget(struct rg_monitor *monitor)
{
    monitor->n_probers = 0;
    rg_pool_forget(&monitor->pool);
    while (monitor->n_admissions > 0)
        drop_admission(monitor, monitor->n_admissions - 1);
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
