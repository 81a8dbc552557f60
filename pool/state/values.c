/* values.c - what lies in etcd of a pool as JSON: read, made, and the ids in its keys; see mirror.h. */
#include "pool/state/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* --- parts of GPUs -------------------------------------------------------------------------------------------------- */

static const char *const states[] = {[RG_POOL_SHARE_ACTIVE] = "",
                                     [RG_POOL_SHARE_SUSPENDING] = "suspending",
                                     [RG_POOL_SHARE_SUSPENDED] = "suspended"};
static const char *const refusals[RG_POOL_SHARE_REFUSALS] = {[RG_POOL_SHARE_UNREFUSED] = "",
                                                             [RG_POOL_SHARE_BUSY] = "busy",
                                                             [RG_POOL_SHARE_SHARED] = "shared",
                                                             [RG_POOL_SHARE_DRIVER] = "driver"};

const char *rg_pool_share_state_name(enum rg_pool_share_state state)
{
    return states[state];
}

uint64_t rg_pool_gpu_held(const struct rg_pool_gpu *gpu)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < gpu->n_shares; i++) {
        const struct rg_pool_share *share = &gpu->shares[i];
        if (share->state != RG_POOL_SHARE_SUSPENDED)
            held += share->memory < UINT64_MAX - held ? share->memory : UINT64_MAX - held;
    }
    return held;
}

/* The number of a text among some; 0, the first, if it is none of them. */
static uint32_t number_of(const char *text, const char *const *texts, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(text, texts[i]) == 0)
            return i;
    return 0;
}

static json_t *share_json(const struct rg_pool_share *share)
{
    json_t *out = json_pack("{s:s, s:I}", "lease", share->lease, "memory", (json_int_t)share->memory);
    if (out && share->state)
        (void)json_object_set_new(out, "state", json_string(states[share->state]));
    if (out && share->refused)
        (void)json_object_set_new(out, "refused", json_string(refusals[share->refused]));
    if (out && share->since)
        (void)json_object_set_new(out, "since", json_integer((json_int_t)share->since));
    return out;
}

bool rg_mirror_read_share(const json_t *value, uint64_t memory, struct rg_pool_share *out)
{
    const char *lease = rg_json_get_text(value, "lease");
    if (!rg_pool_is_id(lease))
        return false;
    *out = (struct rg_pool_share){
        .memory = rg_json_get_number(value, "memory", memory),
        .state = number_of(rg_json_get_text(value, "state"), states, sizeof states / sizeof *states),
        .refused = number_of(rg_json_get_text(value, "refused"), refusals, RG_POOL_SHARE_REFUSALS),
        .since = rg_json_get_number(value, "since", 0)};
    snprintf(out->lease, sizeof out->lease, "%s", lease);
    return true;
}

json_t *rg_pool_gpu_json(const struct rg_pool_gpu *gpu)
{
    json_t *granted = json_array();
    for (uint32_t i = 0; granted && i < gpu->n_shares; i++)
        if (json_array_append_new(granted, share_json(&gpu->shares[i])) != 0) {
            json_decref(granted);
            granted = NULL;
        }
    json_t *out = json_pack("{s:i, s:s, s:s, s:I, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid, "name",
                            gpu->name, "memory", (json_int_t)gpu->memory, "granted", granted);
    rg_pool_gpu_places(gpu, out);
    return out;
}

void rg_pool_gpu_places(const struct rg_pool_gpu *gpu, json_t *out)
{
    const struct {
        const char *name;
        int number;
    } places[] = {{"numa", gpu->numa_node}, {"nvlink", gpu->nvlink_group}, {"pcie", gpu->pcie_group}};
    for (size_t i = 0; out && i < sizeof places / sizeof places[0]; i++)
        if (places[i].number >= 0)
            (void)json_object_set_new(out, places[i].name, json_integer(places[i].number));
}

bool rg_pool_is_id(const char *text)
{
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

bool rg_pool_make_id(char out[RG_POOL_ID])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return false;
    snprintf(out, RG_POOL_ID, "%016" PRIx64, number | 1); /* 0 is none */
    return true;
}
