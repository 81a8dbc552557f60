/*
 * range.c - see range.h: the window of device addresses, allocations in it, and questions about addresses of
 * all kinds. What else there is of ranges: range_inside.h.
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

#include "common/base/addresses.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/range/range_inside.h"
#include "softgpu/guest.h"

/*
 * In a program of the thread sanitizer's, which lets nothing be mapped outside of its few windows of addresses (mmap then has
 * other addresses, or fails): in its low application window.
 */
#define SANITIZED_START 0x0000004000000000ull
#define SANITIZED_SIZE  (128ull << 30)
/* Allocations of this size and more begin at a multiple of it and may be backed by large pages. */
#define LARGE          (2ull << 20)
#define WINDOW_LEAST   (1ull << 30)
#define LIBRARY_WINDOW (512ull << 30)
/*
 * A GPU maps memory in blocks of this size, and notices no access that stays in a block where anything is
 * allocated.
 */
#define BLOCK (2ull << 20)
/*
 * Beyond so many mappings guard pages are left out, so that the kernel can merge neighbours: it allows 65530.
 */
#define GUARDED_MAX 16384

struct sg_memory sg_memory = {.lock = PTHREAD_MUTEX_INITIALIZER};
struct sg_pool_hooks sg_pool_hooks;

/* This process's: what is nobody else's in it. */
static _Atomic uint64_t window_first = RG_ADDRESS_WINDOW_START, window_size = RG_ADDRESS_WINDOW_SIZE;

/* There if the program, or this library, was built with the thread sanitizer. */
extern void __tsan_init(void) __attribute__((weak)); // NOLINT(bugprone-reserved-identifier)

