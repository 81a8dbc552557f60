/*
 * range.c - see range.h. One lock, one sorted array each for device and host ranges; system calls that map
 * and unmap memory are made under the lock, so that addresses are never known before they are usable.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softgpu/driver/range.h"

#if defined(__SANITIZE_THREAD__)
/* The thread sanitizer knows a few windows of addresses only; this one is its low application window. */
#define WINDOW_START 0x0000004000000000ull
#define WINDOW_SIZE  (128ull << 30)
#define WINDOWS      1
#else
#define WINDOW_START 0x0000200000000000ull
#define WINDOW_SIZE  (4ull << 40)
#define WINDOWS      16 /* SOFTGPU_ADDRESS_PART chooses: drivers with different ones share no address */
#endif
#define PAGE 4096ull
/* Allocations of this size and more begin at a multiple of it and may be backed by large pages. */
#define LARGE (2ull << 20)
/* Beyond so many mappings guard pages are left out, so that the kernel can merge neighbours: it allows 65530.
 */
#define GUARDED_MAX 16384

struct range_set {
    struct sg_range **at; /* sorted by base */
    size_t n, capacity;
};

static struct {
    pthread_mutex_t lock;
    struct range_set device, host, reserved;
    /* of the window; start 0 until it is reserved. Allocations lie below `middle`, reservations above. */
    uint64_t start, middle, end, cursor, reserved_cursor;
    uint64_t used[SG_DEVICES_MAX];
    unsigned long long next_id;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t window_first = WINDOW_START; /* this process's */

/* Index of the first range whose base is above `address`. */
static size_t upper(const struct range_set *set, uint64_t address)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->at[middle]->base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct sg_range *lookup(const struct range_set *set, uint64_t address)
{
    size_t i = upper(set, address);
    if (i == 0)
        return NULL;
    struct sg_range *range = set->at[i - 1];
    return address - range->base < range->size ? range : NULL;
}

static bool insert(struct range_set *set, struct sg_range *range)
{
    if (set->n == set->capacity) {
        size_t capacity = set->capacity == 0 ? 64 : set->capacity * 2;
        struct sg_range **at = realloc(set->at, capacity * sizeof *at);
        if (at == NULL)
            return false;
        set->at = at;
        set->capacity = capacity;
    }
    size_t i = upper(set, range->base);
    memmove(&set->at[i + 1], &set->at[i], (set->n - i) * sizeof *set->at);
    set->at[i] = range;
    set->n++;
    return true;
}

static void take_out(struct range_set *set, const struct sg_range *range)
{
    size_t i = upper(set, range->base) - 1;
    memmove(&set->at[i], &set->at[i + 1], (set->n - i - 1) * sizeof *set->at);
    set->n--;
}

/*
 * Makes [at, at + size) of the window what it was before anything was mapped there. All that the window was told goes for
 * it again: it merges with what is around it then, and a process may have only so many mappings.
 */
static bool map_nothing(void *at, uint64_t size)
{
    if (mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
    madvise(at, size, MADV_DONTDUMP);
    madvise(at, size, MADV_DONTFORK);
    return true;
}

static bool reserve_window(void)
{
    const char *part = getenv("SOFTGPU_ADDRESS_PART");
    const uint64_t number = part ? strtoull(part, NULL, 10) % WINDOWS : 0;
    /* Between the fourth window and the fifth are the addresses of clients' page-locked memory. */
    const uint64_t first = WINDOW_START + number * WINDOW_SIZE + (number < 4 ? 0 : 2 * WINDOW_SIZE);
    atomic_store_explicit(&window_first, first, memory_order_relaxed);
    for (uint64_t size = WINDOW_SIZE; size >= 1ull << 30; size /= 2) {
        for (uint64_t start = first; start + size <= first + WINDOW_SIZE; start += WINDOW_SIZE / 8) {
            void *at = mmap((void *)(uintptr_t)start, size, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
            if (at == MAP_FAILED)
                continue;
            if (at != (void *)(uintptr_t)start) { /* a kernel that takes the address as a hint */
                munmap(at, size);
                continue;
            }
            madvise(at, size, MADV_DONTDUMP);
            madvise(at, size, MADV_DONTFORK);
            memory.start = memory.cursor = start;
            memory.middle = memory.reserved_cursor = start + size / 2;
            memory.end = start + size;
            return true;
        }
    }
    rg_error("no address space for device memory: %s", strerror(errno));
    return false;
}

static uint64_t align_up(uint64_t address, uint64_t to)
{
    return (address + to - 1) & ~(to - 1);
}

/* Whether `span` bytes from `at` end before `end`. */
static bool fits(uint64_t at, uint64_t span, uint64_t end)
{
    return at <= end && end - at >= span;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Where `span` bytes are free in [start, end) of the window: behind the last one given out, else the first gap.
 * 0: nowhere. */
static uint64_t place(const struct range_set *set, uint64_t start, uint64_t end, uint64_t cursor,
                      uint64_t span, uint64_t alignment)
{
    uint64_t at = align_up(cursor, alignment);
    size_t above = upper(set, cursor - 1); /* one that begins at the cursor counts */
    if (fits(at, span, above < set->n ? least(set->at[above]->base, end) : end))
        return at;
    at = align_up(start, alignment);
    for (size_t i = 0; i < set->n; i++) {
        if (fits(at, span, least(set->at[i]->base, end)))
            return at;
        at = align_up(set->at[i]->base + set->at[i]->span, alignment);
    }
    return fits(at, span, end) ? at : 0;
}

static uint64_t committed(const struct sg_range *range)
{
    return (range->size + PAGE - 1) & ~(PAGE - 1);
}

static void keep_secret(struct sg_range *range, const unsigned char *secret)
{
    memcpy(range->secret, secret, SG_SECRET);
}

CUresult sg_range_alloc(struct sg_context *context, struct sg_device *device, uint64_t size,
                        enum sg_range_kind kind, struct sg_pool *pool, uint64_t *address)
{
    return sg_range_alloc_backed(context, device, size, kind, pool, NULL, address);
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
        keep_secret(range, backing->secret);
    }
    uint64_t bytes = committed(range);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory.lock);
    range->span = bytes + (memory.device.n < GUARDED_MAX ? PAGE : 0);
    uint64_t *used = &memory.used[device->ordinal];
    if (!range->imported && bytes > device->memory_total - *used)
        goto out;
    if (memory.start == 0 && !reserve_window())
        goto out;
    range->base = place(&memory.device, memory.start, memory.middle, memory.cursor, range->span,
                        bytes >= LARGE ? LARGE : PAGE);
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
    range->buffer_id = ++memory.next_id;
    if (!insert(&memory.device, range)) {
        map_nothing(at, bytes);
        goto out;
    }
    memory.cursor = range->base + range->span;
    if (!range->imported)
        *used += bytes;
    *address = range->base;
    range = NULL;
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&memory.lock);
    free(range);
    return result;
}

/* Gives the pages back and forgets the range. Lock held. */
static void drop_device_range(struct sg_range *range)
{
    uint64_t bytes = committed(range);
    void *at = (void *)(uintptr_t)range->base;
    if (!map_nothing(at, bytes)) /* too many mappings to split: at least the memory goes back */
        madvise(at, bytes, MADV_DONTNEED);
    if (!range->imported)
        memory.used[range->device->ordinal] -= bytes;
    if (range->shared && range->kind == SG_RANGE_DEVICE)
        close(range->file); /* processes that have it mapped keep it */
    else if (range->shared && !range->imported &&
             fallocate(range->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)range->file_offset,
                       (off_t)bytes) != 0)
        rg_warn("%llu bytes of device memory cannot be given back: %s", (unsigned long long)bytes,
                strerror(errno));
    take_out(&memory.device, range);
    free(range);
}

