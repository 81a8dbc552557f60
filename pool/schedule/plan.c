/* plan.c - makes the plan of a snapshot, which is checked on the way. */
#include "pool/schedule/plan.h"
#include "pool/schedule/filter_internal.h"

#include <string.h>

#define INVALID(why, why_size, ...)                                                                          \
    do {                                                                                                     \
        rg_explain(why, why_size, __VA_ARGS__);                                                              \
        return RG_ERR_INVALID;                                                                               \
    } while (0)

uint64_t rg_pool_need(const struct rg_pool_request *request, const struct rg_pool_device *device)
{
    if (!request->memory && !request->fraction)
        return device->memory;
    const uint64_t part =
        device->memory / 1000000 * request->fraction + device->memory % 1000000 * request->fraction / 1000000;
    return part > request->memory ? part : request->memory;
}

uint64_t rg_pool_free_for(const struct rg_pool_plan *plan, uint32_t device, uint64_t limit)
{
    const struct rg_pool_device_plan *at = &plan->devices[device];
    const uint64_t left = rg_pool_free(plan, device);
    if (!at->reserved ||
        (limit != RG_POOL_UNKNOWN && at->reserved_from > plan->now && limit <= at->reserved_from - plan->now))
        return left;
    return left > at->reserved ? left - at->reserved : 0;
}

uint64_t rg_pool_free_for_return(const struct rg_pool_plan *plan, uint32_t device)
{
    const uint64_t left = rg_pool_free(plan, device), soon = plan->devices[device].soon;
    return left > soon ? left - soon : 0;
}

static void look_at_server(struct rg_pool_plan *plan, struct rg_pool_server_plan *server)
{
    server->idle = 0;
    server->free_most = 0;
    for (uint32_t d = server->first; d < server->first + server->n; d++) {
        const uint64_t left = rg_pool_free(plan, d);
        server->idle |= (uint64_t)(plan->devices[d].taken == 0) << (d - server->first);
        server->free_most = left > server->free_most ? left : server->free_most;
    }
}

void rg_pool_take(struct rg_pool_plan *plan, uint32_t device, uint64_t memory, uint64_t until)
{
    struct rg_pool_device_plan *at = &plan->devices[device];
    at->taken += memory;
    at->granted += memory;
    const uint64_t ends = until > plan->now ? until : plan->now + 1; /* something granted is not free now */
    if (ends > at->granted_until)
        at->granted_until = ends;
    look_at_server(plan, &plan->servers[plan->snapshot->devices[device].server]);
}

void rg_pool_reserve(struct rg_pool_plan *plan, uint32_t device, uint64_t memory, uint64_t from,
                     uint32_t request)
{
    struct rg_pool_device_plan *at = &plan->devices[device];
    if (!at->reserved)
        at->reserved_by = request;
    at->reserved += memory;
    at->soon += from == plan->now + 1 ? memory : 0;
    const uint32_t server = plan->snapshot->devices[device].server;
    plan->servers[server].reserved |= 1ull << (device - plan->servers[server].first);
    if (from < at->reserved_from)
        at->reserved_from = from;
}

uint64_t rg_pool_until(const struct rg_pool_plan *plan, uint64_t limit)
{
    return limit < RG_POOL_UNKNOWN - plan->now ? plan->now + limit : RG_POOL_UNKNOWN;
}

static enum rg_status take_devices(struct rg_pool_plan *plan, char *why, size_t why_size)
{
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    for (uint32_t d = 0; d < snapshot->n_devices; d++) {
        const struct rg_pool_device *device = &snapshot->devices[d];
        if (device->server >= snapshot->n_servers)
            INVALID(why, why_size, "device %u is of server %u, and there are %u", d, device->server,
                    snapshot->n_servers);
        if (d && device->server < snapshot->devices[d - 1].server)
            INVALID(why, why_size, "device %u is not in the order of servers", d);
        if (!device->memory)
            INVALID(why, why_size, "device %u has no memory", d);
        struct rg_pool_server_plan *server = &plan->servers[device->server];
        if (!server->n) {
            server->first = d;
            server->memory_least = device->memory;
        }
        if (device->memory < server->memory_least)
            server->memory_least = device->memory;
        server->has_instances = server->has_instances || rg_pool_is_instance(device);
        if (++server->n > RG_DEVICES_MAX)
            INVALID(why, why_size, "server %u has more than %d devices", device->server, RG_DEVICES_MAX);
        plan->devices[d].reserved_from = RG_POOL_UNKNOWN;
        /* What is outside of leases may be overcommitted: then the device is full. */
        plan->devices[d].taken =
            device->memory_outside < device->memory ? device->memory_outside : device->memory;
    }
    return RG_OK;
}

