/* pool.c - makes pools for tests. */
#include "tests/pool/schedule/pool.h"

#include <stdio.h>
#include <stdlib.h>

static const char *name(struct pool *pool, const char *kind, uint32_t i)
{
    char *text = pool->names[pool->n_names++];
    snprintf(text, sizeof pool->names[0], "%s%u", kind, i);
    return text;
}

struct pool *pool_new(void)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        abort();
    rg_pool_policy_default(&pool->policy);
    pool->now = NOW;
    pool->snapshot = (struct rg_pool_snapshot){.servers = pool->servers,
                                               .devices = pool->devices,
                                               .leases = pool->leases,
                                               .requests = pool->requests,
                                               .accounts = pool->accounts};
    return pool;
}

void pool_end(struct pool *pool)
{
    rg_pool_outcome_clear(&pool->outcome);
    free(pool);
}

struct rg_pool_server *pool_server(struct pool *pool, uint32_t n, uint64_t memory)
{
    const uint32_t s = pool->snapshot.n_servers++;
    pool->servers[s] = (struct rg_pool_server){.address = name(pool, "a", s), .hostname = name(pool, "h", s)};
    for (uint32_t i = 0; i < n; i++)
        pool->devices[pool->snapshot.n_devices++] = (struct rg_pool_device){.server = s,
                                                                            .index = i,
                                                                            .uuid = "GPU-0",
                                                                            .name = "Test GPU",
                                                                            .memory = memory,
                                                                            .nvlink_group = -1,
                                                                            .pcie_group = -1};
    return &pool->servers[s];
}

struct rg_pool_device *pool_device(struct pool *pool, uint32_t i)
{
    uint32_t d = 0;
    while (pool->devices[d].server != pool->snapshot.n_servers - 1)
        d++;
    return &pool->devices[d + i];
}

struct rg_pool_lease *pool_lease(struct pool *pool, uint32_t first, uint32_t n, uint64_t memory,
                                 uint64_t ends)
{
    const uint32_t l = pool->snapshot.n_leases++;
    for (uint32_t i = 0; i < n; i++)
        pool->parts[l][i] =
            (struct rg_pool_part){first + i, memory ? memory : pool->devices[first + i].memory};
    pool->leases[l] = (struct rg_pool_lease){.id = "lease",
                                             .user = "holder",
                                             .parts = pool->parts[l],
                                             .n = n,
                                             .started = pool->now - HOUR,
                                             .ends = ends};
    return &pool->leases[l];
}

struct rg_pool_request *pool_ask(struct pool *pool, const char *user, uint32_t n, uint64_t memory)
{
    const uint32_t r = pool->snapshot.n_requests++;
    pool->requests[r] = (struct rg_pool_request){.id = name(pool, "r", r),
                                                 .user = user,
                                                 .n = n,
                                                 .memory = memory,
                                                 .submitted = pool->now - MINUTE + r,
                                                 .time_limit = RG_POOL_UNKNOWN};
    return &pool->requests[r];
}

void pool_decide(struct pool *pool)
{
    char why[256] = "";
    rg_pool_outcome_clear(&pool->outcome);
    const enum rg_status status =
        rg_pool_schedule(&pool->snapshot, &pool->policy, pool->now, &pool->outcome, why, sizeof why);
    if (status == RG_OK)
        return;
    fprintf(stderr, "rg_pool_schedule: %s: %s\n", rg_status_string(status), why);
    abort();
}

const struct rg_pool_grant *pool_grant(const struct pool *pool, uint32_t request)
{
    for (uint32_t i = 0; i < pool->outcome.n_grants; i++)
        if (pool->outcome.grants[i].request == request)
            return &pool->outcome.grants[i];
    return NULL;
}

const struct rg_pool_waiting *pool_waits(const struct pool *pool, uint32_t request)
{
    for (uint32_t i = 0; i < pool->outcome.n_waiting; i++)
        if (pool->outcome.waiting[i].request == request)
            return &pool->outcome.waiting[i];
    return NULL;
}

uint32_t pool_part(const struct pool *pool, uint32_t request, uint32_t i)
{
    const struct rg_pool_grant *grant = pool_grant(pool, request);
    return grant && i < grant->n ? pool->outcome.parts[grant->first + i].device : RG_POOL_NONE;
}

const char *pool_say(const struct pool *pool, uint32_t request)
{
    static char text[512];
    const struct rg_pool_waiting *waiting = pool_waits(pool, request);
    if (!waiting)
        return "does not wait";
    rg_pool_explain(&pool->snapshot, &pool->outcome, (uint32_t)(waiting - pool->outcome.waiting), pool->now,
                    text, sizeof text);
    return text;
}
