/*
 * class.c - classes of requests. Matching is the only place where filters, taints and labels are looked at: once for each
 * class and device, whatever the length of the queue.
 */
#include "pool/schedule/class.h"

#include "common/base/hash_table.h"
#include "pool/schedule/filter_internal.h"

#include <string.h>
#include <strings.h>

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_tolerations(const struct rg_pool_request *a, const struct rg_pool_request *b)
{
    if (a->n_tolerations != b->n_tolerations)
        return false;
    for (uint32_t i = 0; i < a->n_tolerations; i++)
        if (!same_text(a->tolerations[i].key, b->tolerations[i].key) ||
            !same_text(a->tolerations[i].value, b->tolerations[i].value))
            return false;
    return true;
}

static bool same_devices(const struct rg_pool_request *a, const struct rg_pool_request *b)
{
    if (a->n_devices != b->n_devices)
        return false;
    for (uint32_t i = 0; i < a->n_devices && a->devices != b->devices; i++)
        if (strcmp(a->devices[i], b->devices[i]) != 0)
            return false;
    return true;
}

static bool alike(const struct rg_pool_request *a, const struct rg_pool_request *b)
{
    return a->n == b->n && a->memory == b->memory && a->fraction == b->fraction && a->links == b->links &&
           a->several_servers == b->several_servers && a->strategy == b->strategy &&
           a->n_filters == b->n_filters &&
           (a->filters == b->filters || !a->n_filters ||
            memcmp(a->filters, b->filters, a->n_filters * sizeof *a->filters) == 0) &&
           a->returns == b->returns && same_devices(a, b) && same_tolerations(a, b);
}

static uint64_t hash_of(const struct rg_pool_request *request)
{
    const uint64_t figures[] = {request->n,
                                request->memory,
                                request->fraction,
                                (uintptr_t)request->links,
                                request->several_servers,
                                request->strategy,
                                (uintptr_t)request->returns};
    uint64_t hash = rg_hash_bytes(RG_HASH_EMPTY, figures, sizeof figures);
    for (uint32_t i = 0; i < request->n_filters; i++)
        hash = rg_hash_bytes(hash, request->filters[i].text, strlen(request->filters[i].text));
    for (uint32_t i = 0; i < request->n_devices; i++)
        hash = rg_hash_bytes(hash, request->devices[i], strlen(request->devices[i]));
    for (uint32_t i = 0; i < request->n_tolerations; i++)
        hash = rg_hash_bytes(hash, request->tolerations[i].key, strlen(request->tolerations[i].key));
    return hash;
}

enum rg_status rg_pool_classes_init(struct rg_pool_plan *plan)
{
    const uint32_t n = plan->snapshot->n_requests;
    size_t n_slots = 16; /* open addressing, at most half full */
    while (n_slots < 2 * (size_t)n)
        n_slots *= 2;
    uint32_t *slots = rg_pool_arena_take(&plan->arena, n_slots, sizeof *slots); /* class + 1 */
    plan->classes = rg_pool_arena_take(&plan->arena, n, sizeof *plan->classes);
    plan->class_of = rg_pool_arena_take(&plan->arena, n, sizeof *plan->class_of);
    if (!slots || !plan->classes || !plan->class_of)
        return RG_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < n; r++) {
        const struct rg_pool_request *request = &plan->snapshot->requests[r];
        size_t slot = hash_of(request) & (n_slots - 1);
        while (slots[slot] && !alike(plan->classes[slots[slot] - 1].request, request))
            slot = (slot + 1) & (n_slots - 1);
        if (!slots[slot]) {
            plan->classes[plan->n_classes++].request = request;
            slots[slot] = plan->n_classes;
        }
        plan->class_of[r] = slots[slot] - 1;
    }
    return RG_OK;
}

static bool tolerates(const struct rg_pool_request *request, const struct rg_pool_server *server)
{
    for (uint32_t t = 0; t < server->n_taints; t++) {
        const struct rg_pool_label *taint = &server->taints[t];
        bool tolerated = false;
        for (uint32_t i = 0; i < request->n_tolerations && !tolerated; i++) {
            const struct rg_pool_label *toleration = &request->tolerations[i];
            tolerated =
                strcmp(toleration->key, taint->key) == 0 &&
                (!toleration->value || strcmp(toleration->value, taint->value ? taint->value : "") == 0);
        }
        if (!tolerated)
            return false;
    }
    return true;
}

/* Whether it is one of the GPUs that the request names, if it names any. */
static bool is_named(const struct rg_pool_request *request, const struct rg_pool_device *device)
{
    for (uint32_t i = 0; i < request->n_devices && device->uuid; i++)
        if (strcasecmp(rg_pool_uuid_bare(request->devices[i]), rg_pool_uuid_bare(device->uuid)) == 0)
            return true;
    return request->n_devices == 0;
}

/* Whether the first n filters let it pass. */
static bool passes(const struct rg_pool_request *request, uint32_t n, const struct rg_pool_server *server,
                   const struct rg_pool_device *device)
{
    for (uint32_t i = 0; i < n; i++)
        if (!rg_pool_filter_matches(&request->filters[i], server, device))
            return false;
    return true;
}

static bool server_passes(const struct rg_pool_request *request, const struct rg_pool_server *server)
{
    for (uint32_t i = 0; i < request->n_filters; i++)
        if (rg_pool_filter_of_server(&request->filters[i]) &&
            !rg_pool_filter_matches(&request->filters[i], server, NULL))
            return false;
    return request->returns || tolerates(request, server);
}