/* Writes the pages of a range that hold anything to the file. */
static bool copy_to_file(const struct sg_range *range, int file)
{
    static const unsigned char zeros[PAGE];
    const unsigned char *from = (const unsigned char *)(uintptr_t)range->base;
    for (uint64_t at = 0; at < committed(range); at += PAGE)
        if (memcmp(from + at, zeros, PAGE) != 0 && pwrite(file, from + at, PAGE, (off_t)at) != (ssize_t)PAGE)
            return false;
    return true;
}

/* Puts the range's contents into a file, and the file in the place of its memory. Lock held. */
static bool move_to_file(struct sg_range *range)
{
    struct sg_shared_file about = {
        .kind = SG_SHARED_MEMORY, .device = range->device->ordinal, .size = committed(range)};
    int file = sg_shared_file_new(&about);
    if (file < 0)
        return false;
    if (!copy_to_file(range, file) || mmap((void *)(uintptr_t)range->base, about.size, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        rg_warn("device memory cannot be shared: %s", strerror(errno));
        close(file);
        return false;
    }
    range->shared = true;
    range->file = file;
    keep_secret(range, about.secret);
    return true;
}

CUresult sg_range_share(uint64_t address, struct sg_range *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.device, address);
    if (range != NULL && range->kind == SG_RANGE_DEVICE) {
        result = range->shared || move_to_file(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        *out = *range;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

uint64_t sg_range_reopen(const struct sg_context *context, const unsigned char *secret)
{
    uint64_t address = 0;
    pthread_mutex_lock(&memory.lock);
    for (size_t i = 0; i < memory.device.n && address == 0; i++) {
        struct sg_range *range = memory.device.at[i];
        if (range->kind == SG_RANGE_IPC && range->context == context &&
            memcmp(range->secret, secret, SG_SECRET) == 0) {
            range->opens++;
            address = range->base;
        }
    }
    pthread_mutex_unlock(&memory.lock);
    return address;
}

CUresult sg_range_close(uint64_t address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.device, address);
    if (range != NULL && range->base == address && range->kind == SG_RANGE_IPC) {
        if (--range->opens == 0)
            drop_device_range(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

CUresult sg_range_free(uint64_t address, enum sg_range_kind kind)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.device, address);
    if (range != NULL && range->base == address && range->kind == kind) {
        drop_device_range(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

CUresult sg_range_host_alloc(struct sg_context *context, uint64_t size, unsigned flags, void **address)
{
    if (size == 0 || size > SIZE_MAX / 2)
        return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = (size + PAGE - 1) & ~(PAGE - 1);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *range = (struct sg_range){.base = (uintptr_t)at,
                               .size = size,
                               .span = bytes,
                               .kind = SG_RANGE_HOST,
                               .flags = flags,
                               .device = context->device,
                               .context = context,
                               .context_generation = atomic_load(&context->generation)};
    pthread_mutex_lock(&memory.lock);
    range->buffer_id = ++memory.next_id;
    bool kept = insert(&memory.host, range);
    pthread_mutex_unlock(&memory.lock);
    if (!kept) {
        munmap(at, bytes);
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = at;
    return CUDA_SUCCESS;
}

CUresult sg_range_host_register(struct sg_context *context, void *address, uint64_t size, unsigned flags)
{
    uint64_t base = (uintptr_t)address;
    if (address == NULL || size == 0 || base + size < base || sg_address_is_device(base))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = (struct sg_range){.base = base,
                               .size = size,
                               .span = size,
                               .kind = SG_RANGE_REGISTERED,
                               .flags = flags,
                               .device = context->device,
                               .context = context,
                               .context_generation = atomic_load(&context->generation)};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory.lock);
    size_t i = upper(&memory.host, base);
    bool overlaps = (i > 0 && base - memory.host.at[i - 1]->base < memory.host.at[i - 1]->size) ||
                    (i < memory.host.n && memory.host.at[i]->base - base < size);
    range->buffer_id = ++memory.next_id;
    if (overlaps)
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!insert(&memory.host, range))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&memory.lock);
    if (result != CUDA_SUCCESS)
        free(range);
    return result;
}

static void drop_host_range(struct sg_range *range)
{
    take_out(&memory.host, range);
    if (range->kind == SG_RANGE_HOST)
        munmap((void *)(uintptr_t)range->base, range->span);
    free(range);
}

CUresult sg_range_host_free(void *address, enum sg_range_kind kind)
{
    CUresult result =
        kind == SG_RANGE_HOST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.host, (uintptr_t)address);
    if (range != NULL && range->base == (uintptr_t)address && range->kind == kind) {
        drop_host_range(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

bool sg_address_is_device(uint64_t address)
{
    const uint64_t first = atomic_load_explicit(&window_first, memory_order_relaxed);
    return address >= first && address < first + WINDOW_SIZE;
}

static struct range_set *set_of(uint64_t address)
{
    return sg_address_is_device(address) ? &memory.device : &memory.host;
}

bool sg_range_find(uint64_t address, struct sg_range *out)
{
    pthread_mutex_lock(&memory.lock);
    const struct sg_range *range = lookup(set_of(address), address);
    if (range != NULL)
        *out = *range;
    pthread_mutex_unlock(&memory.lock);
    return range != NULL;
}

/* What can be done with a range's memory at all: the engine's threads are the same for all devices. */
static unsigned char strongest_access(const struct sg_range *range)
{
    unsigned char access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (range->kind != SG_RANGE_MAPPED)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        access |= range->access[i];
    return access;
}

bool sg_range_allows(uint64_t address, uint64_t size, bool write)
{
    const unsigned char needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    bool allowed = size == 0;
    pthread_mutex_lock(&memory.lock);
    const struct range_set *set = set_of(address);
    for (size_t i = upper(set, address); !allowed && i > 0 && i <= set->n; i++) {
        const struct sg_range *range = set->at[i - 1];
        if (address < range->base || address - range->base >= range->size ||
            (strongest_access(range) & needed) != needed)
            break;
        const uint64_t room = range->size - (address - range->base);
        allowed = size <= room;
        if (range->kind != SG_RANGE_MAPPED)
            break;
        address += room;
        size -= room;
    }
    pthread_mutex_unlock(&memory.lock);
    return allowed;
}

bool sg_range_holds(uint64_t address, uint64_t size)
{
    return sg_range_allows(address, size, true);
}

bool sg_range_begin_free(uint64_t address, struct sg_range *out)
{
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.device, address);
    bool marked = range != NULL && range->base == address && !range->freeing && range->kind == SG_RANGE_ASYNC;
    if (marked) {
        range->freeing = true;
        *out = *range;
    }
    pthread_mutex_unlock(&memory.lock);
    return marked;
}

bool sg_range_set_sync_memops(uint64_t address, int value)
{
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(set_of(address), address);
    if (range != NULL)
        range->sync_memops = value;
    pthread_mutex_unlock(&memory.lock);
    return range != NULL;
}

static bool dropped_with(const struct sg_range *range, const struct sg_context *context)
{
    return range->context == context && range->kind != SG_RANGE_MODULE &&
           range->kind != SG_RANGE_MANAGED_MODULE && range->pool == NULL;
}

void sg_ranges_drop_context(struct sg_context *context)
{
    pthread_mutex_lock(&memory.lock);
    for (size_t i = memory.device.n; i-- > 0;)
        if (dropped_with(memory.device.at[i], context))
            drop_device_range(memory.device.at[i]);
    for (size_t i = memory.host.n; i-- > 0;)
        if (dropped_with(memory.host.at[i], context))
            drop_host_range(memory.host.at[i]);
    pthread_mutex_unlock(&memory.lock);
}

uint64_t sg_memory_used(const struct sg_device *device)
{
    pthread_mutex_lock(&memory.lock);
    uint64_t used = memory.used[device->ordinal];
    pthread_mutex_unlock(&memory.lock);
    return used;
}

bool sg_memory_take(const struct sg_device *device, uint64_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    const bool enough = bytes <= device->memory_total - memory.used[device->ordinal];
    if (enough)
        memory.used[device->ordinal] += bytes;
    pthread_mutex_unlock(&memory.lock);
    return enough;
}

void sg_memory_give_back(const struct sg_device *device, uint64_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    memory.used[device->ordinal] -= bytes;
    pthread_mutex_unlock(&memory.lock);
}

/* --- reserved addresses --- */

/* Whether [address, address + size) lies above the middle of the window and meets no reservation. */
static bool can_reserve(uint64_t address, uint64_t size)
{
    const struct range_set *set = &memory.reserved;
    const size_t above = upper(set, address);
    return address >= memory.middle && fits(address, size, memory.end) &&
           (above == 0 || set->at[above - 1]->base + set->at[above - 1]->size <= address) &&
           (above == set->n || set->at[above]->base - address >= size);
}

CUresult sg_range_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address)
{
    struct sg_range *range = calloc(1, sizeof *range);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (range == NULL)
        return result;
    if (alignment < SG_GRANULARITY)
        alignment = SG_GRANULARITY;
    *range = (struct sg_range){.size = size, .span = size, .kind = SG_RANGE_RESERVED};
    pthread_mutex_lock(&memory.lock);
    if (memory.start == 0 && !reserve_window())
        goto out;
    if (hint != 0 && hint % alignment == 0 && can_reserve(hint, size))
        range->base = hint;
    else
        range->base =
            place(&memory.reserved, memory.middle, memory.end, memory.reserved_cursor, size, alignment);
    if (range->base == 0 || !insert(&memory.reserved, range))
        goto out;
    if (range->base != hint)
        memory.reserved_cursor = range->base + size;
    *address = range->base;
    range = NULL;
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&memory.lock);
    free(range);
    return result;
}

/* Whether a mapping meets [address, address + size). Lock held. */
static bool meets_mapping(uint64_t address, uint64_t size)
{
    const size_t above = upper(&memory.device, address);
    return lookup(&memory.device, address) != NULL ||
           (above < memory.device.n && memory.device.at[above]->base - address < size);
}

CUresult sg_range_unreserve(uint64_t address, uint64_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    struct sg_range *range = lookup(&memory.reserved, address);
    if (range != NULL && range->base == address && range->size == size && !meets_mapping(address, size)) {
        take_out(&memory.reserved, range);
        free(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

CUresult sg_range_map(uint64_t address, uint64_t size, int file, uint64_t offset,
                      struct sg_allocation *allocation, struct sg_device *device)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct sg_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = (struct sg_range){.base = address,
                               .size = size,
                               .span = size,
                               .kind = SG_RANGE_MAPPED,
                               .device = device,
                               .allocation = allocation};
    pthread_mutex_lock(&memory.lock);
    const struct sg_range *reserved = lookup(&memory.reserved, address);
    if (reserved == NULL || size > reserved->size - (address - reserved->base) ||
        meets_mapping(address, size))
        goto out;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    range->buffer_id = ++memory.next_id;
    if (!insert(&memory.device, range))
        goto out;
    void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, (off_t)offset);
    if (at == MAP_FAILED) {
        rg_warn("mapping %llu bytes of device memory: %s", (unsigned long long)size, strerror(errno));
        take_out(&memory.device, range);
        goto out;
    }
    madvise(at, size, MADV_DONTDUMP);
    madvise(at, size, MADV_DONTFORK);
    range = NULL;
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&memory.lock);
    free(range);
    return result;
}

/* The index of the first of the whole mappings that make up [address, address + size), and behind the last; false if
 * they do not. Lock held. */
static bool mappings(uint64_t address, uint64_t size, size_t *begin, size_t *end)
{
    const struct range_set *set = &memory.device;
    size_t i = *begin = upper(set, address - 1);
    for (; size > 0; i++) {
        if (i == set->n || set->at[i]->kind != SG_RANGE_MAPPED || set->at[i]->base != address ||
            set->at[i]->size > size)
            return false;
        address += set->at[i]->size;
        size -= set->at[i]->size;
    }
    *end = i;
    return i > *begin;
}

bool sg_range_is_mapped(uint64_t address, uint64_t size)
{
    size_t begin, end;
    pthread_mutex_lock(&memory.lock);
    const bool whole = mappings(address, size, &begin, &end);
    pthread_mutex_unlock(&memory.lock);
    return whole;
}

CUresult sg_range_unmap(uint64_t address, uint64_t size, void (*gone)(struct sg_allocation *allocation))
{
    size_t begin, end;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    if (!mappings(address, size, &begin, &end))
        goto out;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!map_nothing((void *)(uintptr_t)address, size))
        goto out;
    while (end-- > begin) {
        struct sg_range *range = memory.device.at[end];
        take_out(&memory.device, range);
        gone(range->allocation);
        free(range);
    }
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&memory.lock);
    return result;
}

CUresult sg_range_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc *descriptions, size_t n)
{
    size_t begin, end;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory.lock);
    if (!mappings(address, size, &begin, &end))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = begin; result == CUDA_SUCCESS && i < end; i++) {
        struct sg_range *range = memory.device.at[i];
        for (size_t j = 0; j < n; j++)
            range->access[descriptions[j].location.id] = (unsigned char)descriptions[j].flags;
        const unsigned char access = strongest_access(range);
        const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                               : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                            : PROT_NONE;
        if (mprotect((void *)(uintptr_t)range->base, range->size, protection) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}
