/*
 * place.c - chooses devices and servers.
 *
 * Of a server's devices that fit, those of one NVLink group come first, in it those below one PCIe switch, in it those of
 * one NUMA node: each step narrows the choice if enough are left. Packing takes the smallest group that is large enough
 * and the device with the least left, so that what is whole stays whole; spreading the opposite.
 *
 * Servers are compared by the closeness of what they offer, then by latency (in powers of two: a few microseconds more
 * are no reason to break up an empty server), then by how well the request fills them.
 */
#include "pool/schedule/place.h"

#include <string.h>

#define GROUP_LEVELS 3 /* of enum rg_pool_closeness: NVLink, PCIe, NUMA */

static int32_t group_of(const struct rg_pool_device *device, unsigned level)
{
    switch (level) {
    case RG_POOL_NVLINK:
        return device->nvlink_group;
    case RG_POOL_PCIE:
        return device->pcie_group;
    default:
        return device->numa_node;
    }
}

static enum rg_pool_strategy strategy_of(const struct rg_pool_plan *plan, const struct rg_pool_class *class)
{
    return class->request->strategy == RG_POOL_AS_POLICY ? plan->policy->strategy : class->request->strategy;
}

static bool is_whole(const struct rg_pool_request *request)
{
    return !request->memory && !request->fraction;
}

/* Whether, of two figures, the first is what the strategy prefers: little of what is left, or much. */
static bool preferred(enum rg_pool_strategy strategy, uint64_t a, uint64_t b)
{
    return strategy == RG_POOL_SPREAD ? a > b : a < b;
}

uint64_t rg_pool_fitting(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t server,
                         enum rg_pool_view view, uint64_t limit)
{
    const struct rg_pool_server_plan *at = &plan->servers[server];
    const struct rg_pool_request *request = class->request;
    const bool whole = is_whole(request);
    if (!whole && (!at->free_most || at->free_most < request->memory))
        return 0;
    /* Idle devices fit whole requests; only what is reserved has to be looked at one by one. */
    uint64_t look = class->matching[server] & (whole ? at->idle : UINT64_MAX);
    uint64_t fitting = whole ? look & ~at->reserved : 0;
    if (whole)
        look &= at->reserved;
    for (; look; look &= look - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(look);
        const uint32_t d = at->first + i;
        const uint64_t have = view != RG_POOL_ALLOWED ? rg_pool_free(plan, d)
                              : request->returns      ? rg_pool_free_for_return(plan, d)
                                                      : rg_pool_free_for(plan, d, limit);
        if (have >= rg_pool_need(request, &plan->snapshot->devices[d]))
            fitting |= 1ull << i;
    }
    return fitting;
}

/*
 * Leaves of `among` the devices of the best group of a level with at least n of them. Devices without a group are groups
 * of their own. 0: no group is large enough.
 */
static uint64_t narrow(const struct rg_pool_device *devices, uint64_t among, uint32_t n, unsigned level,
                       enum rg_pool_strategy strategy)
{
    uint64_t best = 0, seen = 0;
    unsigned best_size = 0;
    for (uint64_t left = among; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        if (seen & 1ull << i)
            continue;
        const int32_t group = group_of(&devices[i], level);
        uint64_t members = 1ull << i;
        for (uint64_t others = group < 0 ? 0 : left & (left - 1); others; others &= others - 1) {
            const unsigned j = (unsigned)__builtin_ctzll(others);
            if (group_of(&devices[j], level) == group)
                members |= 1ull << j;
        }
        seen |= members;
        const unsigned size = (unsigned)__builtin_popcountll(members);
        if (size >= n && (!best || preferred(strategy, size, best_size))) {
            best = members;
            best_size = size;
        }
    }
    return best;
}

