/* pinned.c - see pinned.h. `lock` is held for writing while memory is mapped or its mapping ends. */
#include "client/managed/pinned.h"

#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/base/addresses.h"
#include "common/base/log.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* More than so many bytes are only looked at as a whole if there are addresses in the first ones. */
#define SCANNED (1u << 20)
#define SAMPLE  (64u << 10)

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
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct area *areas;
static struct mapped *all_mapped;
static atomic_uint n_unmapped; /* page-locked ranges that are not mapped */
static _Atomic uint64_t lowest = UINT64_MAX, highest;

static uint64_t page_down(uint64_t address)
{
    return address & ~(uint64_t)(RG_PAGE - 1);
}

static uint64_t page_up(uint64_t address)
{
    return page_down(address + RG_PAGE - 1);
}

static void count_range(uint64_t start, uint64_t size)
{
    uint64_t now = atomic_load(&lowest);
    while (start < now && !atomic_compare_exchange_weak(&lowest, &now, start))
        ;
    now = atomic_load(&highest);
    while (start + size > now && !atomic_compare_exchange_weak(&highest, &now, start + size))
        ;
    atomic_fetch_add(&n_unmapped, 1);
}

bool rg_pinned_forbid_mapping(void)
{
    return atomic_load_explicit(&n_unmapped, memory_order_relaxed) && pthread_rwlock_rdlock(&lock) == 0;
}

void rg_pinned_allow_mapping(bool held)
{
    if (held)
        pthread_rwlock_unlock(&lock);
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

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
        *area = (struct area){.next = areas, .start = start, .end = next, .context = rg_context_current()};
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

/* The whole pages of a range: others hold other things of the program too. All of what was allocated is ours. */
static void whole_pages(const struct mapped *mapped, uint64_t *first, uint64_t *last)
{
    *first = page_up(mapped->start);
    *last = mapped->registered ? page_down(mapped->end) : page_up(mapped->end);
}

static void end_shares(const struct mapped *mapped)
{
    uint64_t first, last;
    whole_pages(mapped, &first, &last);
    if (first < last)
        rg_unified_remove(first);
    if (first > mapped->start)
        rg_unified_remove_partial(mapped->start);
    if (last < mapped->end && last >= first)
        rg_unified_remove_partial(last);
}

static CUresult begin_shares(const struct mapped *mapped)
{
    uint64_t first, last;
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
        end_shares(mapped);
    return status;
}

/* Queued copies have to be done with the memory first: they go to the device's side of it afterwards. */
static CUresult wait_for_transfers(const struct rg_range *range)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    while (status == CUDA_SUCCESS && rg_transfers_meet(range->start, range->size)) {
        usleep(200);
        status = rg_call_allowed(RG_CALL_CONTEXT);
    }
    return status;
}

/* The same before the memory goes: of all contexts, as copies may be queued in others than the current one. */
static CUresult wait_for_users(const struct rg_range *range)
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

static CUresult map_range(const struct rg_range *range)
{
    struct mapped *mapped = malloc(sizeof *mapped);
    if (!mapped)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *mapped = (struct mapped){.start = range->start,
                              .end = range->start + range->size,
                              .context = rg_context_current(),
                              .registered = range->kind == RG_RANGE_REGISTERED};
    CUresult status = wait_for_transfers(range);
    rg_sessions_withdraw((void *)(uintptr_t)range->start); /* its pages come and go from now on */
    if (status == CUDA_SUCCESS)
        status = rg_op_rgUnifiedOpen();
    if (status == CUDA_SUCCESS)
        status = have_areas(page_down(mapped->start), page_up(mapped->end));
    if (status == CUDA_SUCCESS)
        status = begin_shares(mapped);
    if (status != CUDA_SUCCESS) {
        drop_unused_areas();
        free(mapped);
        rg_error("host memory at %#llx could not be mapped into the device (error %d)",
                 (unsigned long long)range->start, (int)status);
        return status;
    }
    mapped->next = all_mapped;
    all_mapped = mapped;
    atomic_fetch_sub(&n_unmapped, 1);
    rg_map_set_mapped(range->start, mapped->context);
    return CUDA_SUCCESS;
}

static bool to_be_mapped(uint64_t address, struct rg_range *range)
{
    return atomic_load_explicit(&n_unmapped, memory_order_relaxed) && rg_map_find(address, range) &&
           rg_range_pinned(range) && !range->mapped;
}

