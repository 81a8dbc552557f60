/*
 * unified.c - see unified.h: what leaves for the device before work, begin and end of a range.
 * The lock of shared pages (managed_ranges.h) is held while pages leave.
 */
#include "client/managed/unified.h"

#include "client/core/home.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/managed/faults.h"
#include "client/managed/managed_ranges.h"
#include "client/managed/outgoing.h"
#include "client/managed/partial_pages.h"
#include "client/managed/pinned_scan.h"
#include "client/managed/write_shared.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What the device will want of page-locked memory: pointers to it have left. */
static struct rg_pinned_list wanted;
static atomic_bool is_asked_for; /* some of it not by what has left, but by the program */

/* The end of the run of pages that are as `first` is. */
static size_t run_end(const struct rg_managed_range *range, size_t first)
{
    size_t end = first + 1;
    while (end < range->n_pages && range->state[end] == range->state[first])
        end++;
    return end;
}

/* --- to the device -------------------------------------------------------------------------------------- */

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
        if (!rg_pages_touched(&range->trap, rg_managed_range_page(range, at), part, touched))
            return false;
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

static bool trap(struct rg_managed_range *range)
{
    if (!range->trapped) {
        range->trap.start = range->start;
        range->trap.size = range->size;
        range->trapped = rg_trap_begin(&range->trap);
    }
    return range->trapped;
}

