/*
 * pool_leases.c - what is known of leases, and which sessions may begin by them; see pool_process.h.
 *
 * A session begins by a lease that the agent has told of, that is its client's, and as long as this server's place in the pool lasts, with
 * the lease's GPUs and memory and no more. Otherwise it is refused with a sentence; of a lease that is not known here the agent is asked
 * first. A lease that is over is forgotten when its last session has ended. Main thread.
 */
#include "server/daemon/pool/pool_process.h"

#include "common/base/clock.h"
#include "common/base/printable.h"
#include "server/daemon/grant/refusal.h"
#include "server/daemon/pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

#define SUSPENDING_NS 20000000000ull /* sessions that begin, or come back, at that moment are waited for */

struct rg_pool_known *rg_pool_find(const struct rg_pool_process *pool, uint64_t lease)
{
    for (uint32_t i = 0; i < pool->n_leases; i++)
        if (pool->leases[i].lease.lease == lease)
            return &pool->leases[i];
    return NULL;
}

void rg_pool_take_lease(struct rg_pool_process *pool, const struct rg_agent_lease *lease)
{
    struct rg_pool_known *known = rg_pool_find(pool, lease->lease);
    if (!known) {
        struct rg_pool_known *grown = pool->n_leases < RG_POOL_SHARES_MAX * RG_DEVICES_MAX
                                          ? realloc(pool->leases, (pool->n_leases + 1) * sizeof *grown)
                                          : NULL;
        if (!grown)
            return;
        pool->leases = grown;
        known = &grown[pool->n_leases++];
        *known = (struct rg_pool_known){0};
    }
    if (lease->preempted && lease->preempted != known->lease.preempted)
        known->preempted_ns = rg_now_ns();
    known->lease = *lease;
    known->lease.key[sizeof known->lease.key - 1] = 0;
    known->lease.name[sizeof known->lease.name - 1] = 0;
    known->lease.job[sizeof known->lease.job - 1] = 0;
    rg_printable_clean(known->lease.job);
    known->gone = false;
}

/* In the agent's words. */
static enum rg_agent_suspension words_of(enum rg_suspend_result result)
{
    switch (result) {
    case RG_SUSPEND_DONE:
        return RG_AGENT_SUSPENDED;
    case RG_SUSPEND_BUSY:
        return RG_AGENT_BUSY;
    case RG_SUSPEND_SHARED:
        return RG_AGENT_SHARED;
    case RG_SUSPEND_IMPOSSIBLE:
    case RG_SUSPEND_REFUSED:
    case RG_SUSPEND_PREEMPTED:
        return RG_AGENT_DRIVER;
    }
    return RG_AGENT_PENDING;
}

/* Goes on with suspending a lease's sessions. What has come of it. */
static enum rg_agent_suspension suspend(const struct rg_pool_known *known, struct rg_sessions *sessions)
{
    const enum rg_agent_suspension now =
        words_of(rg_preemption_of_lease(sessions, known->lease.lease, known->lease.preempted));
    const bool late = known->lease.preempted && rg_now_ns() - known->preempted_ns > SUSPENDING_NS;
    /* once it has been answered it stays so until another number comes */
    if (known->suspension != RG_AGENT_PENDING && known->preempted == known->lease.preempted)
        return known->suspension;
    return now == RG_AGENT_PENDING && late ? RG_AGENT_BUSY : now;
}

void rg_pool_count(struct rg_pool_process *pool, struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < pool->n_leases;) {
        struct rg_pool_known *known = &pool->leases[i];
        const uint32_t n = rg_sessions_of_lease(sessions, known->lease.lease);
        const enum rg_agent_suspension suspension = suspend(known, sessions);
        if (n != known->sessions || suspension != known->suspension ||
            known->preempted != known->lease.preempted) {
            if (n > 0 && suspension != known->suspension)
                rg_sessions_show_usage(sessions); /* first: who gets its GPUs may look */
            known->sessions = n;
            known->suspension = suspension;
            known->preempted = known->lease.preempted;
            rg_pool_say_sessions(pool, known);
        }
        if (known->gone && n == 0)
            *known = pool->leases[--pool->n_leases];
        else
            i++;
    }
}

