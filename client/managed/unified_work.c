/*
 * unified_work.c - what calls do about shared memory: before work, what the host has written leaves; after a
 * wait, and around a host function, the host sees what the device has written. See unified.h.
 */
#include "client/managed/faults.h"
#include "client/managed/managed_ranges.h"
#include "client/managed/partial_pages.h"
#include "client/managed/pinned.h"
#include "client/managed/write_shared.h"
#include "common/base/status.h"
#include "common/sync/scoped_lock.h"

CUresult rg_unified_begin_work(bool kernel, bool *begun)
{
    *begun = false;
    if (!rg_unified_any())
        return CUDA_SUCCESS;
    CUresult status = CUDA_SUCCESS;
    for (;;) {
        pthread_mutex_lock(&rg_managed_ranges.lock);
        if (rg_managed_ranges.n_held || rg_write_shared_any() || atomic_load(&rg_partial_pages_n))
            status = rg_unified_release_all();
        struct rg_pinned_list list;
        if (!kernel || status != CUDA_SUCCESS || !rg_unified_take_wanted(&list))
            break;
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        RG_TRY(rg_pinned_map_list(&list));
    }
    *begun = status == CUDA_SUCCESS;
    if (!*begun)
        pthread_mutex_unlock(&rg_managed_ranges.lock);
    return status;
}

void rg_unified_end_work(void)
{
    rg_managed_ranges.epoch++;
    const bool any = atomic_load(&rg_partial_pages_n), wake = any && !rg_managed_ranges.partial_at_work;
    rg_managed_ranges.partial_at_work = any;
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    if (wake)
        rg_touches_wake();
}

void rg_unified_settle(void)
{
    if (rg_unified_any())
        rg_faults_refresh(); /* what is touched next may be trapped */
    if (!rg_write_shared_any() && !rg_managed_ranges.partial_at_work)
        return;
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    rg_write_shared_close_all();
    if (rg_managed_ranges.partial_at_work)
        (void)rg_partial_pages_exchange(&rg_managed_ranges.lock, true);
}

void rg_unified_host_call_begins(void)
{
    atomic_fetch_add(&rg_managed_ranges.host_calls, 1);
    rg_unified_settle();
}

void rg_unified_host_call_ends(void)
{
    if (rg_unified_any()) {
        pthread_mutex_lock(&rg_managed_ranges.lock);
        (void)rg_unified_release_all();
        rg_write_shared_close_all();
        pthread_mutex_unlock(&rg_managed_ranges.lock);
    }
    atomic_fetch_sub(&rg_managed_ranges.host_calls, 1);
}
