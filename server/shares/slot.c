/* slot.c - see slot.h. */
#include "server/shares/slot.h"

#include "server/shares/shared_memory.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

struct rg_share_slot *rg_share_slot_create(const struct rg_share_grant *grant, int *fd)
{
    struct rg_share_slot *slot = rg_shared_memory_create("remote-gpu-share", sizeof *slot, fd);
    if (!slot)
        return NULL;
    slot->size = sizeof *slot;
    slot->grant = *grant;
    return slot;
}

struct rg_share_slot *rg_share_slot_open(int fd)
{
    size_t size = 0;
    struct rg_share_slot *slot = rg_shared_memory_open(fd, sizeof *slot, &size);
    if (slot && (size != sizeof *slot || slot->size != sizeof *slot)) {
        (void)munmap(slot, size);
        return NULL;
    }
    return slot;
}

void rg_share_slot_close(struct rg_share_slot *slot)
{
    if (slot)
        (void)munmap(slot, sizeof *slot);
}

void rg_share_slot_set(struct rg_share_slot *slot, const struct rg_share_grant *grant)
{
    /* whatever the worker may have written there: even before and after */
    const uint32_t now = atomic_load_explicit(&slot->sequence, memory_order_relaxed) & ~1u;
    atomic_store_explicit(&slot->sequence, now + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(&slot->grant, grant, sizeof *grant);
    atomic_store_explicit(&slot->sequence, now + 2, memory_order_release);
}

void rg_share_slot_get(const struct rg_share_slot *slot, struct rg_share_grant *out, uint32_t *sequence)
{
    for (;;) {
        uint32_t began;
        while ((began = atomic_load_explicit(&slot->sequence, memory_order_acquire)) & 1)
            sched_yield(); /* the monitor is quick */
        memcpy(out, &slot->grant, sizeof *out);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) != began)
            continue;
        if (sequence)
            *sequence = began;
        return;
    }
}

static uint64_t count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void rg_share_slot_show(const struct rg_share_slot *slot, const struct rg_share_grant *grant,
                        struct rg_session_info *info)
{
    const struct rg_share_usage *usage = &slot->usage;
    const uint32_t state = atomic_load_explicit(&usage->state, memory_order_relaxed);
    info->n_shares = info->n_devices = grant->n_devices;
    info->compute_millionths = grant->compute_millionths;
    info->weight = grant->weight;
    info->priority = grant->priority;
    info->idle_timeout_ns = grant->idle_timeout_ns;
    info->overcommitted = grant->overcommitted;
    info->exclusive = grant->exclusive;
    info->sharing = rg_share_grant_sharing(grant);
    memcpy(info->project, grant->project, sizeof info->project);
    info->state = state < RG_SHARE_STATES ? (enum rg_share_state)state : RG_SHARE_UNKNOWN;
    if ((info->state == RG_SHARE_RUNNING || info->state == RG_SHARE_IDLE) && atomic_load(&usage->waits))
        info->state = RG_SHARE_WAITING;
    info->launches = 0;
    for (uint32_t i = 0; i < grant->n_devices; i++) {
        const struct rg_share_usage_device *device = &usage->devices[i];
        info->shares[i] = (struct rg_share_info){.memory_limit = grant->devices[i].memory_limit,
                                                 .memory_used = count(&device->memory),
                                                 .memory_peak = count(&device->memory_peak),
                                                 .busy_ns = count(&device->busy_ns),
                                                 .throttled_ns = count(&device->throttled_ns)};
        info->launches += count(&device->launches);
    }
}