static enum rg_status take_leases(struct rg_pool_plan *plan, char *why, size_t why_size)
{
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    for (uint32_t l = 0; l < snapshot->n_leases; l++) {
        const struct rg_pool_lease *lease = &snapshot->leases[l];
        plan->suspending[l] = lease->suspending;
        for (uint32_t p = 0; p < lease->n; p++) {
            const struct rg_pool_part *part = &lease->parts[p];
            if (part->device >= snapshot->n_devices)
                INVALID(why, why_size, "lease %u has device %u, and there are %u", l, part->device,
                        snapshot->n_devices);
            if (part->memory > snapshot->devices[part->device].memory)
                INVALID(why, why_size, "lease %u has more memory of device %u than that has", l,
                        part->device);
            if (lease->suspended)
                continue;
            struct rg_pool_device_plan *at = &plan->devices[part->device];
            const uint64_t left = rg_pool_free(plan, part->device);
            at->taken += part->memory < left ? part->memory : left; /* overcommitted: full */
            at->n_holders++;
        }
    }
    return RG_OK;
}

/* Puts a holder among those of a device, by the end of their leases. */
static void add_holder(struct rg_pool_plan *plan, struct rg_pool_device_plan *at,
                       struct rg_pool_holder holder)
{
    struct rg_pool_holder *list = &plan->holders[at->first_holder];
    const uint64_t end = rg_pool_holder_end(plan, &holder);
    uint32_t i = at->n_holders++;
    for (; i && rg_pool_holder_end(plan, &list[i - 1]) > end; i--)
        list[i] = list[i - 1];
    list[i] = holder;
}

static enum rg_status list_holders(struct rg_pool_plan *plan)
{
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    uint32_t total = 0;
    for (uint32_t d = 0; d < snapshot->n_devices; d++) {
        plan->devices[d].first_holder = total;
        total += plan->devices[d].n_holders;
        plan->devices[d].n_holders = 0;
    }
    plan->holders = rg_pool_arena_take(&plan->arena, total, sizeof *plan->holders);
    if (!plan->holders)
        return RG_ERR_NO_MEMORY;
    for (uint32_t l = 0; l < snapshot->n_leases; l++) {
        const struct rg_pool_lease *lease = &snapshot->leases[l];
        const uint64_t ends = lease->ends > plan->now ? lease->ends : plan->now + 1;
        for (uint32_t p = 0; p < lease->n && !lease->suspended; p++)
            add_holder(plan, &plan->devices[lease->parts[p].device],
                       (struct rg_pool_holder){l, lease->parts[p].memory, ends});
    }
    return RG_OK;
}

static enum rg_status check_requests(const struct rg_pool_snapshot *snapshot, char *why, size_t why_size)
{
    for (uint32_t r = 0; r < snapshot->n_requests; r++) {
        const struct rg_pool_request *request = &snapshot->requests[r];
        if (!request->id || !request->user)
            INVALID(why, why_size, "request %u has no id or no user", r);
        if (!request->n)
            INVALID(why, why_size, "request %s asks for no GPU", request->id);
        if (request->fraction > 1000000)
            INVALID(why, why_size, "request %s asks for more than a whole GPU", request->id);
    }
    return RG_OK;
}

enum rg_status rg_pool_plan_init(struct rg_pool_plan *plan, const struct rg_pool_snapshot *snapshot,
                                 const struct rg_pool_policy *policy, uint64_t now, char *why,
                                 size_t why_size)
{
    plan->snapshot = snapshot;
    plan->policy = policy;
    plan->now = now;
    plan->devices = rg_pool_arena_take(&plan->arena, snapshot->n_devices, sizeof *plan->devices);
    plan->servers = rg_pool_arena_take(&plan->arena, snapshot->n_servers, sizeof *plan->servers);
    plan->suspending = rg_pool_arena_take(&plan->arena, snapshot->n_leases, sizeof *plan->suspending);
    if (!plan->devices || !plan->servers || !plan->suspending)
        return RG_ERR_NO_MEMORY;
    if (policy->reservations < 1 || policy->servers_max < 1 || policy->servers_max > RG_SERVERS_MAX)
        INVALID(why, why_size, "a policy has at least one reservation, and grants lie on 1 to %d servers",
                RG_SERVERS_MAX);
    RG_TRY(check_requests(snapshot, why, why_size));
    RG_TRY(take_devices(plan, why, why_size));
    RG_TRY(take_leases(plan, why, why_size));
    RG_TRY(list_holders(plan));
    for (uint32_t s = 0; s < snapshot->n_servers; s++)
        look_at_server(plan, &plan->servers[s]);
    return RG_OK;
}

void rg_pool_plan_fini(struct rg_pool_plan *plan)
{
    rg_pool_arena_clear(&plan->arena);
}
