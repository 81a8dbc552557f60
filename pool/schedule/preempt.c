/*
 * preempt.c - proposes what to suspend. Only on one server at a time: a request that may lie on several gets no proposal
 * that needs more than one, since every suspension costs somebody else's time.
 *
 * A device costs what has to go until there is enough of it. Devices are chosen one after the other, the cheapest first, and
 * a lease that was chosen for one costs nothing at the others it holds.
 */
#include "pool/schedule/preempt.h"

#include <string.h>

struct cost {
    int32_t priority; /* the highest of those that go */
    uint32_t gpus;    /* that are taken from them */
    uint64_t started; /* of the oldest */
};

static bool cheaper(const struct cost *a, const struct cost *b)
{
    if (!a->gpus || !b->gpus)
        return a->gpus < b->gpus;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->gpus != b->gpus)
        return a->gpus < b->gpus;
    return a->started > b->started;
}

static void add(struct cost *cost, const struct rg_pool_lease *lease)
{
    if (!cost->gpus || lease->priority > cost->priority)
        cost->priority = lease->priority;
    if (!cost->gpus || lease->started < cost->started)
        cost->started = lease->started;
    cost->gpus += lease->n;
}

struct search {
    struct rg_pool_plan *plan;
    const struct rg_pool_class *class;
    const struct rg_pool_request *request;
    uint32_t *victims; /* of the server that is looked at */
    uint32_t n_victims;
};

static bool is_victim(const struct search *search, uint32_t lease)
{
    for (uint32_t i = 0; i < search->n_victims; i++)
        if (search->victims[i] == lease)
            return true;
    return false;
}

static bool may_go(const struct search *search, uint32_t l)
{
    const struct rg_pool_plan *plan = search->plan;
    const struct rg_pool_lease *lease = &plan->snapshot->leases[l];
    return lease->suspendable && lease->priority < search->request->priority && plan->now >= lease->started &&
           plan->now - lease->started >= plan->policy->preempt_after && plan->now >= lease->spared_until;
}

/* The cheapest holder of a device that may go, and has not been chosen. */
static uint32_t cheapest_holder(const struct search *search, const uint32_t *also, uint32_t n_also,
                                uint32_t d)
{
    const struct rg_pool_plan *plan = search->plan;
    uint32_t best = RG_POOL_NONE;
    struct cost best_cost = {0};
    for (uint32_t i = 0; i < plan->devices[d].n_holders; i++) {
        const uint32_t lease = plan->holders[plan->devices[d].first_holder + i].lease;
        bool chosen = plan->suspending[lease] || is_victim(search, lease) || !may_go(search, lease);
        for (uint32_t a = 0; a < n_also && !chosen; a++)
            chosen = also[a] == lease;
        if (chosen)
            continue;
        struct cost cost = {0};
        add(&cost, &plan->snapshot->leases[lease]);
        if (best != RG_POOL_NONE && !cheaper(&cost, &best_cost))
            continue;
        best = lease;
        best_cost = cost;
    }
    return best;
}

/*
 * What of a device is or becomes free without further suspensions, beside what is reserved. What is granted in this
 * decision stays granted.
 */
static uint64_t becomes_free(const struct search *search, uint32_t d)
{
    const struct rg_pool_plan *plan = search->plan;
    uint64_t have = rg_pool_free(plan, d);
    for (uint32_t i = 0; i < plan->devices[d].n_holders; i++) {
        const struct rg_pool_holder *holder = &plan->holders[plan->devices[d].first_holder + i];
        if (plan->suspending[holder->lease] || is_victim(search, holder->lease))
            have += holder->memory;
    }
    const uint64_t reserved = plan->devices[d].reserved;
    return have > reserved ? have - reserved : 0;
}

static uint64_t held_by(const struct rg_pool_plan *plan, uint32_t d, uint32_t lease)
{
    uint64_t memory = 0;
    for (uint32_t i = 0; i < plan->devices[d].n_holders; i++)
        if (plan->holders[plan->devices[d].first_holder + i].lease == lease)
            memory += plan->holders[plan->devices[d].first_holder + i].memory;
    return memory;
}

