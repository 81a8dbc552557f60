/*
 * reserve.c - reservations.
 *
 * For every device that matches: which leases have to end until there is enough, and when the last of them does. A server
 * could have the request when its n-th device could. A lease of which nobody knows the end is worse than any known end,
 * so what counts first is how few of them are in the way. That number never grows for the request that is first: nothing
 * is started on devices that are reserved from an unknown time on. So it gets its turn even if nobody gives time limits.
 */
#include "pool/schedule/reserve.h"

#include <stdlib.h>
#include <string.h>

struct ready {
    uint64_t time; /* when it is free; of leases with known ends */
    uint32_t unknown;
    uint32_t device;
    bool waits; /* for something that is not being suspended */
};

static int compare(const struct ready *a, const struct ready *b)
{
    if (a->unknown != b->unknown)
        return a->unknown < b->unknown ? -1 : 1;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (a->device > b->device) - (a->device < b->device);
}

static int by_readiness(const void *a, const void *b)
{
    return compare(a, b);
}

/* Something in the way that ends then. */
static void wait_for(struct ready *ready, uint64_t end, bool suspending)
{
    if (end == RG_POOL_UNKNOWN)
        ready->unknown++;
    else if (end > ready->time)
        ready->time = end;
    ready->waits |= !suspending;
}

/* When a device could be the class's; false: never, beside what is reserved or not of leases. */
static bool when_ready(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t d,
                       struct ready *ready)
{
    const struct rg_pool_device *device = &plan->snapshot->devices[d];
    const struct rg_pool_device_plan *at = &plan->devices[d];
    const uint64_t need = rg_pool_need(class->request, device);
    const uint64_t outside = device->memory_outside;
    if (outside >= device->memory || device->memory - outside < at->reserved ||
        device->memory - outside - at->reserved < need)
        return false;
    *ready = (struct ready){.time = plan->now, .device = d};
    const uint64_t unreserved = rg_pool_free(plan, d);
    uint64_t have = unreserved > at->reserved ? unreserved - at->reserved : 0;
    uint64_t owed = at->reserved > unreserved ? at->reserved - unreserved : 0; /* to earlier reservations */
    bool grants_left = at->granted;
    for (uint32_t i = 0; have < need;) {
        const struct rg_pool_holder *holder = i < at->n_holders ? &plan->holders[at->first_holder + i] : NULL;
        const uint64_t end = holder ? rg_pool_holder_end(plan, holder) : RG_POOL_UNKNOWN;
        uint64_t memory;
        if (grants_left && (!holder || at->granted_until <= end)) {
            grants_left = false;
            memory = at->granted;
            wait_for(ready, at->granted_until, false);
        } else if (holder) {
            i++;
            memory = holder->memory;
            wait_for(ready, end, plan->suspending[holder->lease]);
        } else {
            return false; /* overcommitted */
        }
        const uint64_t paid = memory < owed ? memory : owed;
        owed -= paid;
        have += memory - paid;
    }
    return true;
}

/* Makes a reservation of the first n of `list`. */
static void make(const struct ready *list, uint32_t n, struct rg_pool_reservation *reservation)
{
    reservation->start = 0;
    reservation->unknown = 0;
    reservation->waits = false;
    reservation->n = n;
    for (uint32_t i = 0; i < n; i++) {
        reservation->devices[i] = list[i].device;
        reservation->unknown += list[i].unknown;
        reservation->waits |= list[i].waits;
        if (list[i].time > reservation->start)
            reservation->start = list[i].time;
    }
}

static bool sooner(const struct rg_pool_reservation *a, const struct rg_pool_reservation *b)
{
    return a->unknown != b->unknown ? a->unknown < b->unknown : a->start < b->start;
}

/* The devices of one server that could be the class's, the first ones first. */
static uint32_t list_server(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                            uint32_t server, struct ready *list)
{
    uint32_t n = 0;
    for (uint64_t left = class->matching[server]; left; left &= left - 1) {
        struct ready ready;
        if (!when_ready(plan, class, plan->servers[server].first + (uint32_t)__builtin_ctzll(left), &ready))
            continue;
        uint32_t at = n++;
        for (; at && compare(&ready, &list[at - 1]) < 0; at--)
            list[at] = list[at - 1];
        list[at] = ready;
    }
    return n;
}

