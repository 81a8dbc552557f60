/* values.c - what lies in etcd of a pool as JSON: read, made, and the ids in its keys; see mirror.h. */
#include "pool/state/mirror.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

const char *rg_pool_get_text(const json_t *object, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : otherwise;
}

uint64_t rg_pool_get_number(const json_t *object, const char *name, uint64_t otherwise)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
                                                                    : otherwise;
}

json_t *rg_pool_gpu_json(const struct rg_pool_gpu *gpu)
{
    json_t *granted = json_array();
    for (uint32_t i = 0; granted && i < gpu->n_shares; i++)
        if (json_array_append_new(granted, json_pack("{s:s, s:I}", "lease", gpu->shares[i].lease, "memory",
                                                     (json_int_t)gpu->shares[i].memory)) != 0) {
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