bool sg_window_map_nothing(void *at, uint64_t size)
{
    if (mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
    madvise(at, size, MADV_DONTDUMP);
    madvise(at, size, MADV_DONTFORK);
    return true;
}

/* SOFTGPU_WINDOW=START+BYTES: which addresses may be used, so that nobody else's are. */
static void choose_window(uint64_t *first, uint64_t *size)
{
    uint64_t wanted, bytes;
    int end = 0;
    const char *text = secure_getenv("SOFTGPU_WINDOW");
    *first = __tsan_init ? SANITIZED_START : RG_ADDRESS_WINDOW_START;
    *size = __tsan_init ? SANITIZED_SIZE : RG_ADDRESS_WINDOW_SIZE;
    if (!text || __tsan_init || sscanf(text, "0x%" SCNx64 "+0x%" SCNx64 "%n", &wanted, &bytes, &end) != 2 ||
        text[end] || wanted % LARGE || bytes % LARGE || bytes < WINDOW_LEAST || wanted > UINT64_MAX - bytes)
        return;
    *first = wanted;
    *size = bytes;
}

/* Whether kernels can reach the window if they are guarded. */
static bool is_in_reach(uint64_t first, uint64_t size)
{
    const bool reached = !sg_guest_guarded() || (first <= SG_GUEST_MASK && size <= SG_GUEST_MASK + 1 - first);
    if (!reached)
        rg_error("device memory cannot be at %#" PRIx64
                 " (SOFTGPU_WINDOW): kernels, which are guarded, cannot reach it",
                 first);
    return reached;
}

/* Notes what has been reserved. */
static bool have_window(uint64_t start, uint64_t size)
{
    madvise((void *)(uintptr_t)start, size, MADV_DONTDUMP);
    madvise((void *)(uintptr_t)start, size, MADV_DONTFORK);
    /* Accesses slightly below a program's first allocation find memory, as on GPUs, where the driver's own lies there. */
    const uint64_t below = !sg_memory.guarded && mmap((void *)(uintptr_t)start, BLOCK, PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                                                      -1, 0) != MAP_FAILED
                               ? BLOCK
                               : 0;
    sg_memory.start = sg_memory.cursor = start + below;
    sg_memory.middle = sg_memory.reserved_cursor = start + size / 2;
    sg_memory.end = start + size;
    atomic_store_explicit(&window_first, start, memory_order_relaxed);
    atomic_store_explicit(&window_size, size, memory_order_relaxed);
    return true;
}

/*
 * NVIDIA's driver takes addresses where the kernel finds room for them, among the libraries of the process.
 */
static bool reserve_among_libraries(void)
{
    void *at =
        mmap(NULL, LIBRARY_WINDOW + LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED &&
           have_window(((uint64_t)(uintptr_t)at + LARGE - 1) & ~(LARGE - 1), LIBRARY_WINDOW);
}

bool sg_window_reserve(void)
{
    if (!sg_guest_possible())
        return false;
    const char *report = secure_getenv("SOFTGPU_REPORT");
    sg_memory.guarded = report != NULL && report[0] != '\0' && strcmp(report, "0") != 0;
    if (sg_behaviour()->nvidia && !sg_guest_guarded() && reserve_among_libraries())
        return true;
    uint64_t first, whole;
    choose_window(&first, &whole);
    if (!is_in_reach(first, whole))
        return false;
    for (uint64_t size = whole; size >= WINDOW_LEAST; size = (size / 2) & ~(LARGE - 1)) {
        for (uint64_t start = first; start + size <= first + whole; start += (whole / 8) & ~(LARGE - 1)) {
            void *at = mmap((void *)(uintptr_t)start, size, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
            if (at == (void *)(uintptr_t)start)
                return have_window(start, size);
            if (at != MAP_FAILED) /* a kernel that takes the address as a hint */
                munmap(at, size);
        }
    }
    rg_error("no address space for device memory: %s", strerror(errno));
    return false;
}

uint64_t sg_range_committed(const struct sg_range *range)
{
    return (range->size + SG_PAGE - 1) & ~(SG_PAGE - 1);
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
    *behind = (end + BLOCK - 1) & ~(BLOCK - 1);
    return *behind != end && (above == set->n || set->at[above]->base >= *behind) &&
           (below == NULL || below->base + sg_range_committed(below) <= *behind - BLOCK);
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

CUresult sg_range_alloc_backed(struct sg_context *context, struct sg_device *device, uint64_t size,
                               enum sg_range_kind kind, struct sg_pool *pool,
                               const struct sg_backing *backing, uint64_t *address)
{
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > device->memory_total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    uint64_t bytes = sg_range_committed(range);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sg_memory.lock);
    uint64_t *used = &sg_memory.used[device->ordinal];
    const uint64_t taken = sg_behave_taken(bytes, SG_PAGE);
    if (is_charged(range) && taken > device->memory_total - *used)
        goto out;
    if (sg_memory.start == 0 && !sg_window_reserve())
        goto out;
    range->span = bytes + (sg_memory.guarded && sg_memory.device.n < GUARDED_MAX ? SG_PAGE : 0);
    range->base = sg_range_set_place(&sg_memory.device, sg_memory.start, sg_memory.middle, sg_memory.cursor,
                                     range->span, bytes >= LARGE ? LARGE : SG_PAGE);
    if (range->base == 0)
        goto out;
    void *at = backing == NULL ? mmap((void *)(uintptr_t)range->base, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)
                               : mmap((void *)(uintptr_t)range->base, bytes, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_FIXED, backing->file, (off_t)backing->offset);
    if (at == MAP_FAILED) {
        rg_warn("mapping %llu bytes of device memory: %s", (unsigned long long)bytes, strerror(errno));
        goto out;
    }
    if (bytes >= LARGE && backing == NULL)
        madvise(at, bytes, MADV_HUGEPAGE);
    range->buffer_id = ++sg_memory.next_id;
    if (!sg_range_set_insert(&sg_memory.device, range)) {
        sg_window_map_nothing(at, bytes);
        goto out;
    }
    open_block(range);
    sg_memory.cursor = range->base + range->span;
    if (is_charged(range))
        *used += taken;
    *address = range->base;
    range = NULL;
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&sg_memory.lock);
    free(range);
    return result;
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

bool sg_address_is_device(uint64_t address)
{
    const uint64_t first = atomic_load_explicit(&window_first, memory_order_relaxed);
    return address - first < atomic_load_explicit(&window_size, memory_order_relaxed);
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

unsigned char sg_range_access(const struct sg_range *range)
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
    const unsigned char access = sg_range_access(range);
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
            (sg_range_access(range) & needed) != needed)
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
