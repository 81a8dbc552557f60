/*
 * meter_change.c - what only a change of the device's free memory tells: contexts, modules, libraries, communicators. See meter.h.
 *
 * Happy path: the free memory is asked before and after, and what is missing is charged, less what was charged meanwhile, here or by other
 * sessions. Where it is not known, nothing is charged. What is more than is left is the caller's to undo.
 */
#include "common/sync/scoped_lock.h"
#include "server/shares/worker/meter_internal.h"

static bool free_of(CUdevice device, uint64_t *available)
{
    size_t now, total;
    CUdevice current;
    if (!rg_meter_current(&current) || current != device ||
        rg_share_direct.cuMemGetInfo_v2(&now, &total) != CUDA_SUCCESS)
        return false;
    *available = now;
    return true;
}

void rg_meter_watch(struct rg_meter_change *change, CUdevice device)
{
    *change = (struct rg_meter_change){.device = device};
    if (!rg_meter_account_of(device) || rg_share.own_memory)
        return;
    change->held_before = rg_share_held_by_all(&rg_meter_account_of(device)->device);
    change->known = free_of(device, &change->free_before);
}

void rg_meter_watch_current(struct rg_meter_change *change)
{
    CUdevice device;
    rg_meter_watch(change, rg_meter_current(&device) ? device : -1);
}

/*
 * Without a context nothing could be asked before it was made. What is in use then, beyond what was when no session ran and what
 * sessions hold, is its own.
 */
static bool guess_before(const struct rg_meter_change *change, uint64_t *out)
{
    const uint64_t idle = atomic_load(&rg_meter_account_of(change->device)->device.page->idle);
    size_t available, total;
    if (rg_share_direct.cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS)
        return false;
    *out = total > idle && total - idle > change->held_before ? total - idle - change->held_before : 0;
    return true;
}

/*
 * How much less is free, but for what was charged meanwhile, here or by other sessions. What was given back meanwhile does not
 * count: it was free before the ledger had it so.
 */
static uint64_t taken_since(const struct rg_meter_change *change, uint64_t free_before, uint64_t free_now)
{
    const uint64_t held = rg_share_held_by_all(&rg_meter_account_of(change->device)->device);
    const uint64_t charged = held > change->held_before ? held - change->held_before : 0;
    const uint64_t gone = free_before > free_now ? free_before - free_now : 0;
    return gone > charged ? gone - charged : 0;
}

bool rg_meter_watched(const struct rg_meter_change *change, CUresult result, enum rg_meter_kind kind,
                      uint64_t key)
{
    struct rg_share_account *account = rg_meter_account_of(change->device);
    uint64_t free_now, free_before = change->free_before;
    if (!account || result != CUDA_SUCCESS)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    if (rg_share.own_memory) {
        rg_meter_look_locked(change->device);
        return !rg_meter_is_over(account);
    }
    if (!free_of(change->device, &free_now) || (!change->known && !guess_before(change, &free_before)))
        return true;
    const uint64_t taken = taken_since(change, free_before, free_now);
    if (taken && !rg_meter_charge_locked(account, change->device, taken))
        return false;
    if (taken)
        rg_meter_add_entry(kind, key, change->device, taken);
    rg_meter_tell(account);
    return true;
}

bool rg_meter_instance_end(struct rg_meter *meter, const struct rg_meter_change *change, CUresult result,
                           uint64_t key)
{
    struct rg_share_account *account = meter->account;
    uint64_t free_now, taken = result == CUDA_SUCCESS ? meter->charged : 0;
    bool fits = true;
    if (!account)
        return true;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    rg_meter_all.pending[meter->device] -= meter->charged;
    if (change->known && free_of(meter->device, &free_now)) {
        const uint64_t shown = taken_since(change, change->free_before, free_now);
        taken = result == CUDA_SUCCESS && shown > taken ? shown : taken;
    }
    if (taken > meter->charged)
        fits = rg_meter_charge_locked(account, meter->device, taken - meter->charged);
    if (!fits)
        rg_share_charge_anyway(account, taken - meter->charged);
    if (taken < meter->charged)
        rg_share_refund(account, meter->charged - taken);
    if (taken)
        rg_meter_add_entry(RG_METER_INSTANCE, key, meter->device, taken);
    rg_meter_tell(account);
    return fits;
}
