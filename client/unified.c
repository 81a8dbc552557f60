/*
 * unified.c - see unified.h: the shares, what leaves for the device before work, begin and end of a share. The lock of shared
 * pages (unified_pages.h) is held while pages leave.
 */
#include "client/unified.h"

#include "client/context.h"
#include "client/edges.h"
#include "client/faults.h"
#include "client/handle.h"
#include "client/live.h"
#include "client/owner.h"
#include "client/pinned.h"
#include "client/transfer.h"
#include "client/unified_pages.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct rg_shares rg_shares = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* What the device will want of page-locked memory: pointers to it have left. */
static struct rg_pinned_list wanted;

/* --- the shares -------------------------------------------------------------------------------------------------- */

size_t rg_shares_after(uint64_t address)
{
    size_t low = 0, high = rg_shares.n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rg_shares.at[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rg_pages *rg_shares_find(uint64_t address)
{
    const size_t at = rg_shares_after(address);
    return at > 0 && address - rg_shares.at[at - 1]->start < rg_shares.at[at - 1]->size ? rg_shares.at[at - 1]
                                                                                        : NULL;
}

static bool meets(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1), end = start + size;
    const size_t at = rg_shares_after(first);
    return (at > 0 && first - rg_shares.at[at - 1]->start < rg_shares.at[at - 1]->size) ||
           (at < rg_shares.n && rg_shares.at[at]->start < end);
}

bool rg_unified_meets(uint64_t start, uint64_t size)
{
    if (atomic_load_explicit(&rg_shares.n, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&rg_shares.lock);
    const bool does = meets(start, size);
    pthread_mutex_unlock(&rg_shares.lock);
    return does;
}

static bool insert(struct rg_pages *share)
{
    if (rg_shares.n == rg_shares.capacity) {
        const size_t more = rg_shares.capacity ? rg_shares.capacity * 2 : 64;
        struct rg_pages **bigger = realloc(rg_shares.at, more * sizeof *bigger);
        if (!bigger)
            return false;
        rg_shares.at = bigger;
        rg_shares.capacity = more;
    }
    const size_t at = rg_shares_after(share->start);
    memmove(&rg_shares.at[at + 1], &rg_shares.at[at], (rg_shares.n - at) * sizeof *rg_shares.at);
    rg_shares.at[at] = share;
    atomic_fetch_add(&rg_shares.n, 1);
    return true;
}

void rg_share_set_state(struct rg_pages *share, size_t first, size_t end, enum rg_page_state state)
{
    size_t held = 0;
    for (size_t i = first; i < end; i++)
        held += rg_page_held(share->state[i]);
    share->n_held -= held;
    rg_shares.n_held -= held;
    memset(&share->state[first], state, end - first);
    if (rg_page_held(state)) {
        share->n_held += end - first;
        rg_shares.n_held += end - first;
    }
}

uint64_t rg_share_page(const struct rg_pages *share, size_t page)
{
    return share->start + (uint64_t)page * RG_PAGE;
}

/* The end of the run of pages that are as `first` is. */
static size_t run_end(const struct rg_pages *share, size_t first)
{
    size_t end = first + 1;
    while (end < share->n_pages && share->state[end] == share->state[first])
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
static bool send_touched(struct rg_pages *share, size_t first, size_t end, struct rg_outgoing *out)
{
    unsigned char touched[256];
    for (size_t at = first; at < end;) {
        const size_t part = end - at < sizeof touched ? end - at : sizeof touched;
        if (!share->watch.anonymous || !rg_pages_touched(rg_share_page(share, at), part, touched))
            memset(touched, 1, part);
        for (size_t i = 0; i < part;) {
            size_t to = i;
            while (to < part && touched[to])
                to++;
            if (to > i)
                send_pages(out, rg_share_page(share, at + i), (to - i) * RG_PAGE);
            i = to > i ? to : i + 1;
        }
        at += part;
    }
    return true;
}

static bool watch(struct rg_pages *share)
{
    if (!share->watched) {
        share->watch.start = share->start;
        share->watch.size = share->size;
        share->watched = rg_watch_begin(&share->watch);
    }
    return share->watched;
}

/* Gives all that the host holds of a share to the device. */
static CUresult release(struct rg_pages *share)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, share->session, share->context);
    if (!watch(share)) {
        rg_error("memory that host and device share cannot be watched in this process");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool good = true;
    for (size_t i = 0, end; i < share->n_pages && good; i = end) {
        end = run_end(share, i);
        const enum rg_page_state state = share->state[i];
        const uint64_t start = rg_share_page(share, i), size = (uint64_t)(end - i) * RG_PAGE;
        if (state != RG_PAGE_DIRTY && state != RG_PAGE_FRESH)
            continue;
        good = rg_pages_freeze(&share->watch, start, size);
        if (good && state == RG_PAGE_DIRTY)
            send_pages(&out, start, size);
        else if (good)
            good = send_touched(share, i, end, &out);
    }
    rg_outgoing_send(&out);
    for (size_t i = 0, end; i < share->n_pages && good; i = end) {
        end = run_end(share, i);
        if (!rg_page_held(share->state[i]))
            continue;
        while (end < share->n_pages && rg_page_held(share->state[end]))
            end = run_end(share, end);
        good = rg_pages_close(&share->watch, rg_share_page(share, i), (uint64_t)(end - i) * RG_PAGE);
        if (good)
            rg_share_set_state(share, i, end, RG_PAGE_DEVICE);
    }
    if (!good)
        rg_error("memory that host and device share cannot be protected (too many mappings?)");
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether anything is shared. */
static bool any(void)
{
    return atomic_load_explicit(&rg_shares.n, memory_order_acquire) != 0 || rg_edges_any();
}

static CUresult release_all(void)
{
    CUresult status = CUDA_SUCCESS;
    rg_faults_refresh();
    rg_edges_send();
    rg_live_send();
    for (size_t i = 0; i < rg_shares.n && status == CUDA_SUCCESS; i++)
        if (rg_shares.at[i]->n_held)
            status = release(rg_shares.at[i]);
    return status;
}

CUresult rg_unified_begin_work(bool kernel, bool *begun)
{
    *begun = false;
    if (!any())
        return CUDA_SUCCESS;
    CUresult status = CUDA_SUCCESS;
    for (;;) {
        pthread_mutex_lock(&rg_shares.lock);
        if (rg_shares.n_held || rg_live_any() || rg_edges_any())
            status = release_all();
        if (!kernel || !wanted.n || status != CUDA_SUCCESS)
            break;
        struct rg_pinned_list list = wanted;
        wanted = (struct rg_pinned_list){0};
        pthread_mutex_unlock(&rg_shares.lock);
        status = rg_pinned_map_list(&list);
        if (status != CUDA_SUCCESS)
            return status;
    }
    *begun = status == CUDA_SUCCESS;
    if (!*begun)
        pthread_mutex_unlock(&rg_shares.lock);
    return status;
}

void rg_unified_end_work(void)
{
    rg_shares.epoch++;
    const bool wake = rg_edges_any() && !rg_shares.edges_at_work;
    rg_shares.edges_at_work = rg_edges_any();
    pthread_mutex_unlock(&rg_shares.lock);
    if (wake)
        rg_touches_wake();
}

void rg_unified_settle(void)
{
    if (!rg_live_any() && !rg_shares.edges_at_work)
        return;
    pthread_mutex_lock(&rg_shares.lock);
    rg_live_close_all();
    if (rg_shares.edges_at_work)
        (void)rg_edges_exchange(&rg_shares.lock);
    pthread_mutex_unlock(&rg_shares.lock);
}

void rg_unified_host_call_begins(void)
{
    atomic_fetch_add(&rg_shares.host_calls, 1);
    rg_unified_settle();
}

void rg_unified_host_call_ends(void)
{
    if (any()) {
        pthread_mutex_lock(&rg_shares.lock);
        (void)release_all();
        rg_live_close_all();
        pthread_mutex_unlock(&rg_shares.lock);
    }
    atomic_fetch_sub(&rg_shares.host_calls, 1);
}

/* --- beginning and end of a share ---------------------------------------------------------------------------------- */

CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size)
{
    const size_t n_pages = size / RG_PAGE;
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_pages *share = malloc(sizeof *share + n_pages);
    if (!share)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *share = (struct rg_pages){.start = start,
                               .size = size,
                               .n_pages = n_pages,
                               .kind = kind,
                               .context = rg_context_current(),
                               .session = rg_session_current(),
                               .stretch = RG_SHARE_GROUP,
                               .write_run = 1};
    pthread_mutex_lock(&rg_shares.lock);
    bool good = rg_unified_start_service();
    if (good && kind == RG_UNIFIED_VARIABLE) {
        memset(share->state, RG_PAGE_DEVICE, n_pages);
        good = watch(share) && rg_pages_close(&share->watch, start, size);
    } else if (good) {
        memset(share->state, RG_PAGE_FRESH, n_pages);
        share->n_held = n_pages;
    }
    share->id = ++rg_shares.next_id;
    good = good && insert(share);
    if (good)
        rg_shares.n_held += share->n_held;
    pthread_mutex_unlock(&rg_shares.lock);
    if (!good)
        free(share);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_unified_add_edge(uint64_t start, uint64_t size)
{
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    pthread_mutex_lock(&rg_shares.lock);
    const bool good =
        rg_unified_start_service() && rg_edges_add(rg_session_current(), rg_context_current(), start, size);
    pthread_mutex_unlock(&rg_shares.lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_unified_remove_edge(uint64_t start)
{
    pthread_mutex_lock(&rg_shares.lock);
    if (rg_shares.edges_at_work)
        (void)rg_edges_exchange(&rg_shares.lock);
    rg_edges_remove(start);
    pthread_mutex_unlock(&rg_shares.lock);
}

/* Takes a share out; the lock is held. */
static void take_out(size_t at)
{
    struct rg_pages *share = rg_shares.at[at];
    rg_live_forget(share);
    rg_shares.n_held -= share->n_held;
    memmove(&rg_shares.at[at], &rg_shares.at[at + 1], (rg_shares.n - at - 1) * sizeof *rg_shares.at);
    atomic_fetch_sub(&rg_shares.n, 1);
    if (share->watched)
        rg_watch_end(&share->watch);
    if (share->kind != RG_UNIFIED_HOST) /* the addresses stay reserved */
        mmap((void *)(uintptr_t)share->start, share->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(share);
}

void rg_unified_remove(uint64_t start)
{
    pthread_mutex_lock(&rg_shares.lock);
    const size_t at = rg_shares_after(start);
    if (at > 0 && rg_shares.at[at - 1]->start == start)
        take_out(at - 1);
    pthread_mutex_unlock(&rg_shares.lock);
}

void rg_unified_drop_context(uint64_t context)
{
    pthread_mutex_lock(&rg_shares.lock);
    rg_edges_drop_context(context);
    for (size_t i = 0; i < rg_shares.n;)
        if (rg_shares.at[i]->context == context)
            take_out(i);
        else
            i++;
    pthread_mutex_unlock(&rg_shares.lock);
}
