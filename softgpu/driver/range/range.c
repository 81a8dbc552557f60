/*
 * range.c - see range.h: allocations in the window of device addresses, and questions about addresses of all kinds.
 * What else there is of ranges: internal.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/align.h"
#include "common/base/cleanup.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/range/internal.h"

/*
 * Beyond so many mappings guard pages are left out, so that the kernel can merge neighbours: it allows 65530.
 */
#define GUARDED_MAX 16384

struct sg_memory sg_memory = {.lock = PTHREAD_MUTEX_INITIALIZER};
struct sg_pool_hooks sg_pool_hooks;

uint64_t sg_range_committed(const struct sg_range *range)
{
    return rg_align_up(range->size, SG_PAGE);
}

void sg_range_keep_secret(struct sg_range *range, const unsigned char *secret)
{
    memcpy(range->secret, secret, SG_SECRET);
}

/*
 * Whether nothing is allocated in the block of `end`, where the allocation with that index ends or ended, but
 * that one. The block's end goes to *behind. Lock held.
 */
static bool is_alone_in_block(size_t index, bool is_there, uint64_t end, uint64_t *behind)
{
    const struct sg_range_set *set = &sg_memory.device;
    const struct sg_range *below = index > 0 ? set->at[index - 1] : NULL;
    const size_t above = index + is_there;
    *behind = rg_align_up(end, SG_BLOCK);
    return *behind != end && (above == set->n || set->at[above]->base >= *behind) &&
           (below == NULL || below->base + sg_range_committed(below) <= *behind - SG_BLOCK);
}

/* Makes what lies between a new allocation and the end of its block accessible, as on a GPU. Lock held. */
static void open_block(const struct sg_range *range)
{
    const uint64_t end = range->base + sg_range_committed(range);
    const size_t index = sg_range_set_upper(&sg_memory.device, range->base) - 1;
    uint64_t behind;
    if (sg_memory.guarded || !is_alone_in_block(index, true, end, &behind))
        return;
    /* where it does not succeed, accesses there are noticed */
    mmap((void *)(uintptr_t)end, behind - end, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Closes it again, where an allocation from `base` to `end` has gone and was the block's last. Lock held. */
static void close_block(uint64_t base, uint64_t end)
{
    uint64_t behind;
    if (!sg_memory.guarded &&
        is_alone_in_block(sg_range_set_upper(&sg_memory.device, base), false, end, &behind))
        sg_window_map_nothing((void *)(uintptr_t)end, behind - end);
}

/* Whether it is in the device's account by itself: a pool has its memory there already. */
static bool is_charged(const struct sg_range *range)
{
    return !range->imported && range->pool == NULL;
}

CUresult sg_range_alloc(struct sg_context *context, struct sg_device *device, uint64_t size,
                        enum sg_range_kind kind, struct sg_pool *pool, uint64_t *address)
{
    CUresult result = sg_range_alloc_backed(context, device, size, kind, pool, NULL, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pool == NULL && size <= device->memory_total &&
        sg_pool_hooks.reclaim != NULL) {
        sg_pool_hooks.reclaim(device);
        result = sg_range_alloc_backed(context, device, size, kind, pool, NULL, address);
    }
    return result;
}

static struct sg_range *new_range(struct sg_context *context, struct sg_device *device, uint64_t size,
                                  enum sg_range_kind kind, struct sg_pool *pool,
                                  const struct sg_backing *backing)
{
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return NULL;
    range->size = size;
    range->kind = kind;
    range->device = device;
    range->context = context;
    range->pool = pool;
    range->context_generation = atomic_load(&context->generation);
    if (backing != NULL) {
        range->shared = true;
        range->imported = backing->imported;
        range->file = backing->file;
        range->file_offset = backing->offset;
        range->opens = 1;
        sg_range_keep_secret(range, backing->secret);
    }
    return range;
}

/* Maps its memory where it has been placed, as private memory or of the file behind it. */
static void *map_range(const struct sg_range *range, uint64_t bytes)
{
    void *const to = (void *)(uintptr_t)range->base;
    void *at = range->shared ? mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, range->file,
                                    (off_t)range->file_offset)
                             : mmap(to, bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED) {
        rg_warn("mapping %llu bytes of device memory: %s", (unsigned long long)bytes, strerror(errno));
        return NULL;
    }
    if (bytes >= SG_LARGE && !range->shared)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

/* Gives it an address and memory there, and charges the device. False: not to be had. Lock held. */
static bool place_range(struct sg_range *range)
{
    const uint64_t bytes = sg_range_committed(range), taken = sg_behave_taken(bytes, SG_PAGE);
    uint64_t *used = &sg_memory.used[range->device->ordinal];
    if (is_charged(range) && taken > range->device->memory_total - *used)
        return false;
    if (sg_memory.start == 0 && !sg_window_reserve())
        return false;
    range->span = bytes + (sg_memory.guarded && sg_memory.device.n < GUARDED_MAX ? SG_PAGE : 0);
    range->base = sg_range_set_place(&sg_memory.device, sg_memory.start, sg_memory.middle, sg_memory.cursor,
                                     range->span, bytes >= SG_LARGE ? SG_LARGE : SG_PAGE);
    void *at = range->base != 0 ? map_range(range, bytes) : NULL;
    if (at == NULL)
        return false;
    range->buffer_id = ++sg_memory.next_id;
    if (!sg_range_set_insert(&sg_memory.device, range)) {
        sg_window_map_nothing(at, bytes);
        return false;
    }
    open_block(range);
    sg_memory.cursor = range->base + range->span;
    if (is_charged(range))
        *used += taken;
    return true;
}

CUresult sg_range_alloc_backed(struct sg_context *context, struct sg_device *device, uint64_t size,
                               enum sg_range_kind kind, struct sg_pool *pool,
                               const struct sg_backing *backing, uint64_t *address)
{
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > device->memory_total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_CLEANUP_FREE struct sg_range *range = new_range(context, device, size, kind, pool, backing);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_SCOPED_LOCK(&sg_memory.lock);
    if (!place_range(range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = range->base;
    range = NULL; /* the set's */
    return CUDA_SUCCESS;
}

void sg_range_drop(struct sg_range *range)
{
    uint64_t bytes = sg_range_committed(range);
    void *at = (void *)(uintptr_t)range->base;
    /*
     * Each hole splits a mapping. Among very many allocations the memory alone goes back, so that others can
     * be made.
     */
    const bool hole = range->shared || sg_memory.device.n <= GUARDED_MAX;
    if (!hole || !sg_window_map_nothing(at, bytes))
        madvise(at, bytes, MADV_DONTNEED);
    if (is_charged(range))
        sg_memory.used[range->device->ordinal] -= sg_behave_taken(bytes, SG_PAGE);
    if (range->shared && range->kind == SG_RANGE_DEVICE)
        close(range->file); /* processes that have it mapped keep it */
    else if (range->shared && !range->imported &&
             fallocate(range->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)range->file_offset,
                       (off_t)bytes) != 0)
        rg_warn("%llu bytes of device memory cannot be given back: %s", (unsigned long long)bytes,
                strerror(errno));
    sg_range_set_remove(&sg_memory.device, range);
    close_block((uintptr_t)at, (uintptr_t)at + bytes);
    free(range);
}

CUresult sg_range_free(uint64_t address, enum sg_range_kind kind)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.device, address);
    if (range != NULL && range->base == address && range->kind == kind) {
        sg_range_drop(range);
        result = CUDA_SUCCESS;
    }
    return result;
}

static struct sg_range_set *set_of(uint64_t address)
{
    return sg_address_is_device(address) ? &sg_memory.device : &sg_memory.host;
}

bool sg_range_find(uint64_t address, struct sg_range *out)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    const struct sg_range *range = sg_range_set_find(set_of(address), address);
    if (range != NULL)
        *out = *range;
    return range != NULL;
}