static bool filters_devices(const struct rg_pool_request *request)
{
    for (uint32_t i = 0; i < request->n_filters; i++)
        if (!rg_pool_filter_of_server(&request->filters[i]))
            return true;
    return request->n_devices > 0 || request->returns;
}

/* Whether a lease that comes back to its GPUs has that one; what is none may have any. */
static bool is_returned(const struct rg_pool_request *request, uint32_t device)
{
    for (uint32_t i = 0; i < request->n && request->returns; i++)
        if (request->returns[i].device == device)
            return true;
    return !request->returns;
}

static bool device_passes(const struct rg_pool_request *request, const struct rg_pool_server *server,
                          const struct rg_pool_device *device)
{
    for (uint32_t i = 0; i < request->n_filters; i++)
        if (!rg_pool_filter_of_server(&request->filters[i]) &&
            !rg_pool_filter_matches(&request->filters[i], server, device))
            return false;
    if (request->n > 1 && rg_pool_is_instance(device))
        return false;
    return is_named(request, device) && rg_pool_need(request, device) <= device->memory;
}

/* Bits of a server's devices that would do; `all_alike`: nothing is asked of devices. */
static uint64_t matching_of(const struct rg_pool_plan *plan, const struct rg_pool_request *request,
                            uint32_t s, bool all_alike)
{
    const struct rg_pool_server_plan *at = &plan->servers[s];
    if (at->n && all_alike && request->memory <= at->memory_least && (request->n == 1 || !at->has_instances))
        return UINT64_MAX >> (64 - at->n);
    uint64_t matching = 0;
    for (uint32_t i = 0; i < at->n; i++)
        if (is_returned(request, at->first + i) &&
            device_passes(request, &plan->snapshot->servers[s], &plan->snapshot->devices[at->first + i]))
            matching |= 1ull << i;
    return matching;
}

/*
 * The most GPUs of one server, or of as many as a grant may lie on, from how many servers there are with each number of
 * matching GPUs.
 */
static uint32_t most_of(const uint32_t *servers_with, const struct rg_pool_request *request,
                        uint32_t servers_max)
{
    uint32_t most = 0, servers = request->several_servers ? servers_max : 1;
    for (uint32_t n = RG_DEVICES_MAX; n && servers; n--) {
        const uint32_t used = servers_with[n] < servers ? servers_with[n] : servers;
        most += used * n;
        servers -= used;
    }
    return most;
}

enum rg_status rg_pool_class_match(struct rg_pool_plan *plan, struct rg_pool_class *class)
{
    if (class->matching)
        return RG_OK;
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    uint64_t *matching = rg_pool_arena_take(&plan->arena, snapshot->n_servers, sizeof *matching);
    if (!matching)
        return RG_ERR_NO_MEMORY;
    const bool all_alike = !filters_devices(class->request);
    uint32_t servers_with[RG_DEVICES_MAX + 1] = {0}, with_draining[RG_DEVICES_MAX + 1] = {0};
    for (uint32_t s = 0; s < snapshot->n_servers; s++) {
        const struct rg_pool_server *server = &snapshot->servers[s];
        if (!server_passes(class->request, server))
            continue;
        matching[s] = matching_of(plan, class->request, s, all_alike);
        const unsigned n = (unsigned)__builtin_popcountll(matching[s]);
        with_draining[n]++;
        if (server->draining && !class->request->returns)
            matching[s] = 0;
        else
            servers_with[n]++;
    }
    class->most = most_of(servers_with, class->request, plan->policy->servers_max);
    class->most_draining = most_of(with_draining, class->request, plan->policy->servers_max);
    class->matching = matching;
    return RG_OK;
}

/* Devices that the first n filters leave. */
static uint32_t count_left(const struct rg_pool_plan *plan, const struct rg_pool_request *request, uint32_t n)
{
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    uint32_t left = 0;
    for (uint32_t d = 0; d < snapshot->n_devices; d++)
        left += passes(request, n, &snapshot->servers[snapshot->devices[d].server], &snapshot->devices[d]);
    return left;
}

void rg_pool_class_impossible(struct rg_pool_plan *plan, struct rg_pool_class *class)
{
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    const struct rg_pool_request *request = class->request;
    class->looked = true;
    class->server = class->behind = RG_POOL_NONE;
    class->have = class->most;
    uint32_t tolerated = 0, named = 0;
    for (uint32_t d = 0; d < snapshot->n_devices; d++) {
        const struct rg_pool_device *device = &snapshot->devices[d];
        const struct rg_pool_server *server = &snapshot->servers[device->server];
        if (!passes(request, request->n_filters, server, device) || !is_named(request, device))
            continue;
        named++;
        if (!tolerates(request, server))
            continue;
        tolerated++;
        if (device->memory > class->most_memory)
            class->most_memory = device->memory;
    }
    if (!snapshot->n_devices) {
        class->reason = RG_POOL_NEVER_EMPTY;
    } else if (!count_left(plan, request, request->n_filters)) {
        class->reason = RG_POOL_NEVER_FILTERS;
        class->left = snapshot->n_devices;
        for (uint32_t left; (left = count_left(plan, request, class->filter + 1)); class->filter++)
            class->left = left;
    } else if (!named) {
        class->reason = RG_POOL_NEVER_TOO_MANY;
    } else if (!tolerated) {
        class->reason = RG_POOL_NEVER_TAINTS;
    } else if (class->most_draining >= request->n) {
        class->reason = RG_POOL_WAITS_FOR_DRAINED;
    } else if (!class->most_draining) {
        class->reason = RG_POOL_NEVER_MEMORY;
    } else {
        class->reason = RG_POOL_NEVER_TOO_MANY;
        class->have = class->most_draining;
    }
}
