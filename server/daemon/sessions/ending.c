/*
 * ending.c - how sessions end: workers that have ended are reaped, and those of sessions that may not go on are told why, and killed if
 * they take their time. What may end one: its certificate has expired or was revoked, its GPU hours are used up, its lease is over, or
 * somebody wants it. See sessions.h. Main thread.
 */
#include "server/daemon/sessions/sessions.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/daemon/grant/accounting.h"
#include "server/daemon/grant/quotas.h"
#include "server/daemon/process/accountant_process.h"
#include "server/daemon/sessions/gauges.h"
#include "server/daemon/sessions/list.h"
#include "server/daemon/shared/audit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
        rg_ended_remember(sessions, entry, end);
        close_account(sessions, entry, end);
        rg_gauges_end(sessions, entry, end);
        sessions->entries[i] = sessions->entries[--sessions->n];
        rg_sessions_show(sessions, i);
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

/* Its worker tells the client why; one that has not yet begun, or takes its time, is killed. */
static void end_session(struct rg_session_entry *entry, enum rg_session_end_reason reason)
{
    const union sigval value = {.sival_int = (int)reason};
    if (entry->kill_ns)
        return;
    (void)sigqueue(entry->pid, SIGTERM, value);
    entry->kill_ns = rg_now_ns() + RG_SESSION_END_NS;
    entry->end = reason;
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

void rg_sessions_end_lease(struct rg_sessions *sessions, uint64_t lease)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->pool_lease == lease)
            end_session(sessions->entries[i], RG_END_LEASE);
}

bool rg_sessions_end(struct rg_sessions *sessions, uint64_t id)
{
    struct rg_session_entry *entry = rg_sessions_find(sessions, id);
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

/* How many seconds its session has yet; 0: it may go on. A worker that has its share waits for signals: before, one would be lost. */
static void tell_used_up(struct rg_session_entry *entry, const struct rg_quota_exhausted *exhausted,
                         uint64_t now)
{
    const struct rg_share_slot *slot = entry->share.slot;
    const uint64_t passed = now - entry->used_up_ns;
    const uint64_t left = passed < exhausted->grace_ns ? exhausted->grace_ns - passed : 0;
    const uint64_t seconds = left / 1000000000u + 1;
    const union sigval value = {.sival_int = !exhausted->end     ? 0
                                             : seconds < INT_MAX ? (int)seconds
                                                                 : INT_MAX};
    if (slot && atomic_load(&slot->usage.state) != (uint32_t)RG_SHARE_UNKNOWN)
        entry->used_up_told = sigqueue(entry->pid, RG_SESSION_USED_UP_SIGNAL, value) == 0;
}

/* A program whose GPU hours are used up is told once; its session ends where the rules want that, after the time that they give. */
static void see_to_quota(const struct rg_sessions *sessions, struct rg_session_entry *entry,
                         const struct rg_quota_exhausted *exhausted)
{
    char why[RG_CONTROL_REASON] = "";
    const uint64_t now = rg_now_ns();
    if (!rg_quotas_are_exhausted(sessions, &entry->owner, why, sizeof why)) {
        entry->used_up_ns = 0;
        entry->used_up_told = false;
        return;
    }
    if (entry->used_up_ns == 0) {
        entry->used_up_ns = now;
        rg_info("session %llu: %s", (unsigned long long)entry->info.id, why);
    }
    if (!entry->used_up_told)
        tell_used_up(entry, exhausted, now);
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