/*
 * What can be done with a range's memory at all (CUmemAccess_flags): the engine's threads are the same for
 * all devices.
 */
static unsigned char access_of(const struct sg_range *range)
{
    unsigned char access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (range->kind != SG_RANGE_MAPPED)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        access |= range->access[i];
    return access;
}

int sg_range_protection(const struct sg_range *range)
{
    const unsigned char access = access_of(range);
    return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
           : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                        : PROT_NONE;
}

bool sg_range_allows(uint64_t address, uint64_t size, bool write)
{
    const unsigned char needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    bool allowed = size == 0;
    RG_SCOPED_LOCK(&sg_memory.lock);
    const struct sg_range_set *set = set_of(address);
    for (size_t i = sg_range_set_upper(set, address); !allowed && i > 0 && i <= set->n; i++) {
        const struct sg_range *range = set->at[i - 1];
        if (address < range->base || address - range->base >= range->size ||
            (access_of(range) & needed) != needed)
            break;
        const uint64_t room = range->size - (address - range->base);
        allowed = size <= room;
        if (range->kind != SG_RANGE_MAPPED)
            break;
        address += room;
        size -= room;
    }
    return allowed;
}

bool sg_range_holds(uint64_t address, uint64_t size)
{
    return sg_range_allows(address, size, true);
}

bool sg_range_begin_free(uint64_t address, struct sg_range *out)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.device, address);
    bool marked = range != NULL && range->base == address && !range->freeing &&
                  (range->kind == SG_RANGE_ASYNC || range->kind == SG_RANGE_DEVICE);
    if (marked) {
        range->freeing = true;
        *out = *range;
    }
    return marked;
}

bool sg_range_set_sync_memops(uint64_t address, int value)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(set_of(address), address);
    if (range != NULL)
        range->sync_memops = value;
    return range != NULL;
}

static bool dropped_with(const struct sg_range *range, const struct sg_context *context)
{
    return range->context == context && range->kind != SG_RANGE_MODULE &&
           range->kind != SG_RANGE_MANAGED_MODULE && range->pool == NULL;
}

void sg_ranges_drop_context(struct sg_context *context)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    for (size_t i = sg_memory.device.n; i-- > 0;)
        if (dropped_with(sg_memory.device.at[i], context))
            sg_range_drop(sg_memory.device.at[i]);
    for (size_t i = sg_memory.host.n; i-- > 0;)
        if (dropped_with(sg_memory.host.at[i], context))
            sg_range_drop_host(sg_memory.host.at[i]);
}

uint64_t sg_memory_used(const struct sg_device *device)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    uint64_t used = sg_memory.used[device->ordinal];
    return used;
}

bool sg_memory_take(const struct sg_device *device, uint64_t bytes)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    const bool enough = bytes <= device->memory_total - sg_memory.used[device->ordinal];
    if (enough)
        sg_memory.used[device->ordinal] += bytes;
    return enough;
}

void sg_memory_give_back(const struct sg_device *device, uint64_t bytes)
{
    RG_SCOPED_LOCK(&sg_memory.lock);
    sg_memory.used[device->ordinal] -= bytes;
}
