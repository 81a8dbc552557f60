/*
 * address_map.c - two sorted arrays: the ranges, and what has been reserved for them. Reservations are kept
 * when a range goes (the worker's driver tends to hand out the same addresses again, and address space is
 * plentiful).
 */
#include "client/core/address_map.h"

#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* nothing is below, as Linux has it for users other than root, to whom a NULL pointer would lead somewhere */
#define LEAST (64u << 10)
#define PAGE  4096ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_range *ranges; /* by start */
static size_t n_ranges, capacity;
static uint64_t next_id = 1;

struct span {
    uint64_t start, end;
    unsigned session;
};
static struct span *reserved; /* by start, disjoint */
static size_t n_reserved, reserved_capacity;

/* Index of the first range that starts after `address`; the lock is held. */
static size_t after(uint64_t address)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool rg_map_add(const struct rg_range *range)
{
    bool done = false;
    pthread_mutex_lock(&lock);
    size_t at = after(range->start);
    if (at > 0 && ranges[at - 1].start == range->start) {
        uint64_t id = ranges[at - 1].id;
        ranges[at - 1] = *range;
        ranges[at - 1].id = range->kind == RG_RANGE_GLOBAL ? id : next_id++;
        done = true;
        goto out;
    }
    if (n_ranges == capacity) {
        size_t more = capacity ? capacity * 2 : 256;
        struct rg_range *bigger = realloc(ranges, more * sizeof *bigger);
        if (!bigger)
            goto out;
        ranges = bigger;
        capacity = more;
    }
    memmove(&ranges[at + 1], &ranges[at], (n_ranges - at) * sizeof *ranges);
    ranges[at] = *range;
    ranges[at].id = next_id++;
    n_ranges++;
    done = true;
out:
    pthread_mutex_unlock(&lock);
    return done;
}

bool rg_map_find(uint64_t address, struct rg_range *out)
{
    bool found = false;
    RG_SCOPED_LOCK(&lock);
    size_t at = after(address);
    if (at > 0 && address - ranges[at - 1].start < ranges[at - 1].size) {
        *out = ranges[at - 1];
        found = true;
    }
    return found;
}

bool rg_map_remove(uint64_t start, unsigned kinds, struct rg_range *out)
{
    bool found = false;
    RG_SCOPED_LOCK(&lock);
    size_t at = after(start);
    if (at > 0 && ranges[at - 1].start == start && (kinds & 1u << ranges[at - 1].kind)) {
        if (out)
            *out = ranges[at - 1];
        memmove(&ranges[at - 1], &ranges[at], (n_ranges - at) * sizeof *ranges);
        n_ranges--;
        found = true;
    }
    return found;
}

void rg_map_set_mapped(uint64_t start, uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
    size_t at = after(start);
    if (at > 0 && ranges[at - 1].start == start)
        ranges[at - 1].mapped = context;
}

bool rg_map_set_sync_memops(uint64_t address, bool value)
{
    RG_SCOPED_LOCK(&lock);
    const size_t at = after(address);
    const bool found = at > 0 && address - ranges[at - 1].start < ranges[at - 1].size;
    if (found)
        ranges[at - 1].sync_memops = value;
    return found;
}

void rg_map_set_access(uint64_t start, uint64_t size, CUdevice device, CUmemAccess_flags access)
{
    const uint64_t bit = device >= 0 && device < RG_DEVICES_MAX ? 1ull << device : 0;
    const uint64_t end = start + size;
    RG_SCOPED_LOCK(&lock);
    const size_t next = after(start);
    for (size_t at = next ? next - 1 : 0; at < n_ranges && ranges[at].start < end; at++) {
        struct rg_range *range = &ranges[at];
        const uint64_t range_end = range->start + range->size;
        if (range_end <= start)
            continue;
        if (range->start >= start &&
            range_end <= end) { /* of a part nothing is known that forbids the rest */
            range->readers &= ~bit;
            range->writers &= ~bit;
        }
        range->readers |= access & CU_MEM_ACCESS_FLAGS_PROT_READ ? bit : 0;
        range->writers |= access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? bit : 0;
    }
}

void rg_map_remove_context(uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
    size_t kept = 0;
    for (size_t i = 0; i < n_ranges; i++)
        if (ranges[i].context != context || ranges[i].kind > RG_RANGE_GLOBAL ||
            ranges[i].kind == RG_RANGE_POOL) {
            ranges[kept] = ranges[i];
            if (ranges[kept].context == context)
                ranges[kept].mapped = 0; /* the device that it was mapped into is gone */
            kept++;
        }
    n_ranges = kept;
}

bool rg_map_overlaps(uint64_t start, uint64_t size)
{
    RG_SCOPED_LOCK(&lock);
    size_t at = after(start);
    bool overlaps = (at > 0 && start - ranges[at - 1].start < ranges[at - 1].size) ||
                    (at < n_ranges && ranges[at].start - start < size);
    return overlaps;
}