#define HOLDERS_OF_DEVICE 64 /* leases that are suspended for one device, at most */

/* What has to go for a device, beyond what was chosen; false if that is not enough. */
static bool price(const struct search *search, uint32_t d, uint32_t also[HOLDERS_OF_DEVICE], uint32_t *n_also,
                  struct cost *cost)
{
    const struct rg_pool_plan *plan = search->plan;
    const uint64_t need = rg_pool_need(search->request, &plan->snapshot->devices[d]);
    uint64_t have = becomes_free(search, d);
    *n_also = 0;
    memset(cost, 0, sizeof *cost);
    while (have < need) {
        const uint32_t lease = cheapest_holder(search, also, *n_also, d);
        if (lease == RG_POOL_NONE || *n_also == HOLDERS_OF_DEVICE)
            return false;
        also[(*n_also)++] = lease;
        add(cost, &plan->snapshot->leases[lease]);
        have += held_by(plan, d, lease);
    }
    return true;
}

/* Chooses n devices of a server and what goes for them; false if there are not as many. */
static bool clear_server(struct search *search, uint32_t server, uint32_t *devices, struct cost *total)
{
    uint64_t left = search->class->matching[server];
    memset(total, 0, sizeof *total);
    search->n_victims = 0;
    for (uint32_t i = 0; i < search->request->n; i++) {
        uint32_t best = RG_POOL_NONE, best_also[HOLDERS_OF_DEVICE], n_best = 0;
        struct cost best_cost = {0};
        for (uint64_t at = left; at; at &= at - 1) {
            const uint32_t d = search->plan->servers[server].first + (uint32_t)__builtin_ctzll(at);
            uint32_t also[HOLDERS_OF_DEVICE], n_also;
            struct cost cost;
            if (!price(search, d, also, &n_also, &cost) ||
                (best != RG_POOL_NONE && !cheaper(&cost, &best_cost)))
                continue;
            best = d;
            best_cost = cost;
            n_best = n_also;
            memcpy(best_also, also, n_also * sizeof *also);
        }
        if (best == RG_POOL_NONE)
            return false;
        devices[i] = best;
        left &= ~(1ull << (best - search->plan->servers[server].first));
        for (uint32_t v = 0; v < n_best; v++) {
            search->victims[search->n_victims++] = best_also[v];
            add(total, &search->plan->snapshot->leases[best_also[v]]);
        }
    }
    return true;
}

enum rg_status rg_pool_find_victims(struct rg_pool_plan *plan, const struct rg_pool_class *class,
                                    const struct rg_pool_request *request, uint32_t *leases, uint32_t *n,
                                    struct rg_pool_reservation *reservation)
{
    *n = 0;
    if (request->n > RG_DEVICES_MAX)
        return RG_OK;
    struct search search = {.plan = plan, .class = class, .request = request};
    search.victims = rg_pool_arena_take(&plan->arena, plan->snapshot->n_leases, sizeof *search.victims);
    uint32_t *best = rg_pool_arena_take(&plan->arena, request->n, sizeof *best);
    if (!search.victims || !best)
        return RG_ERR_NO_MEMORY;
    struct cost best_cost = {0};
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++) {
        uint32_t devices[RG_DEVICES_MAX];
        struct cost cost;
        if ((uint32_t)__builtin_popcountll(class->matching[s]) < request->n ||
            !clear_server(&search, s, devices, &cost) || !search.n_victims ||
            (*n && !cheaper(&cost, &best_cost)))
            continue;
        best_cost = cost;
        *n = search.n_victims;
        memcpy(leases, search.victims, search.n_victims * sizeof *leases);
        memcpy(best, devices, request->n * sizeof *best);
    }
    *reservation = (struct rg_pool_reservation){.start = plan->now + 1, .n = request->n, .devices = best};
    return RG_OK;
}
