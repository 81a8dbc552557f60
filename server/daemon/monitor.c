/* monitor.c - see monitor.h. */
#include "server/daemon/monitor.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/printable.h"
#include "server/daemon/accounting.h"
#include "server/daemon/audit.h"
#include "server/daemon/quotas.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Each may start a process; in between come those who were revoked. */
enum { QUESTIONS_AT_ONCE = 8 };

/* A session waits for room no longer than the workers that make it try to come to rest. */
#define ADMISSION_NS 15000000000ull

static void end_text(char *text, size_t size)
{
    text[size - 1] = 0;
    rg_printable_clean(text);
}

/* Whether the question may come with so many descriptors. */
static bool check_fds(const struct rg_monitor_question *question, unsigned n_fds)
{
    switch (question->kind) {
    case RG_ASK_USAGE:
    case RG_ASK_QUOTA:
        return n_fds == 1;
    case RG_ASK_POOL:
        return n_fds == 2;
    case RG_ASK_START:
    case RG_ASK_HAND_OVER:
        return n_fds == (question->peer.encrypted ? 3 : 2);
    case RG_ASK_READY:
    case RG_ASK_ALIVE:
    case RG_ASK_PROBE:
    case RG_ASK_MANAGER:
    case RG_ASK_STOP_MANAGER:
    case RG_ASK_CHECK:
    case RG_ASK_STAY:
    case RG_ASK_JOIN:
    case RG_ASK_RENEW:
    case RG_ASK_LEASE:
        return n_fds == 0;
    }
    return false;
}

static bool check_peer(struct rg_monitor_peer *peer)
{
    end_text(peer->address, sizeof peer->address);
    end_text(peer->name, sizeof peer->name);
    if (peer->serial_size > sizeof peer->serial || peer->encrypted > 1)
        return false;
    return peer->proof == RG_PROOF_NONE || peer->proof == RG_PROOF_USER ||
           (peer->proof == RG_PROOF_CERTIFICATE && peer->encrypted && peer->name[0]);
}

static bool check_share(const struct rg_share_wish *share)
{
    return share->memory_millionths <= 1000000 && share->compute_millionths <= 1000000 &&
           share->weight <= RG_SHARE_WEIGHT_MAX && (unsigned)share->priority <= RG_SHARE_PRIORITY_HIGH &&
           share->exclusive <= 1;
}

static bool check_start(struct rg_monitor_start *start)
{
    end_text(start->claimed.host, sizeof start->claimed.host);
    end_text(start->claimed.user, sizeof start->claimed.user);
    end_text(start->claimed.command, sizeof start->claimed.command);
    end_text(start->share.project, sizeof start->share.project);
    return start->n_gpu_indices <= RG_DEVICES_MAX && check_share(&start->share) &&
           (start->purpose == RG_PURPOSE_SESSION || start->purpose == RG_PURPOSE_NETPERF);
}

static bool check_usage(struct rg_usage_question *usage)
{
    end_text(usage->user, sizeof usage->user);
    end_text(usage->project, sizeof usage->project);
    return usage->by >= RG_USAGE_BY_USER && usage->by <= RG_USAGE_BY_SESSION && usage->skip <= INT64_MAX &&
           usage->has_project <= 1;
}

/* All that there is to parse. */
static bool check(struct rg_monitor_question *question, unsigned n_fds)
{
    if (!check_fds(question, n_fds))
        return false;
    switch (question->kind) {
    case RG_ASK_START:
        return check_peer(&question->peer) && check_start(&question->start);
    case RG_ASK_HAND_OVER:
        return check_peer(&question->peer) && (question->hand_over.purpose == RG_PURPOSE_BULK ||
                                               question->hand_over.purpose == RG_PURPOSE_RESUME);
    case RG_ASK_USAGE:
        return check_peer(&question->peer) && check_usage(&question->usage);
    case RG_ASK_QUOTA:
        end_text(question->usage.project, sizeof question->usage.project);
        return check_peer(&question->peer);
    case RG_ASK_POOL:
        return check_peer(&question->peer) && question->pool.size <= RG_QUESTION_SIZE_MAX;
    case RG_ASK_CHECK:
    case RG_ASK_STAY:
    case RG_ASK_RENEW:
        return check_peer(&question->peer) && question->peer.proof == RG_PROOF_CERTIFICATE;
    case RG_ASK_JOIN:
        return check_peer(&question->peer) && question->peer.encrypted;
    default:
        return true;
    }
}

