/*
 * self.c - what this server writes of itself in the pool: its own key, its GPUs with what is granted of them, and the leases that are
 * bound to its being there.
 */
#include "common/base/uuid_text.h"
#include "server/pool/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "KEY=VALUE" texts, or "KEY" alone, as an object. */
static json_t *labels_json(const char (*texts)[RG_CONTROL_TEXT], uint32_t n)
{
    json_t *labels = json_object();
    for (uint32_t i = 0; labels && i < n; i++) {
        char name[RG_CONTROL_TEXT];
        snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1, texts[i]);
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        (void)json_object_set_new(labels, name, json_string(value ? value : ""));
    }
    return labels;
}

json_t *rg_self_server(const struct rg_agent *agent)
{
    static struct rg_driver driver; /* large */
    const struct rg_membership *membership = &agent->membership;
    char host[RG_CONTROL_TEXT] = "", cuda[24], lease[24];
    (void)rg_board_driver(agent->board, &driver);
    (void)gethostname(host, sizeof host - 1);
    snprintf(cuda, sizeof cuda, "%u.%u", driver.info.version / 1000, driver.info.version % 1000 / 10);
    snprintf(lease, sizeof lease, "%" PRId64, membership->etcd_lease);
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s*, s:s, s:b, s:b, s:o*, s:s, s:s, s:o, s:o}", "version", 1, "address",
        agent->settings.address, "host", host, "software", RG_VERSION, "cuda", cuda, "driver",
        driver.info.release[0] ? driver.info.release : NULL, "kind", driver.info.kind, "rdma",
        agent->settings.rdma && driver.machine.rails[0], "draining", (int)membership->draining, "preempt",
        agent->settings.suspends ? json_integer(agent->settings.rest_s) : NULL, "etcd_lease", lease, "agent",
        agent->run, "labels",
        labels_json((const char(*)[RG_CONTROL_TEXT])agent->settings.labels, agent->settings.n_labels),
        "taints",
        labels_json((const char(*)[RG_CONTROL_TEXT])agent->settings.taints, agent->settings.n_taints));
}

/* Whether it was there when etcd got another past, which may have lost it. */
static bool is_from_before(const struct rg_agent *agent, const struct rg_own_lease *lease)
{
    return rg_scope_is_settling(agent) && lease->told && !lease->gone_told;
}

/* What a lease has of a GPU of ours, unless that is there. */
static void add_share(const struct rg_agent *agent, struct rg_pool_gpu *gpu, const char *id,
                      const json_t *lease)
{
    const json_t *one;
    size_t i;
    for (uint32_t j = 0; j < gpu->n_shares; j++)
        if (strcmp(gpu->shares[j].lease, id) == 0)
            return;
    json_array_foreach(json_object_get(lease, "gpus"), i, one)
    {
        if (strcmp(rg_json_get_text(one, "server"), agent->id) != 0 ||
            rg_json_get_number(one, "index", UINT64_MAX) != gpu->index || gpu->n_shares == RG_POOL_SHARES_MAX)
            continue;
        struct rg_pool_share *share = &gpu->shares[gpu->n_shares++];
        snprintf(share->lease, sizeof share->lease, "%s", id);
        share->memory = rg_json_get_number(one, "memory", gpu->memory);
    }
}

/*
 * What runs here is what is true, whatever etcd says, which may have got another past: sessions that run have their parts, those that are
 * suspended have not, and where that is more than there is, whose sessions do not run is suspended.
 */
static void settle_shares(const struct rg_agent *agent, struct rg_pool_gpu *gpu)
{
    bool runs[RG_POOL_SHARES_MAX];
    for (uint32_t i = 0; i < gpu->n_shares; i++) {
        struct rg_pool_share *share = &gpu->shares[i];
        const struct rg_own_lease *lease = rg_own_find(&agent->own, share->lease);
        const bool away = lease && lease->suspension == RG_AGENT_SUSPENDED;
        runs[i] = lease && lease->sessions && !away;
        if (away && share->state == RG_POOL_SHARE_ACTIVE)
            share->state = RG_POOL_SHARE_SUSPENDED;
        else if (runs[i] && share->state == RG_POOL_SHARE_SUSPENDED)
            share->state = RG_POOL_SHARE_ACTIVE;
    }
    for (uint32_t i = gpu->n_shares; i-- > 0 && rg_pool_gpu_held(gpu) > gpu->memory;)
        if (!runs[i])
            gpu->shares[i].state = RG_POOL_SHARE_SUSPENDED;
}