/* Gives all that the host holds of a range to the device. */
static CUresult release(struct rg_managed_range *range)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, range->session, range->context);
    if (!trap(range)) {
        rg_error("accesses to memory that host and device share cannot be trapped in this process");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool good = true;
    for (size_t i = 0, end; i < range->n_pages && good; i = end) {
        end = run_end(range, i);
        const enum rg_page_state state = range->state[i];
        const uint64_t start = rg_managed_range_page(range, i), size = (uint64_t)(end - i) * RG_PAGE;
        if (state != RG_PAGE_DIRTY && state != RG_PAGE_FRESH)
            continue;
        good = rg_pages_freeze(&range->trap, start, size);
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
        good = rg_pages_close(&range->trap, rg_managed_range_page(range, i), (uint64_t)(end - i) * RG_PAGE);
        if (good)
            rg_managed_range_set_state(range, i, end, RG_PAGE_DEVICE);
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Takes a range out; the lock is held. */
static void take_out(size_t at)
{
    struct rg_managed_range *range = rg_managed_ranges.at[at];
    rg_write_shared_forget(range);
    rg_managed_ranges.n_held -= range->n_held;
    memmove(&rg_managed_ranges.at[at], &rg_managed_ranges.at[at + 1],
            (rg_managed_ranges.n - at - 1) * sizeof *rg_managed_ranges.at);
    atomic_fetch_sub(&rg_managed_ranges.n, 1);
    if (range->trapped)
        rg_trap_end(&range->trap);
    if (range->kind != RG_UNIFIED_HOST) /* the addresses stay reserved */
        mmap((void *)(uintptr_t)range->start, range->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(range);
}

bool rg_unified_take_out_gone(size_t at)
{
    struct rg_managed_range *range = rg_managed_ranges.at[at];
    const bool gone = range->kind == RG_UNIFIED_HOST && (rg_pages_gone(range->start, range->size) ||
                                                         (range->trapped && rg_trap_gone(&range->trap)));
    if (gone) {
        range->trapped = false; /* what may be there by now was never trapped */
        take_out(at);
    }
    return gone;
}

void rg_unified_take_out_gone_shared(void)
{
    for (size_t i = 0; i < rg_managed_ranges.n;)
        if (!rg_managed_ranges.at[i]->n_write_shared || !rg_unified_take_out_gone(i))
            i++;
}

bool rg_unified_any(void)
{
    return atomic_load_explicit(&rg_managed_ranges.n, memory_order_acquire) != 0 ||
           atomic_load(&rg_partial_pages_n) || atomic_load_explicit(&is_asked_for, memory_order_relaxed);
}

bool rg_unified_want(uint64_t address)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    const bool good = rg_pinned_find(&address, sizeof address, &wanted);
    if (wanted.n)
        atomic_store_explicit(&is_asked_for, true, memory_order_relaxed);
    return good;
}

/* Whether the host has something of it for which there is still a device. */
static bool may_leave(const struct rg_managed_range *range)
{
    return range->n_held && !range->leaving && rg_session_lives(range->session);
}

CUresult rg_unified_release_all(void)
{
    CUresult status = CUDA_SUCCESS;
    rg_managed_ranges_await_forks();
    rg_faults_refresh();
    rg_partial_pages_send();
    rg_unified_take_out_gone_shared();
    rg_write_shared_send();
    for (size_t i = 0; i < rg_managed_ranges.n && status == CUDA_SUCCESS;) {
        if (may_leave(rg_managed_ranges.at[i]))
            status = release(rg_managed_ranges.at[i]);
        if (status != CUDA_SUCCESS && rg_unified_take_out_gone(i))
            status = CUDA_SUCCESS;
        else
            i++;
    }
    if (status != CUDA_SUCCESS)
        rg_error("memory that host and device share cannot be protected (too many mappings?)");
    return status;
}

bool rg_unified_take_wanted(struct rg_pinned_list *list)
{
    *list = wanted;
    wanted = (struct rg_pinned_list){0};
    atomic_store_explicit(&is_asked_for, false, memory_order_relaxed);
    return list->n != 0;
}

/* --- beginning and end of a range ----------------------------------------------------------------------- */

CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size)
{
    const size_t n_pages = size / RG_PAGE;
    RG_TRY(rg_op_rgUnifiedOpen());
    struct rg_managed_range *range = malloc(sizeof *range + n_pages);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = (struct rg_managed_range){.start = start,
                                       .size = size,
                                       .n_pages = n_pages,
                                       .kind = kind,
                                       .context = rg_context_current_owner(),
                                       .session = rg_session_current(),
                                       .stretch = RG_FETCH_GROUP,
                                       .write_run = 1};
    pthread_mutex_lock(&rg_managed_ranges.lock);
    bool good = rg_unified_start_service();
    if (good && kind == RG_UNIFIED_VARIABLE) {
        memset(range->state, RG_PAGE_DEVICE, n_pages);
        good = trap(range) && rg_pages_close(&range->trap, start, size);
    } else if (good) {
        memset(range->state, RG_PAGE_FRESH, n_pages);
        range->n_held = n_pages;
    }
    range->id = ++rg_managed_ranges.next_id;
    good = good && rg_managed_ranges_insert(range);
    if (good)
        rg_managed_ranges.n_held += range->n_held;
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    if (!good)
        free(range);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_unified_add_partial(uint64_t start, uint64_t size)
{
    RG_TRY(rg_op_rgUnifiedOpen());
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    const bool good = rg_unified_start_service() &&
                      rg_partial_pages_add(rg_session_current(), rg_context_current_owner(), start, size);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_unified_remove_partial(uint64_t start)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    if (rg_managed_ranges.partial_at_work)
        (void)rg_partial_pages_exchange(&rg_managed_ranges.lock, true);
    rg_partial_pages_remove(start);
}

/* Ends it, unless contents are to be kept that the device has; else in how many bytes of it these are. */
static uint64_t try_to_remove(uint64_t start, bool keep)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    const size_t at = rg_managed_ranges_after(start);
    struct rg_managed_range *range = at > 0 ? rg_managed_ranges.at[at - 1] : NULL;
    if (!range || range->start != start)
        return 0;
    if (keep && !range->leaving)
        rg_write_shared_close(range); /* what the device has written last is to be had */
    range->leaving = true;
    if (keep && memchr(range->state, RG_PAGE_DEVICE, range->n_pages))
        return range->size;
    take_out(at - 1);
    return 0;
}

void rg_unified_remove(uint64_t start, bool keep)
{
    for (uint64_t size; (size = try_to_remove(start, keep)) != 0;)
        rg_unified_recall(start, size);
}

void rg_unified_leave_to_host(uint64_t start)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    const size_t at = rg_managed_ranges_after(start);
    if (at == 0 || rg_managed_ranges.at[at - 1]->start != start)
        return;
    rg_managed_ranges.at[at - 1]->kind = RG_UNIFIED_HOST;
    take_out(at - 1);
}

void rg_unified_drop_context(uint64_t context)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    rg_partial_pages_drop_context(context);
    for (size_t i = 0; i < rg_managed_ranges.n;)
        if (rg_managed_ranges.at[i]->context == context)
            take_out(i);
        else
            i++;
}
