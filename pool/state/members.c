/*
 * members.c - the servers of a pool and their GPUs, as they stand in a mirror: see mirror.h. A GPU may be told of before its server. Without
 * memory for one it is as if it were not there. One thread.
 */
#include "pool/state/internal.h"

#include <stdio.h>
#include <stdlib.h>

struct rg_pool_member *rg_mirror_any_member(const struct rg_pool_mirror *mirror, const char *id)
{
    return rg_mirror_find(&mirror->members_by_id, id, offsetof(struct rg_pool_member, id));
}

struct rg_pool_member *rg_pool_mirror_member(const struct rg_pool_mirror *mirror, const char *id)
{
    struct rg_pool_member *found = rg_mirror_any_member(mirror, id);
    return found && found->value ? found : NULL;
}

struct rg_pool_gpu *rg_pool_mirror_gpu(const struct rg_pool_member *member, uint32_t index)
{
    for (uint32_t i = 0; i < member->n_gpus; i++)
        if (member->gpus[i]->index == index)
            return member->gpus[i];
    return NULL;
}

static struct rg_pool_member *member_of(struct rg_pool_mirror *mirror, const char *id)
{
    struct rg_pool_member *found = rg_mirror_any_member(mirror, id);
    if (found || !rg_mirror_grow(&mirror->members, mirror->n_members, RG_POOL_MEMBERS_MAX) ||
        !(found = calloc(1, sizeof *found)))
        return found;
    snprintf(found->id, sizeof found->id, "%s", id);
    mirror->members[mirror->n_members++] = found;
    rg_hash_table_add(&mirror->members_by_id, &found->link, rg_hash_text(id));
    return found;
}

void rg_mirror_put_member(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t created,
                          int64_t changed)
{
    struct rg_pool_member *member = member_of(mirror, id);
    if (!member)
        return;
    json_decref(member->value);
    member->value = json_incref(value);
    member->seen = true;
    member->created = created;
    member->changed = changed;
    member->address = json_string_value(json_object_get(value, "address"));
    member->host = json_string_value(json_object_get(value, "host"));
    member->cuda = json_string_value(json_object_get(value, "cuda"));
    member->driver = json_string_value(json_object_get(value, "driver"));
    member->agent = json_string_value(json_object_get(value, "agent"));
    member->rdma = json_is_true(json_object_get(value, "rdma"));
    member->draining = json_is_true(json_object_get(value, "draining"));
    member->suspends = json_is_integer(json_object_get(value, "preempt"));
    member->rest_s = rg_json_get_number(value, "preempt", 0);
    member->etcd_lease = strtoll(rg_json_get_text(value, "etcd_lease"), NULL, 10);
}

static int get_group(const json_t *object, const char *name)
{
    const uint64_t number = rg_json_get_number(object, name, UINT64_MAX);
    return number < 1u << 20 ? (int)number : -1;
}

static void put_shares(struct rg_pool_gpu *gpu, const json_t *granted)
{
    const json_t *one;
    size_t i;
    gpu->n_shares = 0;
    json_array_foreach(granted, i, one)
    {
        if (gpu->n_shares < RG_POOL_SHARES_MAX &&
            rg_mirror_read_share(one, gpu->memory, &gpu->shares[gpu->n_shares]))
            gpu->n_shares++;
    }
}

void rg_mirror_put_gpu(struct rg_pool_mirror *mirror, const char *id, uint32_t index, const json_t *value,
                       int64_t changed)
{
    struct rg_pool_member *member = member_of(mirror, id);
    struct rg_pool_gpu *gpu = member ? rg_pool_mirror_gpu(member, index) : NULL;
    if (!gpu && (!member || member->n_gpus == RG_DEVICES_MAX || !(gpu = calloc(1, sizeof *gpu))))
        return;
    if (!rg_pool_mirror_gpu(member, index)) {
        uint32_t place = member->n_gpus++;
        for (; place > 0 && member->gpus[place - 1]->index > index; place--)
            member->gpus[place] = member->gpus[place - 1];
        member->gpus[place] = gpu;
    }
    gpu->seen = true;
    gpu->changed = changed;
    gpu->index = index;
    gpu->memory = rg_json_get_number(value, "memory", 0);
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", rg_json_get_text(value, "uuid"));
    snprintf(gpu->name, sizeof gpu->name, "%s", rg_json_get_text(value, "name"));
    gpu->numa_node = get_group(value, "numa");
    gpu->nvlink_group = get_group(value, "nvlink");
    gpu->pcie_group = get_group(value, "pcie");
    put_shares(gpu, json_object_get(value, "granted"));
}

static void sweep_member(struct rg_pool_member *member)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < member->n_gpus; i++)
        if (member->gpus[i]->seen)
            member->gpus[n++] = member->gpus[i];
        else
            free(member->gpus[i]);
    member->n_gpus = n;
    if (!member->seen) {
        json_decref(member->value);
        member->value = NULL;
        member->address = member->host = member->cuda = member->driver = member->agent = NULL;
    }
}

void rg_mirror_sweep_members(struct rg_pool_mirror *mirror)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        struct rg_pool_member *member = mirror->members[i];
        sweep_member(member);
        if (member->value || member->n_gpus) {
            mirror->members[n++] = member;
        } else {
            rg_hash_table_remove(&mirror->members_by_id, &member->link);
            free(member);
        }
    }
    mirror->n_members = n;
}