static void answer(struct rg_monitor *monitor, const struct rg_monitor_answer *answered, const int *fds,
                   unsigned n_fds)
{
    struct rg_monitor_word word = {.kind = RG_TELL_ANSWER, .answer = *answered};
    rg_frontend_tell(&monitor->frontend, &word, fds, n_fds);
}

static void refuse(struct rg_monitor *monitor, struct rg_monitor_answer *answered, enum rg_refusal_code code,
                   const char *why)
{
    answered->status = RG_ERR_REFUSED;
    answered->code = code;
    snprintf(answered->why, sizeof answered->why, "%s", why);
    answer(monitor, answered, NULL, 0);
}

/* A socket by which another process is to answer. False: refused. */
static bool open_answers(struct rg_monitor *monitor, struct rg_monitor_answer *answered, int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0)
        return true;
    refuse(monitor, answered, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    return false;
}

/* Hands on the first of the ends, if that process has taken the other. */
static void answer_by(struct rg_monitor *monitor, struct rg_monitor_answer *answered, const int ends[2],
                      bool taken, const char *why_not)
{
    if (taken)
        answer(monitor, answered, ends, 1);
    else
        refuse(monitor, answered, RG_REFUSAL_INTERNAL, why_not);
    close(ends[0]);
    close(ends[1]);
}

/* A day may have begun since something was measured, and with it GPU hours of quotas. */
static void see_what_time_it_is(const struct rg_monitor *monitor)
{
    if (monitor->accountant.accounts)
        rg_accounts_tick(monitor->accountant.accounts, rg_accountant_wall_ns());
}

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

static void refuse_draining(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    refuse(monitor, answered, RG_REFUSAL_SHUTTING_DOWN,
           "the server is shutting down; use another, or try later");
}

/* One that waits. False: it still does. */
static bool try_admission(struct rg_monitor *monitor, struct rg_admission *admission)
{
    struct rg_monitor_answer answered = {.number = admission->question.number};
    char why[RG_CONTROL_REASON] = "";
    if (monitor->draining) {
        refuse_draining(monitor, &answered);
        return true;
    }
    if (!rg_who_may_stay(&monitor->policy, &admission->who, why, sizeof why)) {
        refuse(monitor, &answered, RG_REFUSAL_UNAUTHORISED, why);
        return true;
    }
    answered.status =
        begin_session(monitor, &admission->question, &admission->who, &admission->files, &answered);
    if (answered.status == RG_ERR_TIMEOUT && rg_now_ns() < admission->deadline_ns)
        return false;
    if (answered.status == RG_ERR_TIMEOUT)
        answered.status = RG_ERR_REFUSED;
    rg_sessions_show_usage(&monitor->sessions); /* first: who asked may look who was suspended for it */
    answer(monitor, &answered, NULL, 0);
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
    if (monitor->draining) {
        refuse_draining(monitor, answered);
        return;
    }
    /* in a pool, what was granted before is still to be used: nothing more is granted */
    if (monitor->drained && !monitor->pool.wanted && question->start.purpose == RG_PURPOSE_SESSION) {
        refuse(monitor, answered, RG_REFUSAL_SHUTTING_DOWN,
               "the server takes no new sessions, as its operator wants it (remote-gpud drain); use another, "
               "or try later");
        return;
    }
    answered->status = rg_who_is(&monitor->policy, &question->peer, files->connection, &who, answered);
    see_what_time_it_is(monitor);
    if (answered->status == RG_OK)
        answered->status = begin_session(monitor, question, &who, files, answered);
    if (answered->status == RG_ERR_TIMEOUT) {
        if (keep_admission(monitor, question, &who, files))
            return;
        answered->status = RG_ERR_REFUSED;
    }
    answer(monitor, answered, NULL, 0);
}

static void hand_over(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      const struct rg_session_files *files, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, files->connection, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_sessions_hand_over(&monitor->sessions, question, &who, files, answered);
    answer(monitor, answered, NULL, 0);
}