/* What is asked of a range of device memory, beyond that it is there. */
enum use { ANY, READ, WRITE };

static bool usable(const struct rg_range *range, enum use use)
{
    return range->kind != RG_RANGE_VIRTUAL || use == ANY || (use == WRITE ? range->writers : range->readers);
}

static bool lies_on_device(uint64_t address, size_t pitch, size_t width, size_t height, enum use use)
{
    struct rg_range range;
    size_t before, size; /* all rows but the last; with the last */
    if (!width || !height)
        return true;
    if (height > 1 && pitch < width)
        return false;
    if (__builtin_mul_overflow(pitch, height - 1, &before) || __builtin_add_overflow(before, width, &size))
        return false;
    while (rg_map_find(address, &range) && rg_range_on_device(&range) && usable(&range, use)) {
        const size_t room = range.size - (address - range.start);
        if (size <= room)
            return true;
        if (range.kind != RG_RANGE_VIRTUAL)
            return false;
        address += room;
        size -= room;
    }
    return false;
}

bool rg_on_device(uint64_t address, size_t pitch, size_t width, size_t height)
{
    return lies_on_device(address, pitch, width, height, ANY);
}

bool rg_usable_on_device(uint64_t address, size_t pitch, size_t width, size_t height, bool write)
{
    return lies_on_device(address, pitch, width, height, write ? WRITE : READ);
}

/* --- reservations -------------------------------------------------------------------------------------- */

/* Reserves a span that no reservation touches yet and notes it at index `at`; the lock is held. */
static bool reserve_span(unsigned session, uint64_t start, uint64_t end, size_t at)
{
    /* Not by way of a sanitizer, which would note terabytes that nobody will touch. */
    const long got = syscall(SYS_mmap, start, end - start, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0L);
    if (got == -1)
        return errno != EEXIST;   /* no room to reserve is no conflict */
    if ((uint64_t)got != start) { /* a kernel without MAP_FIXED_NOREPLACE took it as a hint */
        (void)syscall(SYS_munmap, got, end - start);
        return false;
    }
    if (n_reserved == reserved_capacity) {
        size_t more = reserved_capacity ? reserved_capacity * 2 : 256;
        struct span *bigger = realloc(reserved, more * sizeof *bigger);
        if (!bigger)
            return true; /* reserved, though not noted: it will look like a conflict later, which is safe */
        reserved = bigger;
        reserved_capacity = more;
    }
    memmove(&reserved[at + 1], &reserved[at], (n_reserved - at) * sizeof *reserved);
    reserved[at] = (struct span){start, end, session};
    n_reserved++;
    return true;
}

/* Index of the first reservation that ends after `address`; the lock is held. */
static size_t ends_after(uint64_t address)
{
    size_t low = 0, high = n_reserved;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reserved[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The whole pages that [start, start + size) lies in. False: it goes beyond the last address. */
static bool pages_of(uint64_t start, uint64_t size, uint64_t *first, uint64_t *end)
{
    uint64_t last;
    *first = start & ~(PAGE - 1);
    if (__builtin_add_overflow(start, size, &last) || __builtin_add_overflow(last, PAGE - 1, &last))
        return false;
    *end = last & ~(PAGE - 1);
    return true;
}

bool rg_map_reserve(unsigned session, uint64_t start, uint64_t size)
{
    uint64_t at, end;
    bool good = true;
    if (start < LEAST || !pages_of(start, size, &at, &end))
        return false;
    RG_SCOPED_LOCK(&lock);
    size_t low = ends_after(at);
    for (size_t i = low; good && i < n_reserved && reserved[i].start < end; i++)
        good = reserved[i].session == session;
    for (size_t i = low; good && at < end; i++) {
        uint64_t gap_end = i < n_reserved && reserved[i].start < end ? reserved[i].start : end;
        if (at < gap_end) {
            size_t before = n_reserved;
            good = reserve_span(session, at, gap_end, i);
            i += n_reserved - before;
        }
        at = i < n_reserved && gap_end != end ? reserved[i].end : end;
    }
    return good;
}

bool rg_map_is_reserved(unsigned session, uint64_t start, uint64_t size)
{
    uint64_t at, end;
    if (!pages_of(start, size, &at, &end))
        return false;
    RG_SCOPED_LOCK(&lock);
    for (size_t i = ends_after(at); i < n_reserved && reserved[i].start <= at && at < end; i++)
        at = reserved[i].session == session ? reserved[i].end : UINT64_MAX;
    return at >= end && at != UINT64_MAX;
}

int rg_map_reserved_by(uint64_t address)
{
    RG_SCOPED_LOCK(&lock);
    const size_t at = ends_after(address);
    return at < n_reserved && reserved[at].start <= address ? (int)reserved[at].session : -1;
}
