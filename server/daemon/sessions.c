/* sessions.c - admission, and what becomes of each session. See sessions.h. */
#include "server/daemon/sessions.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/accountant_process.h"
#include "server/daemon/accounting.h"
#include "server/daemon/audit.h"
#include "server/daemon/gauges.h"
#include "server/daemon/placement.h"
#include "server/daemon/quotas.h"
#include "server/daemon/refusal.h"
#include "server/daemon/worker_process.h"
#include "server/handshake/handed.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum rg_status rg_sessions_init(struct rg_sessions *sessions, struct rg_board *board, const char *worker)
{
    *sessions =
        (struct rg_sessions){.board = board, .max = board->max_sessions, .next_id = 1, .worker = worker};
    sessions->gauges.began_unix = (uint64_t)time(NULL);
    sessions->entries = calloc(sessions->max, sizeof sessions->entries[0]);
    return sessions->entries ? RG_OK : RG_ERR_NO_MEMORY;
}

void rg_sessions_fini(struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        free(sessions->entries[i]);
    free(sessions->entries);
    *sessions = (struct rg_sessions){0};
}

void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path)
{
    snprintf(sessions->netperf, sizeof sessions->netperf, "%s", path);
}

/* The board shows them in the order of the entries; that of one place has changed. */
static void show(struct rg_sessions *sessions, uint32_t place)
{
    struct rg_board *board = sessions->board;
    rg_board_begin(board);
    if (place < sessions->n)
        board->sessions[place] = sessions->entries[place]->info;
    board->n_sessions = sessions->n;
    rg_board_end(board);
}

/* --- admission ---------------------------------------------------------------------------------------------
 */

static uint32_t smaller_limit(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

/* Who has a name has no more than so many sessions; who has none is not told from others who have none. */
static enum rg_status check_share(const struct rg_sessions *sessions, const struct rg_who *who,
                                  struct rg_monitor_answer *answer)
{
    const uint32_t limit = smaller_limit(sessions->max_of_one, who->limits.max_sessions);
    uint32_t n = 0;
    for (uint32_t i = 0; i < sessions->n; i++)
        n += rg_who_is_same(&sessions->entries[i]->who, who);
    if (!limit || who->proof == RG_PROOF_NONE || n < limit)
        return RG_OK;
    return rg_refusal(
        answer, RG_ERR_REFUSED, RG_REFUSAL_FULL,
        "%s has %u sessions on this server and may have no more at once; end one of them, or ask "
        "the server's operator for more",
        who->name, n);
}

static enum rg_status admit(const struct rg_sessions *sessions, const struct rg_driver *driver,
                            const struct rg_monitor_start *wanted, const struct rg_who *who,
                            struct rg_session_info *info, struct rg_monitor_answer *answer)
{
    if (sessions->n >= sessions->max)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_FULL,
            "the server runs %u sessions and takes no more at once; try again later, or raise its "
            "--max-sessions",
            sessions->n);
    RG_TRY(check_share(sessions, who, answer));
    if (wanted->purpose == RG_PURPOSE_NETPERF) {
        if (sessions->netperf[0])
            return RG_OK;
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_UNSUPPORTED,
            "this server does not answer measurements (--no-netperf, or its installation is incomplete)");
    }
    return rg_placement(sessions, driver, wanted, who, info, answer);
}

/* What the session gets of its devices; there are none where the connection is to be measured. */
static enum rg_status grant_share(struct rg_sessions *sessions, struct rg_session_entry *entry,
                                  const struct rg_monitor_start *wanted, struct rg_monitor_answer *answer)
{
    entry->share.slot_fd = -1;
    if (wanted->purpose == RG_PURPOSE_NETPERF)
        return RG_OK;
    const enum rg_status status = rg_shares_grant(&sessions->shares, &wanted->share, &entry->who,
                                                  entry->info.id, &entry->info, &entry->share, answer);
    if (status == RG_OK)
        rg_share_slot_show(entry->share.slot, &entry->share.grant, &entry->info);
    return status;
}

