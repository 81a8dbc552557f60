/*
 * schedule.c - one decision: goes through the queue once, grants what fits, reserves for what does not.
 *
 * Failures: the snapshot contradicts itself, or there is no memory; then nothing was decided.
 */
#include "pool/schedule/class.h"
#include "pool/schedule/order.h"
#include "pool/schedule/outcome.h"
#include "pool/schedule/place.h"
#include "pool/schedule/preempt.h"

#include <string.h>

struct pass {
    struct rg_pool_plan *plan;
    struct rg_pool_outcome *outcome;
    uint32_t n_reservations;
};

static enum rg_status grant(struct pass *pass, uint32_t r, const struct rg_pool_place *place)
{
    struct rg_pool_plan *plan = pass->plan;
    const struct rg_pool_request *request = &plan->snapshot->requests[r];
    const uint64_t until = rg_pool_until(plan, request->time_limit);
    struct rg_pool_grant made = {
        .request = r, .first = pass->outcome->n_parts, .n = request->n, .closeness = place->closeness};
    uint32_t server = RG_POOL_NONE;
    for (uint32_t done = 0; done < place->n_servers; done++) {
        /* By the servers' indices, so that devices are, too. */
        uint32_t next = RG_POOL_NONE;
        for (uint32_t i = 0; i < place->n_servers; i++)
            if ((server == RG_POOL_NONE || place->servers[i] > server) &&
                (next == RG_POOL_NONE || place->servers[i] < place->servers[next]))
                next = i;
        server = place->servers[next];
        for (uint64_t left = place->devices[next]; left; left &= left - 1) {
            const uint32_t d = plan->servers[server].first + (uint32_t)__builtin_ctzll(left);
            const uint64_t need = rg_pool_need(request, &plan->snapshot->devices[d]);
            rg_pool_take(plan, d, need, until);
            RG_TRY(rg_pool_outcome_part(pass->outcome, &(struct rg_pool_part){d, need}));
        }
    }
    return rg_pool_outcome_grant(pass->outcome, &made);
}

/* Leases that would have to go, if that is allowed and helps; then they count as going, and the request as waiting for it. */
static enum rg_status propose(struct pass *pass, uint32_t r, const struct rg_pool_class *class,
                              struct rg_pool_reservation *reservation, struct rg_pool_waiting *waiting)
{
    struct rg_pool_plan *plan = pass->plan;
    struct rg_pool_reservation cleared;
    uint32_t n, *leases = rg_pool_arena_take(&plan->arena, plan->snapshot->n_leases, sizeof *leases);
    if (!leases)
        return RG_ERR_NO_MEMORY;
    RG_TRY(rg_pool_find_victims(plan, class, &plan->snapshot->requests[r], leases, &n, &cleared));
    if (!n)
        return RG_OK;
    for (uint32_t i = 0; i < n; i++)
        plan->suspending[leases[i]] = true;
    *reservation = cleared;
    waiting->reason = RG_POOL_WAITS_FOR_SUSPENSION;
    return rg_pool_outcome_propose(pass->outcome, r, leases, n);
}

/* Keeps devices for a request that does not fit, while there are reservations left. */
static enum rg_status reserve(struct pass *pass, uint32_t r, const struct rg_pool_class *class,
                              struct rg_pool_waiting *waiting)
{
    struct rg_pool_plan *plan = pass->plan;
    const struct rg_pool_request *request = &plan->snapshot->requests[r];
    if (pass->n_reservations >= plan->policy->reservations)
        return RG_OK;
    struct rg_pool_reservation reservation;
    bool found;
    RG_TRY(rg_pool_find_reservation(plan, class, &reservation, &found));
    if (found && !reservation.waits && reservation.start == plan->now + 1)
        waiting->reason = RG_POOL_WAITS_FOR_SUSPENSION; /* of leases that somebody is suspending already */
    else if (plan->policy->preempt && !request->spares && !request->returns)
        RG_TRY(propose(pass, r, class, &reservation, waiting));
    if (!found && !waiting->reason)
        return RG_OK;
    rg_pool_keep_reservation(plan, class, r, &reservation);
    pass->n_reservations++;
    waiting->start = reservation.start;
    waiting->server = plan->snapshot->devices[reservation.devices[0]].server;
    return RG_OK;
}

/* One request, in its turn. */
static enum rg_status decide(struct pass *pass, uint32_t r)
{
    struct rg_pool_plan *plan = pass->plan;
    const struct rg_pool_request *request = &plan->snapshot->requests[r];
    struct rg_pool_class *class = &plan->classes[plan->class_of[r]];
    struct rg_pool_waiting waiting = {.request = r,
                                      .position = pass->outcome->n_waiting + 1,
                                      .start = RG_POOL_UNKNOWN,
                                      .server = RG_POOL_NONE,
                                      .behind = RG_POOL_NONE};
    RG_TRY(rg_pool_class_match(plan, class));
    if (class->most >= request->n) {
        struct rg_pool_place place;
        const bool hopeless = class->failed && request->time_limit >= class->failed_limit;
        if (!hopeless && rg_pool_place(plan, class, request->time_limit, &place))
            return grant(pass, r, &place);
        class->failed_limit = hopeless ? class->failed_limit : request->time_limit;
        class->failed = true;
        RG_TRY(reserve(pass, r, class, &waiting));
    }
    return rg_pool_outcome_waiting(pass->outcome, &waiting);
}