/* Of `among` devices of a server the `n` that fit together best (n is not more than there are). */
static uint64_t choose(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t server,
                       uint64_t among, uint32_t n, enum rg_pool_closeness *closeness)
{
    const uint32_t first = plan->servers[server].first;
    const struct rg_pool_device *devices = &plan->snapshot->devices[first];
    const enum rg_pool_strategy strategy = strategy_of(plan, class);
    enum rg_pool_closeness close = n == 1 ? RG_POOL_NVLINK : RG_POOL_SERVER;
    /* A part of one device goes where it leaves least, whatever the group. */
    const unsigned levels = n == 1 && !is_whole(class->request) ? 0 : GROUP_LEVELS;
    for (unsigned level = 0; level < levels; level++) {
        const uint64_t group = narrow(devices, among, n, level, strategy);
        if (!group)
            continue;
        among = group;
        if (close == RG_POOL_SERVER)
            close = (enum rg_pool_closeness)level;
    }
    uint64_t chosen = 0;
    while (n--) {
        uint64_t best = 0, best_left = 0;
        for (uint64_t left = among; left; left &= left - 1) {
            const unsigned i = (unsigned)__builtin_ctzll(left);
            const uint64_t rest = rg_pool_free(plan, first + i) - rg_pool_need(class->request, &devices[i]);
            if (!best || preferred(strategy, rest, best_left)) {
                best = left & -left;
                best_left = rest;
            }
        }
        chosen |= best;
        among &= ~best;
    }
    *closeness = close;
    return chosen;
}

/* What a server is compared by; less is better. */
struct offer {
    enum rg_pool_closeness closeness;
    unsigned latency; /* logarithm; unknown last */
    uint64_t remains; /* by the strategy */
    uint64_t memory;  /* of the devices: the smaller ones first, whatever the strategy */
    uint64_t bandwidth;
};

static unsigned latency_class(const struct rg_pool_class *class, uint32_t server)
{
    const struct rg_pool_link *links = class->request->links;
    if (!links || links[server].latency == RG_POOL_UNKNOWN)
        return 65;
    return links[server].latency ? 64 - (unsigned)__builtin_clzll(links[server].latency) : 0;
}

static bool is_better(enum rg_pool_strategy strategy, const struct offer *a, const struct offer *b)
{
    if (a->closeness != b->closeness)
        return a->closeness < b->closeness;
    if (a->latency != b->latency)
        return a->latency < b->latency;
    if (a->memory != b->memory && strategy != RG_POOL_SPREAD)
        return a->memory < b->memory;
    if (a->remains != b->remains)
        return preferred(strategy, a->remains, b->remains);
    return a->bandwidth > b->bandwidth;
}

/*
 * What remains of a server after a request, in millionths of a GPU: of requests for a part of a device what remains of
 * the devices chosen, first of all, so that the one that is filled best is found wherever it is.
 */
static void describe(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t server,
                     uint64_t fitting, uint64_t chosen, struct offer *offer)
{
    const struct rg_pool_request *request = class->request;
    const uint32_t first = plan->servers[server].first;
    const bool whole = is_whole(request);
    offer->latency = latency_class(class, server);
    offer->bandwidth = request->links ? request->links[server].bandwidth : 0;
    offer->remains = whole ? (uint64_t)__builtin_popcountll(fitting & ~chosen) : 0;
    offer->memory = 0;
    for (uint64_t left = chosen; left; left &= left - 1) {
        const uint32_t d = first + (uint32_t)__builtin_ctzll(left);
        const struct rg_pool_device *device = &plan->snapshot->devices[d];
        if (whole)
            offer->memory += device->memory;
        else
            offer->remains += rg_pool_free(plan, d) - rg_pool_need(request, device);
    }
}

/* Whether a server could be better than the best so far, from what is known of it without choosing devices. */
static bool might_be_better(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                            uint32_t server, uint64_t fitting, enum rg_pool_strategy strategy,
                            const struct offer *best)
{
    const uint32_t n = class->request->n;
    if (!is_whole(class->request))
        return true;
    const struct offer bound = {
        .closeness = RG_POOL_NVLINK,
        .latency = latency_class(class, server),
        .remains = (uint64_t)__builtin_popcountll(fitting) - n,
        .memory = plan->servers[server].memory_least * n,
        .bandwidth = class->request->links ? class->request->links[server].bandwidth : 0,
    };
    return is_better(strategy, &bound, best);
}