/* Whether the quotas allow it, now that it is known what it gets. */
static enum rg_status check_quotas(struct rg_sessions *sessions, struct rg_session_entry *entry,
                                   struct rg_monitor_answer *answer)
{
    const uint64_t memory = rg_accounting_memory(&sessions->shares, &entry->share);
    rg_accounting_owner(&entry->who, entry->info.peer, entry->share.grant.project, &entry->owner);
    if (entry->info.n_devices == 0)
        return RG_OK;
    const enum rg_status status =
        rg_quotas_admit(sessions, &entry->owner, entry->info.n_devices, memory, answer);
    if (status != RG_OK)
        rg_shares_release(&sessions->shares, &entry->share, entry->info.id);
    return status;
}

/* There is too little memory: others give it theirs, or `answer` says so already. Who may not begin at all takes nobody's. */
static enum rg_status make_room(struct rg_sessions *sessions, struct rg_session_entry *entry,
                                struct rg_monitor_answer *answer)
{
    if (!entry->share.grant.preempts)
        return RG_ERR_REFUSED;
    struct rg_monitor_answer unlimited = *answer;
    const enum rg_status status = check_quotas(sessions, entry, &unlimited);
    if (status != RG_OK)
        *answer = unlimited;
    else if (rg_preemption_make_room(sessions, &entry->share.grant))
        return RG_ERR_TIMEOUT;
    return RG_ERR_REFUSED;
}

/* A session's GPUs are all whole, or all instances. */
static void begin_account(struct rg_sessions *sessions, const struct rg_driver *driver,
                          struct rg_session_entry *entry)
{
    const struct rg_session_info *info = &entry->info;
    entry->account = rg_accounts_begin(
        sessions->accounts,
        &(struct rg_accountant_session){.number = info->id,
                                        .owner = entry->owner,
                                        .n_devices = info->n_devices,
                                        .sharing = rg_share_grant_sharing(&entry->share.grant),
                                        .mig = driver->devices[info->devices[0]].mig},
        entry->started_ns, rg_accountant_wall_ns());
}

enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                 const struct rg_monitor_question *question, const struct rg_who *who,
                                 const struct rg_session_files *files, struct rg_monitor_answer *answer)
{
    const struct rg_monitor_start *wanted = &question->start;
    RG_CLEANUP_FREE struct rg_session_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return rg_refusal(answer, RG_ERR_NO_MEMORY, RG_REFUSAL_INTERNAL,
                          "the server is out of memory; try again later");
    struct rg_session_info *info = &entry->info;
    RG_TRY(admit(sessions, driver, wanted, who, info, answer));
    info->id = sessions->next_id;
    info->identity = wanted->claimed;
    info->since_unix = (uint64_t)time(NULL);
    memcpy(info->identity_name, who->name, sizeof info->identity_name);
    info->encrypted = who->encrypted;
    entry->who = *who;
    memcpy(info->peer, question->peer.address, sizeof info->peer);
    entry->started_ns = rg_now_ns();
    entry->hand = -1;
    entry->pool_lease = wanted->pool_lease;
    rg_link_note(files->connection, &entry->link);

    char why[512] = "";
    enum rg_status status = grant_share(sessions, entry, wanted, answer);
    if (status == RG_ERR_REFUSED && answer->code == RG_REFUSAL_FULL && rg_warm_make_room(sessions, info))
        return RG_ERR_TIMEOUT;
    if (status == RG_ERR_REFUSED && answer->code == RG_REFUSAL_FULL)
        return make_room(sessions, entry, answer);
    if (status == RG_OK)
        status = check_quotas(sessions, entry, answer);
    if (status != RG_OK)
        return status;
    sessions->next_id++;
    status = rg_worker_process_start(sessions, driver, entry, wanted, files, why, sizeof why);
    if (status != RG_OK) {
        rg_shares_release(&sessions->shares, &entry->share, info->id);
        rg_error("session %llu: no worker: %s", (unsigned long long)info->id, why);
        return rg_refusal(answer, status, RG_REFUSAL_INTERNAL,
                          "the server could not start a worker (%s); its log says more", why);
    }
    char devices[RG_DEVICES_MAX * 4];
    rg_worker_process_devices(info, devices, sizeof devices);
    if (info->n_devices == 0)
        snprintf(devices, sizeof devices, "none (netperf)");
    rg_info("session %llu starts: %s, %s; %s@%s, process %u, from %s, GPU %s%s, worker %d%s: %s",
            (unsigned long long)info->id, rg_who_text(who), who->encrypted ? "by TLS" : "not encrypted",
            info->identity.user, info->identity.host, info->identity.pid, info->peer, devices,
            entry->share.grant.exclusive ? " alone"
            : entry->share.grant.mps     ? " by MPS"
                                         : "",
            (int)entry->pid, entry->warm ? " (warm)" : "", info->identity.command);
    rg_audit(&(struct rg_audit){.event = RG_AUDIT_GRANT,
                                .user = who->name,
                                .serial = who->serial,
                                .serial_size = who->serial_size,
                                .from = info->peer,
                                .session = info->id,
                                .gpus = info->n_devices ? devices : "none",
                                .encrypted = who->encrypted});
    if (sessions->accounts && info->n_devices)
        begin_account(sessions, driver, entry);
    sessions->gauges.granted++;
    sessions->entries[sessions->n++] = RG_TAKE_PTR(entry);
    show(sessions, sessions->n - 1);
    return RG_OK;
}

