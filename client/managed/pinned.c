/*
 * pinned.c - page-locked memory is mapped into the device, and no longer (pinned.h).
 *
 * To map a range: copies that are queued for it come to their end, transports let go of it, the worker gets memory at its pages (an
 * *area*, of one range or of several that share pages), and the pages are shared; those at the ends, which others may have a part of, in
 * part (unified.h). What fails on the way is undone, and the call that needs the memory fails. `lock` is held for writing while memory
 * is mapped or its mapping ends.
 */
#include "client/managed/pinned.h"

#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/managed/pinned_scan.h"
#include "client/managed/unified.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/base/log.h"
#include "common/base/maps.h"
#include "common/base/poll.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Memory that the worker has at our address: of one mapped range, or of several that share pages. */
struct area {
    struct area *next;
    uint64_t start, end, context;
};

/* A mapped range. */
struct mapped {
    struct mapped *next;
    uint64_t start, end, context;
    bool registered;
    bool exchanged; /* others may have the memory at other addresses, which no trap notices */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct area *areas;
static struct mapped *all_mapped;
static atomic_uint n_mapped;

static uint64_t page_down(uint64_t address)
{
    return address & ~(uint64_t)(RG_PAGE - 1);
}

static uint64_t page_up(uint64_t address)
{
    return page_down(address + RG_PAGE - 1);
}

bool rg_pinned_forbid_mapping(void)
{
    return pthread_rwlock_rdlock(&lock) == 0;
}

void rg_pinned_allow_mapping(void)
{
    pthread_rwlock_unlock(&lock);
}

/* --- mapping -------------------------------------------------------------------------------------------- */

/* Lets the worker have memory at the pages that it does not have yet. */
static CUresult have_areas(uint64_t start, uint64_t end)
{
    while (start < end) {
        uint64_t next = end;
        const struct area *here = NULL;
        for (const struct area *area = areas; area; area = area->next) {
            if (start >= area->start && start < area->end)
                here = area;
            else if (area->start > start && area->start < next)
                next = area->start;
        }
        if (here) {
            start = here->end;
            continue;
        }
        struct area *area = malloc(sizeof *area);
        CUresult status = area ? rg_op_rgHostMap(start, next - start) : CUDA_ERROR_OUT_OF_MEMORY;
        if (status != CUDA_SUCCESS) {
            free(area);
            return status;
        }
        *area =
            (struct area){.next = areas, .start = start, .end = next, .context = rg_context_current_owner()};
        areas = area;
        start = next;
    }
    return CUDA_SUCCESS;
}

static bool used(const struct area *area)
{
    for (const struct mapped *mapped = all_mapped; mapped; mapped = mapped->next)
        if (page_down(mapped->start) < area->end && page_up(mapped->end) > area->start)
            return true;
    return false;
}

static void drop_unused_areas(void)
{
    for (struct area **at = &areas; *at;) {
        struct area *area = *at;
        if (used(area)) {
            at = &area->next;
            continue;
        }
        *at = area->next;
        if (rg_handle_shadow(RG_KIND_CONTEXT, area->context))
            (void)rg_op_rgHostUnmap(area->start);
        free(area);
    }
}

/*
 * A shared mapping may be mapped elsewhere, here or in other processes: what they write is trapped by nobody, and pages that wait for a
 * touch would never come to them. All of it is exchanged at every call then, as long as that is little in all.
 */
static bool is_exchanged(const struct mapped *mapped)
{
    const uint64_t size = mapped->end - mapped->start;
    uint64_t sum = size;
    for (const struct mapped *other = all_mapped; other && sum <= RG_UNIFIED_EXCHANGED_BYTES;
         other = other->next)
        sum += other->exchanged ? other->end - other->start : 0;
    return mapped->registered && sum <= RG_UNIFIED_EXCHANGED_BYTES &&
           rg_maps_shared((void *)(uintptr_t)mapped->start, size);
}

/* The whole pages of a range: others hold other things of the program too. All of what was allocated is
 * ours. */
static void whole_pages(const struct mapped *mapped, uint64_t *first, uint64_t *last)
{
    *first = page_up(mapped->start);
    *last = mapped->registered ? page_down(mapped->end) : page_up(mapped->end);
}

static void end_sharing(const struct mapped *mapped)
{
    uint64_t first, last;
    if (mapped->exchanged) {
        rg_unified_remove_partial(mapped->start);
        return;
    }
    whole_pages(mapped, &first, &last);
    if (first < last)
        rg_unified_remove(first, mapped->registered);
    if (first > mapped->start)
        rg_unified_remove_partial(mapped->start);
    if (last < mapped->end && last >= first)
        rg_unified_remove_partial(last);
}

static CUresult begin_sharing(const struct mapped *mapped)
{
    uint64_t first, last;
    if (mapped->exchanged)
        return rg_unified_add_partial(mapped->start, mapped->end - mapped->start);
    whole_pages(mapped, &first, &last);
    CUresult status = CUDA_SUCCESS;
    if (first > mapped->start)
        status = rg_unified_add_partial(mapped->start,
                                        (mapped->end < first ? mapped->end : first) - mapped->start);
    if (status == CUDA_SUCCESS && last < mapped->end && last >= first)
        status = rg_unified_add_partial(last, mapped->end - last);
    if (status == CUDA_SUCCESS && first < last)
        status = rg_unified_add(RG_UNIFIED_HOST, first, last - first);
    if (status != CUDA_SUCCESS)
        end_sharing(mapped);
    return status;
}

/* Queued copies have to be done with the memory first: they go to the device's side of it afterwards. */
static CUresult wait_for_transfers(const struct rg_range *range)
{
    CUresult status = rg_call_allowed(RG_TRAIT_CONTEXT);
    while (status == CUDA_SUCCESS && rg_transfers_meet(range->start, range->size)) {
        rg_pause(200000);
        status = rg_call_allowed(RG_TRAIT_CONTEXT);
    }
    return status;
}

static CUresult map_range(const struct rg_range *range)
{
    struct mapped *mapped = malloc(sizeof *mapped);
    if (!mapped)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *mapped = (struct mapped){.start = range->start,
                              .end = range->start + range->size,
                              .context = rg_context_current_owner(),
                              .registered = range->kind == RG_RANGE_REGISTERED};
    mapped->exchanged = is_exchanged(mapped);
    CUresult status = wait_for_transfers(range);
    rg_sessions_withdraw((void *)(uintptr_t)range->start); /* its pages come and go from now on */
    if (status == CUDA_SUCCESS)
        status = rg_op_rgUnifiedOpen();
    if (status == CUDA_SUCCESS)
        status = have_areas(page_down(mapped->start), page_up(mapped->end));
    if (status == CUDA_SUCCESS)
        status = begin_sharing(mapped);
    if (status != CUDA_SUCCESS) {
        drop_unused_areas();
        free(mapped);
        rg_error("host memory at %#llx could not be mapped into the device (error %d)",
                 (unsigned long long)range->start, (int)status);
        return status;
    }
    mapped->next = all_mapped;
    all_mapped = mapped;
    atomic_fetch_add(&n_mapped, 1);
    rg_map_set_mapped(range->start, mapped->context); /* before others may do without the lock */
    rg_pinned_count_unmapped(-1);
    return CUDA_SUCCESS;
}

/*
 * Maps the page-locked memory that holds `address`. Success if there is none, or it is mapped already. Waits until no copy that is
 * queued uses it.
 */
static CUresult map(uint64_t address)
{
    struct rg_range range;
    if (!rg_pinned_is_unmapped(address, &range))
        return CUDA_SUCCESS;
    pthread_rwlock_wrlock(&lock);
    CUresult status = rg_pinned_is_unmapped(address, &range) ? map_range(&range) : CUDA_SUCCESS;
    pthread_rwlock_unlock(&lock);
    return status;
}

CUresult rg_pinned_map_in_time(uint64_t address)
{
    struct rg_range range;
    if (!rg_pinned_is_unmapped(address, &range) || !rg_transfers_meet(range.start, range.size))
        return map(address);
    return rg_unified_want(address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_pinned_unmap(uint64_t start)
{
    pthread_rwlock_wrlock(&lock);
    for (struct mapped **at = &all_mapped; *at; at = &(*at)->next) {
        struct mapped *mapped = *at;
        if (mapped->start != start)
            continue;
        end_sharing(mapped);
        *at = mapped->next;
        atomic_fetch_sub(&n_mapped, 1);
        free(mapped);
        drop_unused_areas();
        rg_pinned_count_unmapped(1);
        rg_map_set_mapped(start, 0);
        break;
    }
    pthread_rwlock_unlock(&lock);
}

bool rg_pinned_add(const struct rg_range *range, size_t length)
{
    if (!rg_map_add(range))
        return false;
    rg_pinned_cover(range->start, range->size);
    rg_pinned_count_unmapped(1);
    rg_sessions_announce((void *)(uintptr_t)range->start, length);
    return true;
}

/* Of all contexts, as copies may be queued in others than the current one. */
CUresult rg_pinned_wait(const struct rg_range *range)
{
    CUresult status = CUDA_SUCCESS;
    uint64_t context = 0;
    while (rg_transfers_meet(range->start, range->size) &&
           rg_handle_list(RG_KIND_CONTEXT, context, &context, 1)) {
        const CUresult waited = rg_timeline_wait_context((CUcontext)context);
        status = status == CUDA_SUCCESS ? waited : status;
    }
    return status;
}

bool rg_pinned_remove(struct rg_range *range)
{
    if (!rg_map_remove(range->start, 1u << range->kind, range))
        return false;
    rg_pinned_count_unmapped(-1);
    rg_transfers_revoke(range->start, range->size);
    rg_sessions_withdraw((void *)(uintptr_t)range->start);
    return true;
}

void rg_pinned_context_ends(uint64_t context)
{
    pthread_rwlock_wrlock(&lock);
    for (struct mapped **at = &all_mapped; *at;) {
        struct mapped *mapped = *at;
        if (mapped->context != context) {
            at = &mapped->next;
            continue;
        }
        end_sharing(mapped);
        rg_pinned_count_unmapped(1);
        rg_map_set_mapped(mapped->start, 0);
        *at = mapped->next;
        atomic_fetch_sub(&n_mapped, 1);
        free(mapped);
    }
    for (struct area **at = &areas; *at;) { /* the worker's go with its context */
        struct area *area = *at;
        if (area->context != context) {
            at = &area->next;
            continue;
        }
        *at = area->next;
        free(area);
    }
    pthread_rwlock_unlock(&lock);
}

/* --- addresses that a kernel will see ------------------------------------------------------------------- */

CUresult rg_pinned_map_list(struct rg_pinned_list *list)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < list->n && status == CUDA_SUCCESS; i++)
        status = map(list->start[i]);
    free(list->start);
    *list = (struct rg_pinned_list){0};
    return status;
}

CUresult rg_pinned_scan(const void *data, size_t size)
{
    if (!rg_pinned_any_unmapped())
        return CUDA_SUCCESS;
    struct rg_pinned_list list = {0};
    const bool good = rg_pinned_find(data, size, &list);
    CUresult status = rg_pinned_map_list(&list);
    return good ? status : CUDA_ERROR_OUT_OF_MEMORY;
}

bool rg_pinned_on_device(uint64_t address, size_t pitch, size_t width, size_t height, bool write)
{
    return (!rg_pinned_any_unmapped() || map(address) == CUDA_SUCCESS) &&
           rg_usable_on_device(address, pitch, width, height, write);
}

/* Whether the host has the memory there as well, and need not ask before it uses it. */
static bool shared_at(uint64_t address)
{
    struct rg_range range;
    return address && (rg_unified_meets(address, 1) ||
                       (rg_map_find(address, &range) && rg_range_pinned(&range) && range.mapped));
}

CUresult rg_pinned_copied(CUresult status, uint64_t to, uint64_t from, CUstream stream, bool asynchronous)
{
    if (status != CUDA_SUCCESS || asynchronous ||
        (!rg_unified_any() && !atomic_load_explicit(&n_mapped, memory_order_relaxed)) ||
        (!shared_at(to) && !shared_at(from)))
        return status;
    return rg_op_cuStreamSynchronize(stream);
}

CUresult rg_pinned_settle(CUresult status, CUdeviceptr address)
{
    return rg_pinned_copied(status, address, 0, rg_effective_stream(NULL), false);
}