CUresult rg_pinned_map(uint64_t address)
{
    struct rg_range range;
    if (!to_be_mapped(address, &range))
        return CUDA_SUCCESS;
    pthread_rwlock_wrlock(&lock);
    CUresult status = to_be_mapped(address, &range) ? map_range(&range) : CUDA_SUCCESS;
    pthread_rwlock_unlock(&lock);
    return status;
}

/* Ends the mapping of the range that begins at `start`, if there is one; registered memory gets its contents back. */
static void unmap_range(uint64_t start)
{
    pthread_rwlock_wrlock(&lock);
    for (struct mapped **at = &all_mapped; *at; at = &(*at)->next) {
        struct mapped *mapped = *at;
        if (mapped->start != start)
            continue;
        if (mapped->registered)
            rg_unified_recall(start, mapped->end - start);
        end_shares(mapped);
        *at = mapped->next;
        free(mapped);
        drop_unused_areas();
        rg_map_set_mapped(start, 0);
        atomic_fetch_add(&n_unmapped, 1);
        break;
    }
    pthread_rwlock_unlock(&lock);
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
        if (mapped->registered)
            rg_unified_recall(mapped->start, mapped->end - mapped->start);
        end_shares(mapped);
        rg_map_set_mapped(mapped->start, 0);
        atomic_fetch_add(&n_unmapped, 1);
        *at = mapped->next;
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

/* --- addresses in data -------------------------------------------------------------------------------------------- */

static bool add_to(struct rg_pinned_list *list, uint64_t start)
{
    for (size_t i = list->n; i-- > 0;)
        if (list->start[i] == start)
            return true;
    if (list->n == list->capacity) {
        const size_t more = list->capacity ? list->capacity * 2 : 16;
        uint64_t *bigger = realloc(list->start, more * sizeof *bigger);
        if (!bigger)
            return false;
        list->start = bigger;
        list->capacity = more;
    }
    list->start[list->n++] = start;
    return true;
}

/* Whether one of the words points into page-locked memory, mapped or not. */
static bool has_pointers(const void *data, size_t size)
{
    const uint64_t low = atomic_load(&lowest), span = atomic_load(&highest) - low;
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        struct rg_range range;
        memcpy(&word, (const unsigned char *)data + at, sizeof word);
        if (word - low < span && rg_map_find(word, &range) && rg_range_pinned(&range))
            return true;
    }
    return false;
}

bool rg_pinned_find(const void *data, size_t size, struct rg_pinned_list *list)
{
    enum { BLOCK = 64 };
    if (atomic_load_explicit(&n_unmapped, memory_order_relaxed) == 0)
        return true;
    if (size > SCANNED && !has_pointers(data, SAMPLE)) /* plain data, which is to be as fast as it can */
        return true;
    const uint64_t low = atomic_load(&lowest), span = atomic_load(&highest) - low;
    const unsigned char *at = data;
    struct rg_range range = {0}; /* the one found last */
    for (size_t left = size / 8; left;) {
        uint64_t words[BLOCK];
        const size_t part = left < BLOCK ? left : BLOCK;
        unsigned hits = 0;
        memcpy(words, at, part * 8);
        for (size_t i = 0; i < part; i++)
            hits += words[i] - low < span;
        for (size_t i = 0; hits && i < part; i++)
            if (words[i] - low < span && words[i] - range.start >= range.size &&
                to_be_mapped(words[i], &range) && !add_to(list, range.start))
                return false;
        at += part * 8;
        left -= part;
    }
    return true;
}

CUresult rg_pinned_map_list(struct rg_pinned_list *list)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < list->n && status == CUDA_SUCCESS; i++)
        status = rg_pinned_map(list->start[i]);
    free(list->start);
    *list = (struct rg_pinned_list){0};
    return status;
}

CUresult rg_pinned_scan(const void *data, size_t size)
{
    struct rg_pinned_list list = {0};
    const bool good = rg_pinned_find(data, size, &list);
    CUresult status = rg_pinned_map_list(&list);
    return good ? status : CUDA_ERROR_OUT_OF_MEMORY;
}

bool rg_pinned_on_device(uint64_t address, size_t pitch, size_t width, size_t height)
{
    return rg_pinned_map(address) == CUDA_SUCCESS && rg_on_device(address, pitch, width, height);
}

static bool mapped_at(uint64_t address)
{
    struct rg_range range;
    return rg_map_find(address, &range) && rg_range_pinned(&range) && range.mapped;
}