/* --- further connections -------------------------------------------------------------------------------- */

static struct rg_session_entry *find(const struct rg_sessions *sessions, uint64_t id)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->info.id == id)
            return sessions->entries[i];
    return NULL;
}

/* Whoever shows a certificate that is valid for longer keeps the session by it, and is revoked by it from then on. */
static void prolong(struct rg_session_entry *entry, const struct rg_who *who)
{
    if (who->proof != RG_PROOF_CERTIFICATE || who->not_after <= entry->who.not_after)
        return;
    entry->who = *who;
    rg_info("session %llu: %s has shown a renewed certificate", (unsigned long long)entry->info.id,
            rg_who_text(who));
}

static enum rg_status refuse_other(struct rg_monitor_answer *answer, unsigned long long id,
                                   const struct rg_who *who)
{
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                      "session %llu was begun by another than %s, who cannot go on with it", id,
                      rg_who_text(who));
}

enum rg_status rg_sessions_stay(struct rg_sessions *sessions, const struct rg_monitor_question *question,
                                const struct rg_who *who, struct rg_monitor_answer *answer)
{
    struct rg_session_entry *entry = find(sessions, question->stay.session);
    if (!entry || entry->kill_ns)
        return rg_refusal(answer, RG_ERR_NOT_FOUND, RG_REFUSAL_NO_SUCH_SESSION,
                          "the session has ended on the server");
    if (!rg_who_is_same(&entry->who, who))
        return refuse_other(answer, entry->info.id, who);
    prolong(entry, who);
    return RG_OK;
}

enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions, const struct rg_monitor_question *question,
                                     const struct rg_who *who, const struct rg_session_files *files,
                                     struct rg_monitor_answer *answer)
{
    const unsigned long long id = question->hand_over.session;
    struct rg_session_entry *entry = find(sessions, id);
    const int fds[] = {files->connection, files->hello, files->tls};
    const struct rg_handed handed = {.version = RG_HANDED_VERSION, .n_fds = files->tls >= 0 ? 3 : 2};
    errno = 0;
    if (entry && who && !rg_who_is_same(&entry->who, who))
        return refuse_other(answer, id, who);
    if (entry && who)
        prolong(entry, who);
    if (entry && entry->hand >= 0 && rg_packet_send(entry->hand, &handed, sizeof handed, fds, handed.n_fds))
        return RG_OK;
    /* the worker is behind with taking them: others, without a token, may send it as many as they like */
    if (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS)
        return rg_refusal(answer, RG_ERR_TIMEOUT, RG_REFUSAL_FULL,
                          "session %llu has too much to do just now; try again", id);
    if (question->hand_over.purpose == RG_PURPOSE_RESUME)
        return rg_refusal(answer, RG_ERR_NOT_FOUND, RG_REFUSAL_NO_SUCH_SESSION,
                          "the session has ended on the server");
    return rg_refusal(answer, RG_ERR_NOT_FOUND, RG_REFUSAL_UNSUPPORTED,
                      "there is no session %llu that accepts another connection", id);
}

