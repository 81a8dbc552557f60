/* leases.c - see leases.h. */
#include "places/kubernetes/controller/leases.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND      1000000000ull
#define PAUSE_LEAST (SECOND / 2)
#define PAUSE_MOST  (15 * SECOND)

static void free_lease(struct rg_kube_lease *lease)
{
    free(lease->grant.lease);
    free(lease->grant.servers);
    free(lease);
}

void rg_kube_leases_fini(struct rg_kube_leases *leases)
{
    for (size_t i = 0; i < leases->n; i++)
        free_lease(leases->items[i]);
    free(leases->items);
    leases->items = NULL;
    leases->n = 0;
}

struct rg_kube_lease *rg_kube_leases_find(const struct rg_kube_leases *leases, const char *id)
{
    for (size_t i = 0; i < leases->n; i++)
        if (strcmp(leases->items[i]->id, id) == 0)
            return leases->items[i];
    return NULL;
}

struct rg_kube_lease *rg_kube_leases_add(struct rg_kube_leases *leases, const char *id)
{
    struct rg_kube_lease *lease = rg_kube_leases_find(leases, id);
    if (lease)
        return lease;
    struct rg_kube_lease **grown = realloc(leases->items, (leases->n + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    leases->items = grown;
    lease = calloc(1, sizeof *lease);
    if (!lease)
        return NULL;
    snprintf(lease->id, sizeof lease->id, "%s", id);
    return leases->items[leases->n++] = lease;
}

static void forget(struct rg_kube_leases *leases, const char *id)
{
    for (size_t i = 0; i < leases->n; i++)
        if (strcmp(leases->items[i]->id, id) == 0) {
            free_lease(leases->items[i]);
            leases->items[i] = leases->items[--leases->n];
            return;
        }
}

static void try_later(struct rg_kube_lease *lease)
{
    lease->pause_ns = !lease->pause_ns                   ? PAUSE_LEAST
                      : lease->pause_ns * 2 < PAUSE_MOST ? lease->pause_ns * 2
                                                         : PAUSE_MOST;
    lease->next_ns = rg_now_ns() + lease->pause_ns;
}

/* A third of its time, so that two renewals may fail. */
static void renew_later(const struct rg_kube_leases *leases, struct rg_kube_lease *lease)
{
    lease->pause_ns = 0;
    lease->next_ns = rg_now_ns() + leases->seconds * SECOND / 3;
}

/* --- taking ---------------------------------------------------------------------------------------------------------- */

struct request {
    struct rg_pool_wish wish;
    struct rg_pool_lease_of lease;
};

static bool request(const char *server, void *data, struct rg_pool_failure *failure)
{
    struct request *one = data;
    return rg_pool_request(server, &one->wish, &one->lease, failure);
}

static void take_grant(const struct rg_kube_leases *leases, struct rg_kube_lease *lease,
                       struct rg_pool_lease_of *granted)
{
    free(lease->grant.lease);
    free(lease->grant.servers);
    lease->grant = (struct rg_kube_grant){granted->variable, granted->servers};
    granted->variable = granted->servers = NULL;
    rg_pool_lease_fini(granted);
    lease->has = true;
    lease->why[0] = '\0';
    renew_later(leases, lease);
}

bool rg_kube_leases_take_devices(struct rg_kube_leases *leases, struct rg_kube_lease *lease,
                                 const char *const *devices, unsigned n, const char *user, const char *job)
{
    struct rg_pool_failure failure;
    struct request one = {.wish = {.devices = devices,
                                   .n_devices = n,
                                   .spread = n > 1,
                                   .user = user,
                                   .job = job,
                                   .id = lease->id,
                                   .kept = true,
                                   .seconds = leases->seconds,
                                   .timeout_ns = leases->pool->timeout_ns}};
    if (rg_now_ns() < lease->next_ns)
        return false;
    if (rg_kube_pool_ask(leases->pool, request, &one, &failure)) {
        take_grant(leases, lease, &one.lease);
        return true;
    }
    snprintf(lease->why, sizeof lease->why, "%.*s", (int)sizeof lease->why - 1, failure.why);
    try_later(lease);
    return false;
}

/* False: a device's name is none of ours. */
static bool name_devices(const struct rg_kube_claim *claim, char (*uuids)[RG_KUBE_DEVICE_NAME],
                         const char **out)
{
    for (unsigned i = 0; i < claim->n_devices; i++) {
        if (!rg_kube_device_uuid(claim->devices[i].name, uuids[i]))
            return false;
        out[i] = uuids[i];
    }
    return true;
}

bool rg_kube_leases_take(struct rg_kube_leases *leases, struct rg_kube_lease *lease,
                         const struct rg_kube_claim *claim, const char *user)
{
    char uuids[RG_POOL_GPUS_MAX][RG_KUBE_DEVICE_NAME];
    const char *devices[RG_POOL_GPUS_MAX];
    char job[512]; /* names in Kubernetes have 253 characters at most */
    snprintf(job, sizeof job, "%s/%s", claim->space, claim->name);
    if (rg_now_ns() < lease->next_ns)
        return false;
    if (!name_devices(claim, uuids, devices)) {
        snprintf(lease->why, sizeof lease->why, "a device that was allocated is none of this driver's");
        try_later(lease);
    } else if (rg_kube_leases_take_devices(leases, lease, devices, claim->n_devices, user, job)) {
        rg_info("claim %s/%s has lease %s", claim->space, claim->name, lease->id);
        return true;
    }
    rg_info("claim %s/%s has no lease yet: %s", claim->space, claim->name, lease->why);
    return false;
}

/* --- keeping --------------------------------------------------------------------------------------------------------- */

struct keeping {
    const char *id;
    uint64_t seconds, timeout_ns;
};

static bool renew_at(const char *server, void *data, struct rg_pool_failure *failure)
{
    const struct keeping *one = data;
    int64_t expires;
    return rg_pool_renew(server, one->id, one->seconds, one->timeout_ns, &expires, failure);
}

static bool release_at(const char *server, void *data, struct rg_pool_failure *failure)
{
    const struct keeping *one = data;
    return rg_pool_release(server, one->id, one->timeout_ns, failure);
}

static void renew(struct rg_kube_leases *leases, struct rg_kube_lease *lease)
{
    struct rg_pool_failure failure;
    struct keeping one = {lease->id, leases->seconds, leases->pool->timeout_ns};
    if (rg_kube_pool_ask(leases->pool, renew_at, &one, &failure)) {
        renew_later(leases, lease);
    } else if (strcmp(failure.code, "lease-gone") == 0) {
        rg_warn("lease %s is gone: a server of it has failed, or somebody released it; it is taken again",
                lease->id);
        lease->has = false;
        lease->next_ns = 0;
    } else {
        rg_warn("lease %s was not renewed: %s; trying again", lease->id, failure.why);
        try_later(lease);
    }
}

void rg_kube_leases_renew(struct rg_kube_leases *leases)
{
    for (size_t i = 0; i < leases->n; i++)
        if (leases->items[i]->has && rg_now_ns() >= leases->items[i]->next_ns)
            renew(leases, leases->items[i]);
}

bool rg_kube_leases_give_back(struct rg_kube_leases *leases, const char *id)
{
    struct rg_pool_failure failure;
    struct keeping one = {id, 0, leases->pool->timeout_ns};
    struct rg_kube_lease *lease = rg_kube_leases_add(leases, id);
    if (!lease || (!lease->has && rg_now_ns() < lease->next_ns))
        return false;
    if (rg_kube_pool_ask(leases->pool, release_at, &one, &failure) ||
        strcmp(failure.code, "lease-gone") == 0) {
        rg_info("lease %s was given back", id);
        forget(leases, id);
        return true;
    }
    rg_warn("lease %s was not given back: %s; trying again", id, failure.why);
    lease->has = false; /* it is not renewed any more */
    try_later(lease);
    return false;
}
