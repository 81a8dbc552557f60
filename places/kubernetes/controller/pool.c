/* pool.c - see pool.h. */
#include "places/kubernetes/controller/pool.h"

#include "client/query/query.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "places/kubernetes/claim/claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_kube_pool_init(struct rg_kube_pool *pool, const struct rg_text_list *named, uint64_t timeout_ns)
{
    *pool = (struct rg_kube_pool){.named = named, .timeout_ns = timeout_ns, .capabilities = json_object()};
}

static void forget(struct rg_kube_pool *pool)
{
    for (size_t i = 0; i < pool->n_learnt; i++)
        free(pool->learnt[i]);
    free(pool->learnt);
    pool->learnt = NULL;
    pool->n_learnt = 0;
}

void rg_kube_pool_fini(struct rg_kube_pool *pool)
{
    forget(pool);
    free(pool->last);
    json_decref(pool->capabilities);
}

/* --- whom to ask --------------------------------------------------------------------------------------------------- */

/* Number `i` of those that may be asked; NULL: there are no more. */
static const char *member(const struct rg_kube_pool *pool, size_t i)
{
    if (i == 0)
        return pool->last ? pool->last : pool->named->items[0];
    i--;
    if (i < pool->named->n)
        return pool->named->items[i];
    i -= pool->named->n;
    return i < pool->n_learnt ? pool->learnt[i] : NULL;
}

static bool was_tried(const struct rg_kube_pool *pool, size_t n, const char *address)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(member(pool, i), address) == 0)
            return true;
    return false;
}

static void learn(struct rg_kube_pool *pool, const json_t *servers)
{
    const json_t *one;
    size_t i;
    forget(pool);
    pool->learnt = calloc(json_array_size(servers) + 1, sizeof *pool->learnt);
    json_array_foreach(servers, i, one)
    {
        const char *address = rg_json_get_text(one, "address");
        char *copy = pool->learnt && *address ? strdup(address) : NULL;
        if (copy)
            pool->learnt[pool->n_learnt++] = copy;
    }
}

static void remember(struct rg_kube_pool *pool, const char *address)
{
    char *copy = !pool->last || strcmp(pool->last, address) != 0 ? strdup(address) : NULL;
    if (copy) {
        free(pool->last);
        pool->last = copy;
    }
}

/* --- asking --------------------------------------------------------------------------------------------------------- */

bool rg_kube_pool_ask(struct rg_kube_pool *pool, rg_kube_pool_question *question, void *data,
                      struct rg_pool_failure *failure)
{
    const char *address;
    for (size_t i = 0; (address = member(pool, i)); i++) {
        if (was_tried(pool, i, address))
            continue;
        const bool good = question(address, data, failure);
        if (good)
            remember(pool, address);
        if (good || strcmp(failure->code, "pool-unreachable") != 0)
            return good;
    }
    return false;
}

/* --- what there is -------------------------------------------------------------------------------------------------- */

/* A server's own word on its GPUs, which the pool does not have; asked once for each address and set of GPUs. */
static json_t *ask_capabilities(const struct rg_kube_pool *pool, const char *address)
{
    RG_CLEANUP_FREE struct rg_control *message = calloc(1, sizeof *message);
    char why[1024], uuid[48], version[32];
    if (!message ||
        rg_query(address, RG_PURPOSE_INVENTORY, pool->timeout_ns, message, why, sizeof why) != RG_OK) {
        rg_debug("%s", message ? why : "out of memory");
        return NULL;
    }
    json_t *out = json_object();
    for (uint32_t i = 0; i < message->inventory.n_devices; i++) {
        const struct rg_device_info *device = &message->inventory.devices[i];
        snprintf(version, sizeof version, "%u.%u.0", device->compute_major, device->compute_minor);
        json_object_set_new(out, rg_uuid_text(device->uuid, device->mig, uuid, sizeof uuid),
                            json_string(version));
    }
    rg_control_fini(message);
    return out;
}

static bool are_known(const json_t *known, const json_t *gpus)
{
    const json_t *gpu;
    size_t i;
    json_array_foreach(gpus, i, gpu) if (!json_object_get(known, rg_json_get_text(gpu, "uuid"))) return false;
    return known != NULL;
}

static void add_capabilities(struct rg_kube_pool *pool, const json_t *server)
{
    const char *address = rg_json_get_text(server, "address");
    json_t *gpus = json_object_get(server, "gpus"), *gpu;
    size_t i;
    if (!are_known(json_object_get(pool->capabilities, address), gpus)) {
        json_t *told = ask_capabilities(pool, address);
        if (told)
            json_object_set_new(pool->capabilities, address, told);
    }
    const json_t *known = json_object_get(pool->capabilities, address);
    json_array_foreach(gpus, i, gpu)
    {
        json_t *version = json_object_get(known, rg_json_get_text(gpu, "uuid"));
        if (version)
            json_object_set(gpu, "capability", version);
    }
}

struct look {
    json_t *picture;
    uint64_t timeout_ns;
};

static bool list(const char *server, void *data, struct rg_pool_failure *failure)
{
    struct look *look = data;
    look->picture = rg_pool_list(server, NULL, look->timeout_ns, failure);
    if (!look->picture || !*rg_json_get_text(look->picture, "etcd"))
        return look->picture != NULL;
    /* it says what it knew before it was cut off */
    *failure = (struct rg_pool_failure){.status = RG_ERR_UNREACHABLE, .code = "pool-unreachable"};
    snprintf(failure->why, sizeof failure->why, "%s", rg_json_get_text(look->picture, "etcd"));
    json_decref(look->picture);
    look->picture = NULL;
    return false;
}

json_t *rg_kube_pool_look(struct rg_kube_pool *pool, struct rg_pool_failure *failure)
{
    struct look look = {.timeout_ns = pool->timeout_ns};
    const json_t *server;
    size_t i;
    if (!rg_kube_pool_ask(pool, list, &look, failure))
        return NULL;
    learn(pool, json_object_get(look.picture, "servers"));
    json_array_foreach(json_object_get(look.picture, "servers"), i, server) add_capabilities(pool, server);
    return look.picture;
}