bool rg_sessions_belongs(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who)
{
    const struct rg_session_entry *entry = find(sessions, id);
    return entry && !entry->kill_ns && rg_who_is_same(&entry->who, who);
}

/* --- suspension ------------------------------------------------------------------------------------------ */

const struct rg_share_slot *rg_sessions_slot(const struct rg_sessions *sessions, uint64_t id)
{
    const struct rg_session_entry *entry = find(sessions, id);
    return entry ? entry->share.slot : NULL;
}

bool rg_sessions_suspend(const struct rg_sessions *sessions, uint64_t id, enum rg_suspend_command command)
{
    const struct rg_session_entry *entry = find(sessions, id);
    const union sigval value = {.sival_int = (int)command};
    /* A worker that has attached its share waits for the signal, which would end it before. */
    return entry && entry->share.slot &&
           atomic_load(&entry->share.slot->usage.state) != (uint32_t)RG_SHARE_UNKNOWN &&
           sigqueue(entry->pid, RG_SUSPEND_SIGNAL, value) == 0;
}

/* --- ending ------------------------------------------------------------------------------------------------
 */

/* The last measurement, while there is the slot. */
static void close_account(const struct rg_sessions *sessions, struct rg_session_entry *entry, int end)
{
    struct rg_figures_sample sample;
    char how[64] = "ended";
    if (WIFSIGNALED(end))
        snprintf(how, sizeof how, "its worker was killed by signal %d", WTERMSIG(end));
    else if (WEXITSTATUS(end) != 0)
        snprintf(how, sizeof how, "its worker failed with status %d", WEXITSTATUS(end));
    rg_accounting_sample(&sessions->shares, &entry->share, &sample);
    rg_account_end(entry->account, &sample, rg_now_ns(), rg_accountant_wall_ns(), how);
    entry->account = NULL;
}

static void say_end(const struct rg_session_entry *entry, int end)
{
    double seconds = (double)(rg_now_ns() - entry->started_ns) / 1e9;
    unsigned long long id = entry->info.id;
    if (WIFSIGNALED(end))
        rg_log(WTERMSIG(end) == SIGTERM || WTERMSIG(end) == SIGKILL ? RG_LOG_INFO : RG_LOG_WARN,
               "session %llu ended after %.1f s: its worker was killed by signal %d (%s)", id, seconds,
               WTERMSIG(end), strsignal(WTERMSIG(end)));
    else if (WEXITSTATUS(end) != 0)
        rg_warn("session %llu ended after %.1f s: its worker failed with status %d", id, seconds,
                WEXITSTATUS(end));
    else
        rg_info("session %llu ended after %.1f s", id, seconds);
}

void rg_sessions_reap(struct rg_sessions *sessions)
{
    /* By process id, never by -1: the probe, the manager and the frontend are others' to reap. */
    for (uint32_t i = 0; i < sessions->n;) {
        struct rg_session_entry *entry = sessions->entries[i];
        int end = 0;
        pid_t got = waitpid(entry->pid, &end, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR)) {
            i++;
            continue;
        }
        say_end(entry, end);
        close_account(sessions, entry, end);
        rg_gauges_end(sessions, entry, end);
        sessions->entries[i] = sessions->entries[--sessions->n];
        show(sessions, i);
        if (entry->hand >= 0)
            close(entry->hand);
        char identity[2 * RG_CONTROL_TEXT];
        rg_who_key(&entry->who, entry->info.peer, identity, sizeof identity);
        rg_warm_ended(sessions, identity);
        rg_sandbox_release(entry->lease);
        rg_shares_release(&sessions->shares, &entry->share, entry->info.id);
        free(entry);
    }
}