/* The first request for which something that this class could have is reserved on a server. */
static uint32_t in_the_way(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                           uint32_t server)
{
    uint64_t left = rg_pool_fitting(plan, class, server, RG_POOL_ALL_FREE, 0);
    for (; left; left &= left - 1) {
        const struct rg_pool_device_plan *at =
            &plan->devices[plan->servers[server].first + (uint32_t)__builtin_ctzll(left)];
        if (at->reserved)
            return at->reserved_by;
    }
    return RG_POOL_NONE;
}

static void look_at_class(struct rg_pool_plan *plan, struct rg_pool_class *class)
{
    if (class->most < class->request->n) {
        rg_pool_class_impossible(plan, class);
        return;
    }
    class->looked = true;
    class->behind = RG_POOL_NONE;
    class->have = rg_pool_most_fitting(plan, class, RG_POOL_ALL_FREE, 0, &class->server);
    class->reason = class->have >= class->request->n ? RG_POOL_WAITS_FOR_TURN : RG_POOL_WAITS_FOR_GPUS;
    if (class->reason == RG_POOL_WAITS_FOR_TURN)
        class->behind = in_the_way(plan, class, class->server);
}

/* What all those wait for that have not been granted anything, now that all grants are known. */
static void give_reasons(struct pass *pass)
{
    for (uint32_t i = 0; i < pass->outcome->n_waiting; i++) {
        struct rg_pool_waiting *waiting = &pass->outcome->waiting[i];
        struct rg_pool_class *class = &pass->plan->classes[pass->plan->class_of[waiting->request]];
        if (!class->looked)
            look_at_class(pass->plan, class);
        if (!waiting->reason)
            waiting->reason = class->reason;
        if (waiting->server == RG_POOL_NONE)
            waiting->server = class->server;
        if (class->behind != waiting->request && waiting->reason == RG_POOL_WAITS_FOR_TURN)
            waiting->behind = class->behind;
        waiting->have = class->have;
        waiting->filter = class->filter;
        waiting->left = class->left;
        waiting->most = class->most_memory;
    }
}

static enum rg_status decide_all(struct pass *pass, char *why, size_t why_size,
                                 const struct rg_pool_snapshot *snapshot, const struct rg_pool_policy *policy,
                                 uint64_t now)
{
    struct rg_pool_plan *plan = pass->plan;
    RG_TRY(rg_pool_plan_init(plan, snapshot, policy, now, why, why_size));
    RG_TRY(rg_pool_classes_init(plan));
    uint32_t *order = rg_pool_arena_take(&plan->arena, snapshot->n_requests, sizeof *order);
    if (!order)
        return RG_ERR_NO_MEMORY;
    RG_TRY(rg_pool_order(plan, order));
    for (uint32_t i = 0; i < snapshot->n_requests; i++)
        RG_TRY(decide(pass, order[i]));
    give_reasons(pass);
    return RG_OK;
}

enum rg_status rg_pool_schedule(const struct rg_pool_snapshot *snapshot, const struct rg_pool_policy *policy,
                                uint64_t now, struct rg_pool_outcome *outcome, char *why, size_t why_size)
{
    struct rg_pool_plan plan = {0};
    struct pass pass = {.plan = &plan, .outcome = outcome};
    memset(outcome, 0, sizeof *outcome);
    const enum rg_status status = decide_all(&pass, why, why_size, snapshot, policy, now);
    rg_pool_plan_fini(&plan);
    if (status != RG_OK)
        rg_pool_outcome_clear(outcome);
    if (status == RG_ERR_NO_MEMORY)
        rg_explain(why, why_size, "there is no memory to decide about %u requests", snapshot->n_requests);
    return status;
}

enum rg_status rg_pool_admissible(const struct rg_pool_snapshot *snapshot,
                                  const struct rg_pool_policy *policy, const struct rg_pool_request *request,
                                  char *why, size_t why_size)
{
    struct rg_pool_snapshot alone = *snapshot;
    alone.requests = request;
    alone.n_requests = 1;
    alone.n_leases = 0;
    struct rg_pool_outcome outcome;
    RG_TRY(rg_pool_schedule(&alone, policy, request->submitted, &outcome, why, why_size));
    const bool final = outcome.n_waiting && rg_pool_reason_is_final(outcome.waiting[0].reason);
    if (final)
        rg_pool_explain(&alone, &outcome, 0, request->submitted, why, why_size);
    rg_pool_outcome_clear(&outcome);
    return final ? RG_ERR_UNSUPPORTED : RG_OK;
}