CUresult rg_pinned_copied(CUresult status, uint64_t to, uint64_t from, CUstream stream, bool asynchronous)
{
    if (status != CUDA_SUCCESS || asynchronous || (!mapped_at(to) && !mapped_at(from)))
        return status;
    return rg_op_cuStreamSynchronize(stream);
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static void *reserve(size_t length)
{
    static _Atomic uint64_t next;
    uint64_t hint = atomic_load(&next);
    if (!hint) { /* somewhere in the window, as the kernel would choose */
        const uint64_t start =
            RG_ADDRESS_HOST_START +
            page_down((uint64_t)(uintptr_t)&next * 0x9e3779b97f4a7c15ull) % RG_ADDRESS_HOST_SIZE;
        if (atomic_compare_exchange_strong(&next, &hint, start))
            hint = start;
    }
    hint = atomic_fetch_add(&next, length + RG_PAGE);
    return mmap((void *)(uintptr_t)hint, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static CUresult host_allocate(void **pp, size_t size, unsigned flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    status = rg_capture_unsafe();
    if (status != CUDA_SUCCESS)
        return status;
    const size_t length = page_up(size);
    if (length < size || length == 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = reserve(length);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_range range = {.start = (uint64_t)memory,
                             .size = size,
                             .kind = RG_RANGE_HOST,
                             .flags = flags,
                             .context = rg_context_current(),
                             .device = rg_device_current()};
    if (!rg_map_add(&range)) {
        munmap(memory, length);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    count_range(range.start, range.size);
    rg_sessions_announce(memory, length);
    *pp = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    return host_allocate(pp, bytesize, Flags);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return host_allocate(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!p)
        return CUDA_SUCCESS;
    status = rg_capture_unsafe();
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_range range;
    if (!rg_map_find((uint64_t)p, &range) || range.kind != RG_RANGE_HOST || range.start != (uint64_t)p)
        return CUDA_ERROR_INVALID_VALUE;
    if (range.mapped || rg_transfers_may_write_host() || rg_transfers_meet(range.start, range.size))
        status =
            cuCtxSynchronize(); /* what is queued may still use the memory, or bring what is waited for by this */
    if (status != CUDA_SUCCESS && !rg_map_find((uint64_t)p, &range))
        return status;
    (void)wait_for_users(&range);
    unmap_range((uint64_t)p);
    if (rg_map_remove((uint64_t)p, 1u << RG_RANGE_HOST, &range)) {
        atomic_fetch_sub(&n_unmapped, 1);
        rg_transfers_revoke(range.start, range.size);
        rg_sessions_withdraw(p);
        munmap(p, page_up(range.size));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (!p || !bytesize || (Flags & ~known) || (uint64_t)p + bytesize < bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return rg_unsupported("cuMemHostRegister with CU_MEMHOSTREGISTER_IOMEMORY");
    if (rg_map_overlaps((uint64_t)p, bytesize))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct rg_range range = {.start = (uint64_t)p,
                             .size = bytesize,
                             .kind = RG_RANGE_REGISTERED,
                             .flags = Flags,
                             .context = rg_context_current(),
                             .device = rg_device_current()};
    if (!rg_map_add(&range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    count_range(range.start, range.size);
    rg_sessions_announce(p, bytesize);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_range range;
    if (!rg_map_find((uint64_t)p, &range) || range.kind != RG_RANGE_REGISTERED || range.start != (uint64_t)p)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range.mapped) {
        status = cuCtxSynchronize(); /* what is queued may still use the memory */
        unmap_range((uint64_t)p);
    }
    const CUresult waited = wait_for_users(&range);
    status = status == CUDA_SUCCESS ? waited : status;
    if (rg_map_remove((uint64_t)p, 1u << RG_RANGE_REGISTERED, NULL)) {
        atomic_fetch_sub(&n_unmapped, 1);
        rg_transfers_revoke(range.start, range.size);
        rg_sessions_withdraw(p);
    }
    return status;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_range range;
    if (!pFlags || !rg_map_find((uint64_t)p, &range) || !rg_range_pinned(&range))
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = range.flags;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_range range;
    if (!pdptr || Flags || !rg_map_find((uint64_t)p, &range) || !rg_range_pinned(&range))
        return CUDA_ERROR_INVALID_VALUE;
    status = rg_pinned_map((uint64_t)p);
    if (status == CUDA_SUCCESS)
        *pdptr = (CUdeviceptr)p;
    return status;
}
