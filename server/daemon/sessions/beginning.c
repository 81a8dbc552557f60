/*
 * beginning.c - how a session begins. See sessions.h.
 *
 * Happy path: there is room for one more, devices are chosen, its share of them is granted, quotas allow it, its worker starts, and its
 * account begins. Each of these refuses with a sentence, and what was granted before is taken back. Where only memory is missing, warm
 * workers go, or sessions of lower priority give theirs: then the caller comes again. So it does where sessions are over whose workers
 * have not ended yet, by which a program that follows another at once would find taken what that had. Main thread.
 */
#include "server/daemon/sessions/sessions.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/daemon/grant/accounting.h"
#include "server/daemon/grant/placement.h"
#include "server/daemon/grant/quotas.h"
#include "server/daemon/grant/refusal.h"
#include "server/daemon/process/accountant_process.h"
#include "server/daemon/sessions/list.h"
#include "server/daemon/shared/audit.h"
#include "server/daemon/workers/worker_process.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

enum rg_status rg_sessions_admit_netperf(const struct rg_sessions *sessions, const struct rg_who *who,
                                         const char *address, struct rg_monitor_answer *answer)
{
    const uint32_t most = (sessions->max + RG_NETPERF_PART - 1) / RG_NETPERF_PART;
    char key[2 * RG_CONTROL_TEXT], other[sizeof key];
    uint32_t n = 0, own = 0;
    if (!sessions->netperf[0])
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_UNSUPPORTED,
            "this server does not answer measurements (--no-netperf, or its installation is incomplete)");
    rg_who_key(who, address, key, sizeof key);
    for (uint32_t i = 0; i < sessions->n; i++) {
        const struct rg_session_entry *entry = sessions->entries[i];
        if (entry->info.n_devices)
            continue;
        rg_who_key(&entry->who, entry->info.peer, other, sizeof other);
        own += strcmp(key, other) == 0;
        n++;
    }
    if (own < RG_NETPERF_OF_ONE_MAX && n < most)
        return RG_OK;
    return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_FULL,
                      "the server answers %u measurements at this moment, %u of them yours, and no more at "
                      "once: try again when one has ended",
                      n, own);
}

static enum rg_status admit(const struct rg_sessions *sessions, const struct rg_driver *driver,
                            const struct rg_monitor_question *question, const struct rg_who *who,
                            struct rg_session_info *info, struct rg_monitor_answer *answer)
{
    const struct rg_monitor_start *wanted = &question->start;
    if (sessions->n >= sessions->max)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_FULL,
            "the server runs %u sessions and takes no more at once; try again later, or raise its "
            "--max-sessions",
            sessions->n);
    RG_TRY(check_share(sessions, who, answer));
    if (wanted->purpose == RG_PURPOSE_NETPERF)
        return rg_sessions_admit_netperf(sessions, who, question->peer.address, answer);
    return rg_placement(sessions, driver, wanted, who, info, answer);
}

/* Whether its worker says that it gives back what it was given: one that was taken over may say so for ever. */
static bool leaves(struct rg_session_entry *entry, uint64_t now)
{
    if (!entry->share.slot || !atomic_load(&entry->share.slot->usage.leaves))
        return false;
    if (!entry->leaves_ns)
        entry->leaves_ns = now;
    return now - entry->leaves_ns < RG_SESSION_LEAVES_NS;
}

bool rg_sessions_any_leaves(const struct rg_sessions *sessions, const struct rg_session_info *info)
{
    const uint64_t now = rg_now_ns();
    for (uint32_t i = 0; i < sessions->n; i++)
        if ((!info || rg_sessions_meet(&sessions->entries[i]->info, info)) &&
            leaves(sessions->entries[i], now))
            return true;
    return false;
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

/* The log and the audit log say that it begins. */
static void tell_start(const struct rg_session_entry *entry)
{
    const struct rg_session_info *info = &entry->info;
    const struct rg_who *who = &entry->who;
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
}

static enum rg_status start(struct rg_sessions *sessions, const struct rg_driver *driver,
                            const struct rg_monitor_question *question, const struct rg_who *who,
                            const struct rg_session_files *files, struct rg_monitor_answer *answer)
{
    const struct rg_monitor_start *wanted = &question->start;
    RG_CLEANUP_FREE struct rg_session_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return rg_refusal(answer, RG_ERR_NO_MEMORY, RG_REFUSAL_INTERNAL,
                          "the server is out of memory; try again later");
    struct rg_session_info *info = &entry->info;
    RG_TRY(admit(sessions, driver, question, who, info, answer));
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
    if (status == RG_ERR_REFUSED && answer->code == RG_REFUSAL_FULL &&
        !rg_sessions_any_leaves(sessions, info))
        return rg_warm_make_room(sessions, info) ? RG_ERR_TIMEOUT : make_room(sessions, entry, answer);
    RG_TRY(status);
    RG_TRY(check_quotas(sessions, entry, answer));
    sessions->next_id++;
    status = rg_worker_process_start(sessions, driver, entry, wanted, files, why, sizeof why);
    if (status != RG_OK) {
        rg_shares_release(&sessions->shares, &entry->share, info->id);
        rg_error("session %llu: no worker: %s", (unsigned long long)info->id, why);
        return rg_refusal(answer, status, RG_REFUSAL_INTERNAL,
                          "the server could not start a worker (%s); its log says more", why);
    }
    tell_start(entry);
    if (sessions->accounts && info->n_devices)
        begin_account(sessions, driver, entry);
    sessions->gauges.granted++;
    sessions->entries[sessions->n++] = RG_TAKE_PTR(entry);
    rg_sessions_show(sessions, sessions->n - 1);
    return RG_OK;
}

enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                 const struct rg_monitor_question *question, const struct rg_who *who,
                                 const struct rg_session_files *files, struct rg_monitor_answer *answer)
{
    const enum rg_status status = start(sessions, driver, question, who, files, answer);
    const bool lacks = answer->code == RG_REFUSAL_FULL || answer->code == RG_REFUSAL_NO_SUCH_GPU ||
                       answer->code == RG_REFUSAL_QUOTA;
    return status == RG_ERR_REFUSED && lacks && rg_sessions_any_leaves(sessions, NULL) ? RG_ERR_TIMEOUT
                                                                                       : status;
}