void rg_sessions_looked(struct rg_sessions *sessions, const struct rg_driver *driver)
{
    for (uint32_t i = 0; i < sessions->shares.n_devices && i < driver->n_devices; i++) {
        sessions->looked[i].free = driver->devices[i].memory_free;
        sessions->looked[i].held = rg_share_held_by_all(&sessions->shares.devices[i].device);
    }
}

/*
 * What is free of a device now: what was when it was looked at, and what sessions have taken and given back since. Of the software
 * device, of which each process has its own, only sessions tell what is used: the look has seen what the machine has left.
 */
static uint64_t free_now(const struct rg_sessions *sessions, uint32_t i, uint64_t total, bool soft)
{
    const uint64_t held = rg_share_held_by_all(&sessions->shares.devices[i].device);
    const uint64_t left = held < total ? total - held : 0, before = sessions->looked[i].held;
    uint64_t free = sessions->looked[i].free;
    if (soft)
        return left < free ? left : free;
    if (held > before)
        free = held - before < free ? free - (held - before) : 0;
    else
        free += before - held;
    return free < left ? free : left;
}

static void show_device(struct rg_sessions *sessions, uint32_t i)
{
    struct rg_driver *driver = &sessions->board->driver;
    struct rg_device_info *device = &driver->devices[i];
    device->memory_guaranteed = rg_shares_promised(&sessions->shares, i);
    device->warm_workers = rg_warm_of_device(sessions, i, &device->memory_warm);
    if (device->memory_free_known)
        device->memory_free =
            free_now(sessions, i, device->memory_total, strcmp(driver->info.kind, "soft") == 0);
}

void rg_sessions_show_usage(struct rg_sessions *sessions)
{
    rg_board_begin(sessions->board);
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (!entry->share.slot)
            continue;
        rg_share_slot_show(entry->share.slot, &entry->share.grant, &entry->info);
        sessions->board->sessions[i] = entry->info;
    }
    for (uint32_t i = 0; i < sessions->shares.n_devices; i++)
        show_device(sessions, i);
    rg_board_end(sessions->board);
}

void rg_sessions_signal(struct rg_sessions *sessions, int signal)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        kill(sessions->entries[i]->pid, signal);
}

/* Its worker tells the client why; one that has not yet begun, or takes its time, is killed. */
static void end_session(struct rg_session_entry *entry, enum rg_session_end_reason reason)
{
    const union sigval value = {.sival_int = (int)reason};
    if (entry->kill_ns)
        return;
    (void)sigqueue(entry->pid, SIGTERM, value);
    entry->kill_ns = rg_now_ns() + RG_SESSION_END_NS;
}

static void audit_end(const struct rg_session_entry *entry, enum rg_audit_event event, const char *why)
{
    rg_audit(&(struct rg_audit){.event = event,
                                .user = entry->who.name,
                                .serial = entry->who.serial,
                                .serial_size = entry->who.serial_size,
                                .from = entry->info.peer,
                                .session = entry->info.id,
                                .encrypted = entry->who.encrypted,
                                .why = why});
}

void rg_sessions_recheck(struct rg_sessions *sessions, const struct rg_who_policy *policy)
{
    char why[512] = "";
    rg_warm_recheck(sessions, policy);
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (entry->kill_ns || rg_who_may_stay(policy, &entry->who, why, sizeof why))
            continue;
        audit_end(entry, RG_AUDIT_REVOKE, why);
        end_session(entry, RG_END_REVOKED);
    }
}