/* --- certificates ----------------------------------------------------------------------------------------- */

static void check_certificate(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                              struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    answer(monitor, answered, NULL, 0);
}

static void stay(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                 struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, -1, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_sessions_stay(&monitor->sessions, question, &who, answered);
    answer(monitor, answered, NULL, 0);
}

static void give_certificate(struct rg_monitor *monitor, const struct rg_identity_grant *grant,
                             struct rg_monitor_answer *answered)
{
    const int file = rg_file_in_memory("remote-gpu-grant", grant, sizeof *grant);
    if (file < 0) {
        rg_error("no memory for a certificate: %s", strerror(errno));
        refuse(monitor, answered, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    } else {
        answer(monitor, answered, &file, 1);
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
        refuse(monitor, answered, RG_REFUSAL_UNSUPPORTED,
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
        refuse(monitor, answered, RG_REFUSAL_UNAUTHORISED, why);
    } else if (answered->status == RG_ERR_TIMEOUT) {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        refuse(monitor, answered, RG_REFUSAL_FULL, "the server is about to change who may use it; try again");
    } else {
        rg_error("a certificate for %s could not be made: %s", peer->address, why);
        refuse(monitor, answered, RG_REFUSAL_INTERNAL,
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
    if (rg_frontend_set_tls(&monitor->frontend, &material) == RG_OK)
        rg_info("new connections get the server's new certificate");
}

/* --- accounts --------------------------------------------------------------------------------------------- */

/* The server's user and root, whom the kernel names, see all. */
static bool is_operator(const struct rg_monitor *monitor, const struct rg_who *who)
{
    return who->proof == RG_PROOF_USER && (who->uid == 0 || who->uid == monitor->policy.uid);
}

/* The accountant answers by a socket, however long that takes it. */
static void tell_usage(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                       struct rg_monitor_answer *answered)
{
    struct rg_accounts *accounts = monitor->accountant.accounts;
    struct rg_accountant_query query = {.question = question->usage};
    struct rg_who who;
    int ends[2];
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status != RG_OK) {
        answer(monitor, answered, NULL, 0);
        return;
    }
    if (!accounts) {
        refuse(monitor, answered, RG_REFUSAL_UNSUPPORTED,
               "this server keeps no accounts; its operator can change that (--accounts) [usage-off]");
        return;
    }
    query.everybody = is_operator(monitor, &who);
    rg_accounting_owner(&who, question->peer.address, "", &query.owner);
    if (open_answers(monitor, answered, ends))
        answer_by(monitor, answered, ends, rg_accounts_ask(accounts, &query, ends[1]),
                  "the server's accounts cannot be read now; try again later [usage-unavailable]");
}

static void tell_quotas(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                        int connection, struct rg_monitor_answer *answered)
{
    struct rg_who who;
    struct rg_account_owner owner;
    struct rg_quota_answer quotas;
    const char *project = question->usage.project;
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status == RG_OK)
        answered->status = rg_shares_check_project(&monitor->sessions.shares, &who, project, answered);
    if (answered->status != RG_OK) {
        answer(monitor, answered, NULL, 0);
        return;
    }
    rg_accounting_owner(&who, question->peer.address, project, &owner);
    see_what_time_it_is(monitor);
    rg_quotas_tell(&monitor->sessions, &owner, &quotas);
    const int file = rg_file_in_memory("remote-gpu-quotas", &quotas, sizeof quotas);
    if (file < 0) {
        refuse(monitor, answered, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
        return;
    }
    answer(monitor, answered, &file, 1);
    close(file);
}

/* --- the pool --------------------------------------------------------------------------------------------- */

static void ask_pool(struct rg_monitor *monitor, const struct rg_monitor_question *question, const int *fds,
                     struct rg_monitor_answer *answered)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    struct rg_who who;
    int ends[2];
    answered->status = rg_who_is(&monitor->policy, &question->peer, fds[0], &who, answered);
    if (answered->status != RG_OK) {
        answer(monitor, answered, NULL, 0);
        return;
    }
    rg_who_key(&who, question->peer.address, word.ask.key, sizeof word.ask.key);
    snprintf(word.ask.name, sizeof word.ask.name, "%s", who.name);
    word.ask.is_operator = is_operator(monitor, &who);
    word.ask.max_gpus = who.limits.max_gpus;
    word.ask.size = question->pool.size;
    if (open_answers(monitor, answered, ends))
        answer_by(monitor, answered, ends, rg_pool_ask(&monitor->pool, &word, ends[1], fds[1]),
                  "the server cannot ask its pool now; try again, or ask another of its servers");
}

static void check_lease(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                        struct rg_monitor_answer *answered)
{
    char why[RG_CONTROL_REASON] = "";
    enum rg_status status = RG_OK; /* in no pool there is nothing to check */
    if (monitor->pool.wanted)
        status = rg_pool_check(&monitor->pool, question->pool.lease, question->number, why, sizeof why);
    if (status == RG_OK)
        answer(monitor, answered, NULL, 0);
    else if (status != RG_ERR_TIMEOUT)
        refuse(monitor, answered, RG_REFUSAL_UNAUTHORISED, why);
}

static void on_checked(void *data, uint64_t question, bool there, const char *why)
{
    struct rg_monitor *monitor = data;
    struct rg_monitor_answer answered = {.number = question};
    if (there)
        answer(monitor, &answered, NULL, 0);
    else
        refuse(monitor, &answered, RG_REFUSAL_UNAUTHORISED, why);
}

static void on_gone(void *data, uint64_t lease)
{
    struct rg_monitor *monitor = data;
    rg_sessions_end_lease(&monitor->sessions, lease);
}

void rg_monitor_open_pool(struct rg_monitor *monitor)
{
    monitor->pool.checked = on_checked;
    monitor->pool.gone = on_gone;
    monitor->pool.data = monitor;
}

/* --- devices ---------------------------------------------------------------------------------------------- */

static void begin_probe(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    if (monitor->n_probers == RG_MONITOR_PROBERS_MAX ||
        (!rg_probe_runs(&monitor->probe) &&
         !rg_probe_begin(&monitor->probe, monitor->sandboxes, &monitor->driver))) {
        refuse(monitor, answered, RG_REFUSAL_INTERNAL, "the devices cannot be looked at now");
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
    rg_sessions_show_usage(&monitor->sessions);
    for (unsigned i = 0; i < monitor->n_probers; i++) {
        const struct rg_monitor_answer answered = {.number = monitor->probers[i], .status = status};
        answer(monitor, &answered, NULL, 0);
    }
    monitor->n_probers = 0;
}

static void start_manager(struct rg_monitor *monitor, struct rg_monitor_answer *answered)
{
    int socket = -1;
    answered->status = rg_manager_start(&monitor->manager, monitor->sandboxes, &monitor->driver, &socket);
    answer(monitor, answered, &socket, answered->status == RG_OK ? 1 : 0);
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
    case RG_ASK_CHECK:
        check_certificate(monitor, question, &answered);
        break;
    case RG_ASK_STAY:
        stay(monitor, question, &answered);
        break;
    case RG_ASK_JOIN:
    case RG_ASK_RENEW:
        make_certificate(monitor, question, &answered);
        break;
    case RG_ASK_USAGE:
        tell_usage(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_QUOTA:
        tell_quotas(monitor, question, fds[0], &answered);
        break;
    case RG_ASK_POOL:
        ask_pool(monitor, question, fds, &answered);
        break;
    case RG_ASK_LEASE:
        check_lease(monitor, question, &answered);
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
            refuse(monitor, &answered, RG_REFUSAL_FULL,
                   "the server cannot have more connections open; try again later");
            continue;
        }
        if (status != RG_OK || !check(&question, n_fds)) {
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
    rg_monitor_forget(monitor);
    rg_probe_cancel(&monitor->probe);
    rg_manager_stop(&monitor->manager);
    rg_shares_close(&monitor->sessions.shares);
    if (monitor->sessions.entries)
        rg_sessions_fini(&monitor->sessions);
    rg_pool_stop(&monitor->pool);
    rg_accountant_stop(&monitor->accountant);
    rg_identity_close(monitor->policy.identity);
    if (monitor->board)
        close(monitor->board_fd);
}