static bool on_one_server(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint64_t limit,
                          struct rg_pool_place *place)
{
    const uint32_t n = class->request->n;
    const enum rg_pool_strategy strategy = strategy_of(plan, class);
    struct offer best = {0};
    bool found = false;
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++) {
        if ((uint32_t)__builtin_popcountll(class->matching[s]) < n)
            continue;
        const uint64_t fitting = rg_pool_fitting(plan, class, s, RG_POOL_ALLOWED, limit);
        if ((uint32_t)__builtin_popcountll(fitting) < n)
            continue;
        struct offer offer;
        if (found && !might_be_better(plan, class, s, fitting, strategy, &best))
            continue;
        const uint64_t chosen = choose(plan, class, s, fitting, n, &offer.closeness);
        describe(plan, class, s, fitting, chosen, &offer);
        if (found && !is_better(strategy, &offer, &best))
            continue;
        found = true;
        best = offer;
        *place = (struct rg_pool_place){
            .n_servers = 1, .servers = {s}, .devices = {chosen}, .closeness = offer.closeness};
    }
    return found;
}

/*
 * The server to take next for `n` more GPUs: the one that fits most exactly of those that have all, else the one that
 * has most. Among equals the one with the shortest latency.
 */
static uint32_t next_server(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                            uint64_t limit, uint32_t n, const struct rg_pool_place *place, uint64_t *fitting)
{
    uint32_t best = RG_POOL_NONE, best_n = 0;
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++) {
        bool used = false;
        for (uint32_t i = 0; i < place->n_servers; i++)
            used |= place->servers[i] == s;
        if (used || !class->matching[s])
            continue;
        const uint64_t there = rg_pool_fitting(plan, class, s, RG_POOL_ALLOWED, limit);
        const uint32_t have = (uint32_t)__builtin_popcountll(there);
        const bool better = best_n >= n ? have >= n && have < best_n : have > best_n;
        if (!have || !(better || (have == best_n && latency_class(class, s) < latency_class(class, best))))
            continue;
        best = s;
        best_n = have;
        *fitting = there;
    }
    return best;
}

static bool on_several_servers(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                               uint64_t limit, struct rg_pool_place *place)
{
    uint32_t n = class->request->n;
    memset(place, 0, sizeof *place);
    while (n && place->n_servers < RG_SERVERS_MAX && place->n_servers < plan->policy->servers_max) {
        uint64_t fitting = 0;
        const uint32_t server = next_server(plan, class, limit, n, place, &fitting);
        if (server == RG_POOL_NONE)
            return false;
        const uint32_t have = (uint32_t)__builtin_popcountll(fitting), take = have < n ? have : n;
        place->servers[place->n_servers] = server;
        place->devices[place->n_servers++] = choose(plan, class, server, fitting, take, &place->closeness);
        n -= take;
    }
    place->closeness = RG_POOL_SEVERAL_SERVERS;
    return !n;
}

bool rg_pool_place(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint64_t limit,
                   struct rg_pool_place *place)
{
    return on_one_server(plan, class, limit, place) ||
           (class->request->several_servers && on_several_servers(plan, class, limit, place));
}

uint32_t rg_pool_most_fitting(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                              enum rg_pool_view view, uint64_t limit, uint32_t *server)
{
    uint32_t servers_with[RG_DEVICES_MAX + 1] = {0}, best = 0;
    *server = RG_POOL_NONE;
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++) {
        if ((uint32_t)__builtin_popcountll(class->matching[s]) <=
            (class->request->several_servers ? 0 : best))
            continue;
        const uint32_t have = (uint32_t)__builtin_popcountll(rg_pool_fitting(plan, class, s, view, limit));
        servers_with[have]++;
        if (have > best) {
            best = have;
            *server = s;
        }
    }
    if (!class->request->several_servers)
        return best;
    uint32_t sum = 0, servers = plan->policy->servers_max;
    for (uint32_t n = best; n && servers; n--) {
        const uint32_t used = servers_with[n] < servers ? servers_with[n] : servers;
        sum += used * n;
        servers -= used;
    }
    return sum;
}