enum rg_status rg_pool_check(struct rg_pool_process *pool, uint64_t lease, uint64_t question, char *why,
                             size_t why_size)
{
    const struct rg_pool_known *known = rg_pool_find(pool, lease);
    struct rg_agent_word word = {.kind = RG_AGENT_CHECK};
    if (known && !known->gone)
        return RG_OK;
    for (uint32_t i = 0; i < RG_POOL_CHECKS; i++) {
        if (pool->checks[i].question)
            continue;
        word.check.lease = lease;
        word.check.number = ++pool->next_number;
        if (!rg_pool_say(pool, &word))
            break;
        pool->checks[i].question = question;
        pool->checks[i].number = word.check.number;
        return RG_ERR_TIMEOUT;
    }
    return RG_FAILED(
        RG_ERR_REFUSED, why, why_size,
        "the server's place in the pool is being taken anew, or too many sessions begin; try again");
}

const char *rg_pool_job(const struct rg_pool_process *pool, uint64_t lease)
{
    for (uint32_t i = 0; i < pool->n_leases; i++)
        if (pool->leases[i].lease.lease == lease)
            return pool->leases[i].lease.job;
    return "";
}

bool rg_pool_is_proved(const struct rg_pool_process *pool, uint64_t lease)
{
    const struct rg_pool_known *known = rg_pool_find(pool, lease);
    return known && known->lease.name[0] && !known->lease.bearer;
}

bool rg_pool_names_operator(const struct rg_pool_process *pool, const char *name)
{
    for (size_t i = 0; pool->operators && i < pool->operators->n; i++)
        if (strcmp(pool->operators->items[i], name) == 0)
            return true;
    return false;
}

void rg_pool_forget(struct rg_pool_process *pool)
{
    memset(pool->checks, 0, sizeof pool->checks);
}

/* The session's GPUs: those of the lease, or those of them that the client names. False: it names others. */
static bool choose(uint64_t gpus, struct rg_monitor_start *start)
{
    for (uint32_t i = 0; i < start->n_gpu_indices; i++)
        if (start->gpu_indices[i] >= RG_DEVICES_MAX || !(gpus >> start->gpu_indices[i] & 1))
            return false;
    const bool named = start->n_gpu_indices > 0;
    for (uint32_t i = 0; i < RG_DEVICES_MAX && !named && (!start->gpus || start->n_gpu_indices < start->gpus);
         i++)
        if (gpus >> i & 1)
            start->gpu_indices[start->n_gpu_indices++] = i;
    start->gpus = 0;
    return start->n_gpu_indices > 0;
}

enum rg_status rg_pool_admit(const struct rg_pool_process *pool, const struct rg_who *who, const char *key,
                             uint64_t beside, struct rg_monitor_start *start,
                             struct rg_monitor_answer *answer)
{
    if (beside && !rg_pool_find(pool, start->pool_lease))
        start->pool_lease = beside;
    const struct rg_pool_known *known = rg_pool_find(pool, start->pool_lease);
    if (!start->pool_lease)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_LIMIT,
            "this server's GPUs are given out by the pool %s: run the program by remote-gpu run, "
            "or get a lease by remote-gpu request",
            pool->settings.pool);
    if (rg_now_ns() + RG_POOL_SPARE_NS >= pool->valid_until_ns)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_SHUTTING_DOWN,
            "this server cannot begin sessions while it is cut off from its pool (%s); sessions "
            "that run go on",
            pool->why[0] ? pool->why : "its agent has ended");
    if (!known || known->gone)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                          "the lease has no GPU of this server (any more, if it was started anew), has been "
                          "given back, or its time is over; ask "
                          "for GPUs anew");
    /* whoever has proved nothing shows that it is theirs by knowing it, unless it is of somebody who can prove it */
    const bool by_knowing = who->proof == RG_PROOF_NONE && (!known->lease.name[0] || known->lease.bearer);
    if (!by_knowing && strcmp(known->lease.key, key) != 0)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED, "the lease is %s's, and you are %s here",
            known->lease.name[0] ? known->lease.name : "an unauthenticated client", rg_who_text(who));
    if (known->lease.preempted)
        return rg_refusal(
            answer, RG_ERR_REFUSED, RG_REFUSAL_SUSPENDED,
            "the lease is suspended for a request of higher priority; sessions by it begin when "
            "it has its GPUs again");
    if (!choose(known->lease.gpus, start))
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_GPU,
                          "the lease does not have the GPUs of this server that were asked for");
    if (known->lease.memory) {
        struct rg_share_wish *share = &start->share;
        share->memory_millionths = 0;
        if (!share->memory_bytes || share->memory_bytes > known->lease.memory)
            share->memory_bytes = known->lease.memory;
    }
    return RG_OK;
}