uint32_t rg_sessions_of_lease(const struct rg_sessions *sessions, uint64_t lease)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sessions->n; i++)
        n += sessions->entries[i]->pool_lease == lease;
    return n;
}

void rg_sessions_end_lease(struct rg_sessions *sessions, uint64_t lease)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->pool_lease == lease)
            end_session(sessions->entries[i], RG_END_LEASE);
}

bool rg_sessions_end(struct rg_sessions *sessions, uint64_t id)
{
    struct rg_session_entry *entry = find(sessions, id);
    if (!entry)
        return false;
    end_session(entry, RG_END_WANTED);
    return true;
}

/* When to look at a certificate's end again. It is a time of day, and the machine's clock may be set: so now and then. */
static uint64_t look_at_ns(const struct rg_who *who)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    /* and all of the last second; the frontend may say any number */
    const int64_t left_s = who->not_after - now.tv_sec;
    const uint64_t left_ns = left_s < RG_SESSION_LOOK_S
                                 ? (uint64_t)(left_s + 1) * 1000000000u - (uint64_t)now.tv_nsec
                                 : RG_SESSION_LOOK_S * 1000000000ull;
    return rg_now_ns() + left_ns;
}

/* A program whose GPU hours are used up is told once; its session ends where the rules want that, after the time that they give. */
static void see_to_quota(const struct rg_sessions *sessions, struct rg_session_entry *entry,
                         const struct rg_quota_exhausted *exhausted)
{
    char why[RG_CONTROL_REASON] = "";
    const uint64_t now = rg_now_ns();
    if (!rg_quotas_are_exhausted(sessions, &entry->owner, why, sizeof why)) {
        entry->used_up_ns = 0;
        return;
    }
    if (entry->used_up_ns == 0) {
        const uint64_t seconds = exhausted->grace_ns / 1000000000u + 1;
        const union sigval value = {.sival_int = !exhausted->end     ? 0
                                                 : seconds < INT_MAX ? (int)seconds
                                                                     : INT_MAX};
        entry->used_up_ns = now;
        rg_info("session %llu: %s", (unsigned long long)entry->info.id, why);
        (void)sigqueue(entry->pid, RG_SESSION_USED_UP_SIGNAL, value);
    }
    if (exhausted->end && now - entry->used_up_ns >= exhausted->grace_ns) {
        audit_end(entry, RG_AUDIT_QUOTA, why);
        end_session(entry, RG_END_USED_UP);
    }
}

void rg_sessions_measure(struct rg_sessions *sessions)
{
    const uint64_t now = rg_now_ns(), wall = rg_accountant_wall_ns();
    const struct rg_quota_exhausted exhausted = rg_quotas_exhausted(sessions);
    if (!sessions->accounts)
        return;
    rg_accounts_tick(sessions->accounts, wall);
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        struct rg_figures_sample sample;
        rg_accounting_sample(&sessions->shares, &entry->share, &sample);
        rg_account_sample(entry->account, &sample, now, wall);
    }
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->account && !sessions->entries[i]->kill_ns)
            see_to_quota(sessions, sessions->entries[i], &exhausted);
}

uint64_t rg_sessions_expire(struct rg_sessions *sessions)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (!entry->kill_ns && rg_who_has_expired(&entry->who)) {
            audit_end(entry, RG_AUDIT_EXPIRE, "its certificate has expired, and no renewed one was shown");
            end_session(entry, RG_END_EXPIRED);
        }
        if (entry->kill_ns == 0 && entry->who.proof == RG_PROOF_CERTIFICATE) {
            const uint64_t look = look_at_ns(&entry->who);
            next = look < next ? look : next;
        }
        if (entry->kill_ns == 0 || entry->kill_ns == UINT64_MAX)
            continue;
        if (rg_now_ns() >= entry->kill_ns) {
            kill(entry->pid, SIGKILL);
            entry->kill_ns = UINT64_MAX;
        } else if (entry->kill_ns < next) {
            next = entry->kill_ns;
        }
    }
    return next;
}
