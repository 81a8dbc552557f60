/* attach.c - the gate of a worker that the daemon started: its share is in the slot, its places on the devices' pages. */
#include "server/shares/gate/attach.h"

#include "server/shares/gate/gate.h"
#include "server/shares/worker/share.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

static enum rg_turn_priority priority_of(enum rg_share_priority priority)
{
    return priority == RG_SHARE_PRIORITY_HIGH  ? RG_TURN_HIGH
           : priority == RG_SHARE_PRIORITY_LOW ? RG_TURN_LOW
                                               : RG_TURN_NORMAL;
}

static void share(struct rg_gate_share *out, uint32_t *changed)
{
    if (*changed && rg_share_slot_sequence(rg_share.slot) + 1 == *changed)
        return;
    struct rg_share_grant grant;
    uint32_t sequence;
    rg_share_slot_get(rg_share.slot, &grant, &sequence);
    *out = (struct rg_gate_share){
        .cap_millionths = grant.compute_millionths,
        .weight = grant.weight,
        .priority = priority_of(grant.priority),
    };
    *changed = sequence + 1; /* 0: not asked yet */
}

/* MPS orders the work: nobody's turn is waited for, and no time is capped. */
static void share_without_turns(struct rg_gate_share *out, uint32_t *changed)
{
    *out = (struct rg_gate_share){.weight = 1, .priority = RG_TURN_NORMAL};
    *changed = 1;
}

static void counted(uint32_t device, const struct rg_gate_counts *counts)
{
    struct rg_share_usage_device *usage = rg_share_usage(device);
    if (!usage)
        return;
    atomic_store_explicit(&usage->busy_ns, counts->busy_ns, memory_order_relaxed);
    atomic_store_explicit(&usage->throttled_ns, counts->throttled_ns, memory_order_relaxed);
    _Atomic uint64_t *last = &rg_share.slot->usage.last_use_ns;
    if (counts->last_use_ns > atomic_load_explicit(last, memory_order_relaxed))
        atomic_store_explicit(last, counts->last_use_ns, memory_order_relaxed);
}

/* Each device's time is measured all the same, as of a session that is alone there. The turns stay as long as the process. */
static enum rg_status attach_without_turns(struct rg_worker *worker)
{
    struct rg_gate_attachment attachments[RG_DEVICES_MAX];
    struct rg_turns *own = aligned_alloc(alignof(struct rg_turns), (rg_share.n_devices + 1) * sizeof *own);
    if (!own)
        return RG_ERR_NO_MEMORY;
    memset(own, 0, rg_share.n_devices * sizeof *own);
    for (uint32_t i = 0; i < rg_share.n_devices; i++)
        attachments[i] = (struct rg_gate_attachment){.turns = &own[i], .place = 0};
    return rg_gate_start(worker, attachments, rg_share.n_devices, share_without_turns, counted);
}

enum rg_status rg_gate_attach(struct rg_worker *worker)
{
    struct rg_gate_attachment attachments[RG_DEVICES_MAX];
    const char *turns = getenv("REMOTE_GPU_TURNS");
    if (!rg_share.slot || (turns && strcmp(turns, "off") == 0 && !rg_share.grant.compute_millionths))
        return RG_OK;
    if (rg_share.grant.mps)
        return attach_without_turns(worker);
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        const struct rg_share_account *account = &rg_share.accounts[i];
        attachments[i] =
            (struct rg_gate_attachment){.turns = &account->device.page->turns, .place = account->place};
        if (account->place >= RG_TURN_PLACES)
            return RG_ERR_INVALID;
    }
    return rg_gate_start(worker, attachments, rg_share.n_devices, share, counted);
}
