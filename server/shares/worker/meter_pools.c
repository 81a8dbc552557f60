/* meter_pools.c - the pools of memory that are known, which say themselves what they have taken. See meter.h. */
#include "common/sync/scoped_lock.h"
#include "server/shares/worker/meter_internal.h"

#include <stdlib.h>

static struct rg_meter_pool **pool_link(CUmemoryPool pool)
{
    struct rg_meter_pool **link = &rg_meter_all.pools;
    while (*link && (*link)->pool != pool)
        link = &(*link)->next;
    return link;
}

void rg_meter_pool_add(CUmemoryPool pool, CUdevice device)
{
    if (!rg_meter_account_of(device))
        return;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    struct rg_meter_pool *new = *pool_link(pool) ? NULL : calloc(1, sizeof *new);
    if (!new)
        return;
    *new = (struct rg_meter_pool){.next = rg_meter_all.pools, .pool = pool, .device = device};
    rg_meter_all.pools = new;
}

void rg_meter_pool_drop(CUmemoryPool pool)
{
    if (!rg_share.slot)
        return;
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    struct rg_meter_pool **link = pool_link(pool), *gone = *link;
    CUdevice device;
    if (gone) {
        struct rg_share_account *account = rg_meter_account_of(gone->device);
        rg_share_refund(account, gone->charged);
        rg_meter_tell(account);
        *link = gone->next;
        free(gone);
    }
    if (rg_share.own_memory && rg_meter_current(&device))
        rg_meter_look_locked(device);
}

bool rg_meter_pool_device(CUmemoryPool pool, CUdevice *device)
{
    RG_SCOPED_LOCK(&rg_meter_all.lock);
    const struct rg_meter_pool *found = *pool_link(pool);
    if (found)
        *device = found->device;
    return found != NULL;
}