/* A GPU as the driver has it, with what is granted of it. */
static json_t *gpu_json(const struct rg_agent *agent, const struct rg_device_info *device, int64_t *changed)
{
    const struct rg_pool_member *self = NULL;
    struct rg_pool_gpu gpu = {0};
    for (uint32_t i = 0; i < agent->mirror.n_members && !self; i++) /* also one whose own key is lost */
        if (strcmp(agent->mirror.members[i]->id, agent->id) == 0)
            self = agent->mirror.members[i];
    const struct rg_pool_gpu *known = self ? rg_pool_mirror_gpu(self, device->ordinal) : NULL;
    if (known)
        gpu = *known;
    *changed = known ? known->changed : 0;
    gpu.index = device->ordinal;
    gpu.memory = device->memory_total;
    snprintf(gpu.name, sizeof gpu.name, "%.*s", (int)sizeof gpu.name - 1, device->name);
    rg_uuid_text(device->uuid, device->mig, gpu.uuid, sizeof gpu.uuid);
    gpu.numa_node = (int)device->numa_node - 1;
    gpu.nvlink_group = (int)device->nvlink_group - 1;
    gpu.pcie_group = (int)device->pcie_group - 1;
    /* etcd has lost it while sessions ran here, or while it could be granted without our knowing: they have what they had */
    for (uint32_t i = 0; i < agent->own.n; i++)
        if (!known || agent->own.leases[i]->sessions || is_from_before(agent, agent->own.leases[i]))
            add_share(agent, &gpu, agent->own.leases[i]->id, agent->own.leases[i]->value);
    for (uint32_t i = 0; !known && i < agent->mirror.n_leases; i++)
        add_share(agent, &gpu, agent->mirror.leases[i]->id, agent->mirror.leases[i]->value);
    settle_shares(agent, &gpu);
    return rg_pool_gpu_json(&gpu);
}

void rg_self_add_gpus(struct rg_agent *agent, json_t *compare, json_t *puts)
{
    static struct rg_driver driver;
    (void)rg_board_driver(agent->board, &driver);
    for (uint32_t i = 0; i < driver.n_devices; i++) {
        int64_t changed = 0;
        json_t *value = gpu_json(agent, &driver.devices[i], &changed);
        json_array_append_new(compare,
                              rg_agent_compare(changed, rg_agent_key(agent, "servers/%s/gpus/%u", agent->id,
                                                                     driver.devices[i].ordinal)));
        json_array_append_new(puts, rg_agent_put(rg_agent_key(agent, "servers/%s/gpus/%u", agent->id,
                                                              driver.devices[i].ordinal),
                                                 value, agent->membership.etcd_lease));
    }
}

void rg_self_add_leases(struct rg_agent *agent, json_t *compare, json_t *puts)
{
    for (uint32_t i = 0; i < agent->own.n; i++) {
        const struct rg_own_lease *lease = agent->own.leases[i];
        const struct rg_pool_entry *held = rg_pool_mirror_lease(&agent->mirror, lease->id);
        /* what the monitor has told of it says neither who holds it nor that it is kept */
        json_t *value = held ? held->value : lease->value;
        const json_t *first = json_array_get(json_object_get(value, "gpus"), 0);
        if (!value || json_is_true(json_object_get(value, "kept")) ||
            (!held && lease->sessions == 0 && !is_from_before(agent, lease)) ||
            strcmp(rg_json_get_text(first, "server"), agent->id) != 0)
            continue;
        json_array_append_new(
            compare, rg_agent_compare(held ? held->changed : 0, rg_agent_key(agent, "leases/%s", lease->id)));
        json_array_append_new(puts, rg_agent_put(rg_agent_key(agent, "leases/%s", lease->id),
                                                 json_incref(value), agent->membership.etcd_lease));
    }
}
