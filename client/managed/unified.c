/*
 * unified.c - see unified.h: the shares, what leaves for the device before work, begin and end of a share. The lock of shared
 * pages (unified_pages.h) is held while pages leave.
 */
#include "client/managed/unified.h"

#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/faults.h"
#include "client/managed/partial_pages.h"
#include "client/managed/pinned.h"
#include "client/managed/unified_pages.h"
#include "client/managed/write_shared.h"
#include "client/transfer/transfer.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct rg_managed_ranges rg_managed_ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* What the device will want of page-locked memory: pointers to it have left. */
static struct rg_pinned_list wanted;

/* --- the shares -------------------------------------------------------------------------------------------------- */

size_t rg_managed_ranges_after(uint64_t address)
{
    size_t low = 0, high = rg_managed_ranges.n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rg_managed_ranges.at[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rg_managed_range *rg_managed_ranges_find(uint64_t address)
{
    const size_t at = rg_managed_ranges_after(address);
    return at > 0 && address - rg_managed_ranges.at[at - 1]->start < rg_managed_ranges.at[at - 1]->size
               ? rg_managed_ranges.at[at - 1]
               : NULL;
}

static bool meets(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1), end = start + size;
    const size_t at = rg_managed_ranges_after(first);
    return (at > 0 && first - rg_managed_ranges.at[at - 1]->start < rg_managed_ranges.at[at - 1]->size) ||
           (at < rg_managed_ranges.n && rg_managed_ranges.at[at]->start < end);
}

bool rg_unified_meets(uint64_t start, uint64_t size)
{
    if (atomic_load_explicit(&rg_managed_ranges.n, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    const bool does = meets(start, size);
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    return does;
}

static bool insert(struct rg_managed_range *range)
{
    if (rg_managed_ranges.n == rg_managed_ranges.capacity) {
        const size_t more = rg_managed_ranges.capacity ? rg_managed_ranges.capacity * 2 : 64;
        struct rg_managed_range **bigger = realloc(rg_managed_ranges.at, more * sizeof *bigger);
        if (!bigger)
            return false;
        rg_managed_ranges.at = bigger;
        rg_managed_ranges.capacity = more;
    }
    const size_t at = rg_managed_ranges_after(range->start);
    memmove(&rg_managed_ranges.at[at + 1], &rg_managed_ranges.at[at],
            (rg_managed_ranges.n - at) * sizeof *rg_managed_ranges.at);
    rg_managed_ranges.at[at] = range;
    atomic_fetch_add(&rg_managed_ranges.n, 1);
    return true;
}

void rg_managed_range_set_state(struct rg_managed_range *range, size_t first, size_t end,
                                enum rg_page_state state)
{
    size_t held = 0;
    for (size_t i = first; i < end; i++)
        held += rg_page_held(range->state[i]);
    range->n_held -= held;
    rg_managed_ranges.n_held -= held;
    memset(&range->state[first], state, end - first);
    if (rg_page_held(state)) {
        range->n_held += end - first;
        rg_managed_ranges.n_held += end - first;
    }
}

uint64_t rg_managed_range_page(const struct rg_managed_range *range, size_t page)
{
    return range->start + (uint64_t)page * RG_PAGE;
}

/* The end of the run of pages that are as `first` is. */
static size_t run_end(const struct rg_managed_range *range, size_t first)
{
    size_t end = first + 1;
    while (end < range->n_pages && range->state[end] == range->state[first])
        end++;
    return end;
}

/* --- to the device ----------------------------------------------------------------------------------------------- */

/* Puts pages on their way. What they point to, the device will want as well. */
static void send_pages(struct rg_outgoing *out, uint64_t start, uint64_t size)
{
    if (!rg_pinned_find((const void *)(uintptr_t)start, size, &wanted))
        rg_warn("no memory to note page-locked memory that the device will want");
    rg_outgoing_add(out, start, size);
}

/* Puts those of a run of pages on their way that were ever touched. */
static bool send_touched(struct rg_managed_range *range, size_t first, size_t end, struct rg_outgoing *out)
{
    unsigned char touched[256];
    for (size_t at = first; at < end;) {
        const size_t part = end - at < sizeof touched ? end - at : sizeof touched;
        if (!range->watch.anonymous || !rg_pages_touched(rg_managed_range_page(range, at), part, touched))
            memset(touched, 1, part);
        for (size_t i = 0; i < part;) {
            size_t to = i;
            while (to < part && touched[to])
                to++;
            if (to > i)
                send_pages(out, rg_managed_range_page(range, at + i), (to - i) * RG_PAGE);
            i = to > i ? to : i + 1;
        }
        at += part;
    }
    return true;
}

static bool watch(struct rg_managed_range *range)
{
    if (!range->watched) {
        range->watch.start = range->start;
        range->watch.size = range->size;
        range->watched = rg_watch_begin(&range->watch);
    }
    return range->watched;
}

/* Gives all that the host holds of a share to the device. */
static CUresult release(struct rg_managed_range *range)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, range->session, range->context);
    if (!watch(range)) {
        rg_error("memory that host and device share cannot be watched in this process");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool good = true;
    for (size_t i = 0, end; i < range->n_pages && good; i = end) {
        end = run_end(range, i);
        const enum rg_page_state state = range->state[i];
        const uint64_t start = rg_managed_range_page(range, i), size = (uint64_t)(end - i) * RG_PAGE;
        if (state != RG_PAGE_DIRTY && state != RG_PAGE_FRESH)
            continue;
        good = rg_pages_freeze(&range->watch, start, size);
        if (good && state == RG_PAGE_DIRTY)
            send_pages(&out, start, size);
        else if (good)
            good = send_touched(range, i, end, &out);
    }
    rg_outgoing_send(&out);
    for (size_t i = 0, end; i < range->n_pages && good; i = end) {
        end = run_end(range, i);
        if (!rg_page_held(range->state[i]))
            continue;
        while (end < range->n_pages && rg_page_held(range->state[end]))
            end = run_end(range, end);
        good = rg_pages_close(&range->watch, rg_managed_range_page(range, i), (uint64_t)(end - i) * RG_PAGE);
        if (good)
            rg_managed_range_set_state(range, i, end, RG_PAGE_DEVICE);
    }
    if (!good)
        rg_error("memory that host and device share cannot be protected (too many mappings?)");
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether anything is shared. */
static bool any(void)
{
    return atomic_load_explicit(&rg_managed_ranges.n, memory_order_acquire) != 0 || rg_partial_pages_any();
}

static CUresult release_all(void)
{
    CUresult status = CUDA_SUCCESS;
    rg_faults_refresh();
    rg_partial_pages_send();
    rg_write_shared_send();
    for (size_t i = 0; i < rg_managed_ranges.n && status == CUDA_SUCCESS; i++)
        if (rg_managed_ranges.at[i]->n_held)
            status = release(rg_managed_ranges.at[i]);
    return status;
}

CUresult rg_unified_begin_work(bool kernel, bool *begun)
{
    *begun = false;
    if (!any())
        return CUDA_SUCCESS;
    CUresult status = CUDA_SUCCESS;
    for (;;) {
        pthread_mutex_lock(&rg_managed_ranges.lock);
        if (rg_managed_ranges.n_held || rg_write_shared_any() || rg_partial_pages_any())
            status = release_all();
        if (!kernel || !wanted.n || status != CUDA_SUCCESS)
            break;
        struct rg_pinned_list list = wanted;
        wanted = (struct rg_pinned_list){0};
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        status = rg_pinned_map_list(&list);
        if (status != CUDA_SUCCESS)
            return status;
    }
    *begun = status == CUDA_SUCCESS;
    if (!*begun)
        pthread_mutex_unlock(&rg_managed_ranges.lock);
    return status;
}

void rg_unified_end_work(void)
{
    rg_managed_ranges.epoch++;
    const bool wake = rg_partial_pages_any() && !rg_managed_ranges.partial_at_work;
    rg_managed_ranges.partial_at_work = rg_partial_pages_any();
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    if (wake)
        rg_touches_wake();
}

void rg_unified_settle(void)
{
    if (!rg_write_shared_any() && !rg_managed_ranges.partial_at_work)
        return;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    rg_write_shared_close_all();
    if (rg_managed_ranges.partial_at_work)
        (void)rg_partial_pages_exchange(&rg_managed_ranges.lock);
    pthread_mutex_unlock(&rg_managed_ranges.lock);
}

void rg_unified_host_call_begins(void)
{
    atomic_fetch_add(&rg_managed_ranges.host_calls, 1);
    rg_unified_settle();
}

void rg_unified_host_call_ends(void)
{
    if (any()) {
        pthread_mutex_lock(&rg_managed_ranges.lock);
        (void)release_all();
        rg_write_shared_close_all();
        pthread_mutex_unlock(&rg_managed_ranges.lock);
    }
    atomic_fetch_sub(&rg_managed_ranges.host_calls, 1);
}

/* --- beginning and end of a share ---------------------------------------------------------------------------------- */

CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size)
{
    const size_t n_pages = size / RG_PAGE;
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_managed_range *range = malloc(sizeof *range + n_pages);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = (struct rg_managed_range){.start = start,
                                       .size = size,
                                       .n_pages = n_pages,
                                       .kind = kind,
                                       .context = rg_context_current(),
                                       .session = rg_session_current(),
                                       .stretch = RG_FETCH_GROUP,
                                       .write_run = 1};
    pthread_mutex_lock(&rg_managed_ranges.lock);
    bool good = rg_unified_start_service();
    if (good && kind == RG_UNIFIED_VARIABLE) {
        memset(range->state, RG_PAGE_DEVICE, n_pages);
        good = watch(range) && rg_pages_close(&range->watch, start, size);
    } else if (good) {
        memset(range->state, RG_PAGE_FRESH, n_pages);
        range->n_held = n_pages;
    }
    range->id = ++rg_managed_ranges.next_id;
    good = good && insert(range);
    if (good)
        rg_managed_ranges.n_held += range->n_held;
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    if (!good)
        free(range);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_unified_add_partial(uint64_t start, uint64_t size)
{
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    const bool good = rg_unified_start_service() &&
                      rg_partial_pages_add(rg_session_current(), rg_context_current(), start, size);
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_unified_remove_partial(uint64_t start)
{
    pthread_mutex_lock(&rg_managed_ranges.lock);
    if (rg_managed_ranges.partial_at_work)
        (void)rg_partial_pages_exchange(&rg_managed_ranges.lock);
    rg_partial_pages_remove(start);
    pthread_mutex_unlock(&rg_managed_ranges.lock);
}

/* Takes a share out; the lock is held. */
static void take_out(size_t at)
{
    struct rg_managed_range *range = rg_managed_ranges.at[at];
    rg_write_shared_forget(range);
    rg_managed_ranges.n_held -= range->n_held;
    memmove(&rg_managed_ranges.at[at], &rg_managed_ranges.at[at + 1],
            (rg_managed_ranges.n - at - 1) * sizeof *rg_managed_ranges.at);
    atomic_fetch_sub(&rg_managed_ranges.n, 1);
    if (range->watched)
        rg_watch_end(&range->watch);
    if (range->kind != RG_UNIFIED_HOST) /* the addresses stay reserved */
        mmap((void *)(uintptr_t)range->start, range->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(range);
}

void rg_unified_remove(uint64_t start)
{
    pthread_mutex_lock(&rg_managed_ranges.lock);
    const size_t at = rg_managed_ranges_after(start);
    if (at > 0 && rg_managed_ranges.at[at - 1]->start == start)
        take_out(at - 1);
    pthread_mutex_unlock(&rg_managed_ranges.lock);
}

void rg_unified_drop_context(uint64_t context)
{
    pthread_mutex_lock(&rg_managed_ranges.lock);
    rg_partial_pages_drop_context(context);
    for (size_t i = 0; i < rg_managed_ranges.n;)
        if (rg_managed_ranges.at[i]->context == context)
            take_out(i);
        else
            i++;
    pthread_mutex_unlock(&rg_managed_ranges.lock);
}