static enum rg_status find_on_one(struct rg_pool_plan *plan, const struct rg_pool_class *class,
                                  struct rg_pool_reservation *best, bool *found)
{
    const uint32_t n = class->request->n;
    struct rg_pool_reservation other = *best;
    if (n > RG_DEVICES_MAX)
        return RG_OK;
    other.devices = rg_pool_arena_take(&plan->arena, n, sizeof *other.devices);
    if (!other.devices)
        return RG_ERR_NO_MEMORY;
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++) {
        struct ready list[RG_DEVICES_MAX];
        if ((uint32_t)__builtin_popcountll(class->matching[s]) < n || list_server(plan, class, s, list) < n)
            continue;
        make(list, n, &other);
        if (*found && !sooner(&other, best))
            continue;
        const struct rg_pool_reservation swap = *best;
        *best = other;
        other = swap;
        *found = true;
    }
    return RG_OK;
}

/* Leaves of a sorted list the first n devices that lie on few enough servers; false if those do not suffice. */
static bool on_few_servers(const struct rg_pool_plan *plan, struct ready *list, uint32_t n_list, uint32_t n)
{
    uint32_t servers[RG_SERVERS_MAX], n_servers = 0, kept = 0;
    for (uint32_t i = 0; i < n_list && kept < n; i++) {
        const uint32_t server = plan->snapshot->devices[list[i].device].server;
        uint32_t at = 0;
        while (at < n_servers && servers[at] != server)
            at++;
        if (at == n_servers && n_servers == plan->policy->servers_max)
            continue;
        if (at == n_servers)
            servers[n_servers++] = server;
        list[kept++] = list[i];
    }
    return kept == n;
}

/* Of the servers with the most devices that could be the class's, as many as a grant may lie on. */
static uint32_t list_largest(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t n,
                             struct ready *list)
{
    uint32_t kept = 0;
    uint32_t left = plan->policy->servers_max;
    for (uint32_t size = RG_DEVICES_MAX; size && left && kept < n; size--) {
        for (uint32_t s = 0; s < plan->snapshot->n_servers && left && kept < n; s++) {
            struct ready of_server[RG_DEVICES_MAX];
            if ((uint32_t)__builtin_popcountll(class->matching[s]) < size ||
                list_server(plan, class, s, of_server) != size)
                continue;
            left--;
            for (uint32_t i = 0; i < size && kept < n; i++)
                list[kept++] = of_server[i];
        }
    }
    return kept;
}

static enum rg_status find_on_several(struct rg_pool_plan *plan, const struct rg_pool_class *class,
                                      struct rg_pool_reservation *best, bool *found)
{
    const uint32_t n = class->request->n;
    struct ready *list = rg_pool_arena_take(&plan->arena, plan->snapshot->n_devices, sizeof *list);
    struct rg_pool_reservation other = {.devices =
                                            rg_pool_arena_take(&plan->arena, n, sizeof *other.devices)};
    if (!list || !other.devices)
        return RG_ERR_NO_MEMORY;
    uint32_t n_list = 0;
    for (uint32_t s = 0; s < plan->snapshot->n_servers; s++)
        if (class->matching[s])
            n_list += list_server(plan, class, s, list + n_list);
    qsort(list, n_list, sizeof *list, by_readiness);
    if (!on_few_servers(plan, list, n_list, n) && list_largest(plan, class, n, list) < n)
        return RG_OK;
    make(list, n, &other);
    if (!*found || sooner(&other, best))
        *best = other;
    *found = true;
    return RG_OK;
}

enum rg_status rg_pool_find_reservation(struct rg_pool_plan *plan, const struct rg_pool_class *class,
                                        struct rg_pool_reservation *reservation, bool *found)
{
    *found = false;
    *reservation = (struct rg_pool_reservation){
        .devices = rg_pool_arena_take(&plan->arena, class->request->n, sizeof *reservation->devices)};
    if (!reservation->devices)
        return RG_ERR_NO_MEMORY;
    RG_TRY(find_on_one(plan, class, reservation, found));
    if (class->request->several_servers)
        RG_TRY(find_on_several(plan, class, reservation, found));
    if (*found && reservation->unknown)
        reservation->start = RG_POOL_UNKNOWN;
    return RG_OK;
}

void rg_pool_keep_reservation(struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t request,
                              const struct rg_pool_reservation *reservation)
{
    /* From an unknown time on is from now on. */
    const uint64_t from = reservation->start == RG_POOL_UNKNOWN ? plan->now : reservation->start;
    for (uint32_t i = 0; i < reservation->n; i++) {
        const uint32_t d = reservation->devices[i];
        rg_pool_reserve(plan, d, rg_pool_need(class->request, &plan->snapshot->devices[d]), from, request);
    }
}
