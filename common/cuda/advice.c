/*
 * advice.c - see advice.h. An array of disjoint segments by address; setting something splits those at the ends of the
 * range and fills its gaps.
 */
#include "common/cuda/advice.h"

#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 64

struct segment {
    uint64_t start, end;
    bool read_mostly;
    CUmemLocation preferred, prefetched; /* CU_MEM_LOCATION_TYPE_INVALID: none */
    uint64_t accessed_by;                /* a bit a device */
    bool accessed_by_host;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;
static size_t n_segments, capacity;

static const struct segment untold; /* CU_MEM_LOCATION_TYPE_INVALID is 0 */

CUmemLocation rg_location_of(CUdevice device)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    location.id = device;
    if (device == CU_DEVICE_CPU) {
        location.type = CU_MEM_LOCATION_TYPE_HOST;
        location.id = 0;
    }
    return location;
}

bool rg_location_valid(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location->id >= 0 && location->id < DEVICES;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id >= 0;
    default:
        return false;
    }
}

bool rg_advice_has_location(CUmem_advise advice)
{
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

/* Index of the first segment that ends after `address`. */
static size_t first_behind(uint64_t address)
{
    size_t low = 0, high = n_segments;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (segments[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool room(size_t more)
{
    if (n_segments + more <= capacity)
        return true;
    const size_t bigger = (n_segments + more) * 2;
    struct segment *grown = realloc(segments, bigger * sizeof *grown);
    if (!grown)
        return false;
    segments = grown;
    capacity = bigger;
    return true;
}

static void insert(size_t at, const struct segment *segment)
{
    memmove(&segments[at + 1], &segments[at], (n_segments - at) * sizeof *segments);
    segments[at] = *segment;
    n_segments++;
}

/* Makes `address` a border of segments. There is room for one more. */
static void split(uint64_t address)
{
    const size_t at = first_behind(address);
    if (at == n_segments || segments[at].start >= address)
        return;
    struct segment second = segments[at];
    second.start = address;
    segments[at].end = address;
    insert(at + 1, &second);
}

/* Makes [start, end) whole segments, without gaps; the index of the first, or -1 without memory. */
static long cover(uint64_t start, uint64_t end)
{
    if (!room(2))
        return -1;
    split(start);
    split(end);
    const size_t first = first_behind(start);
    uint64_t at = start;
    for (size_t i = first; at < end; i++) {
        if (i == n_segments || segments[i].start > at) {
            struct segment gap = untold;
            gap.start = at;
            gap.end = i < n_segments && segments[i].start < end ? segments[i].start : end;
            if (!room(1))
                return -1;
            insert(i, &gap);
        }
        at = segments[i].end;
    }
    return (long)first;
}

static void apply(struct segment *segment, CUmem_advise advice, const CUmemLocation *location)
{
    const bool on_device = location && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    const uint64_t bit = on_device ? 1ull << location->id : 0;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        segment->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        segment->preferred = *location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        segment->preferred = untold.preferred;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        segment->accessed_by |= bit;
        segment->accessed_by_host |= !on_device;
        break;
    default:
        segment->accessed_by &= ~bit;
        segment->accessed_by_host &= on_device;
    }
}

CUresult rg_advice_set(uint64_t start, uint64_t size, CUmem_advise advice, const CUmemLocation *location)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&lock);
    const long first = cover(start, start + size);
    for (size_t i = (size_t)first; first >= 0 && i < n_segments && segments[i].start < start + size; i++)
        apply(&segments[i], advice, location);
    return first >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_advice_prefetched(uint64_t start, uint64_t size, const CUmemLocation *location)
{
    RG_SCOPED_LOCK(&lock);
    const long first = cover(start, start + size);
    for (size_t i = (size_t)first; first >= 0 && i < n_segments && segments[i].start < start + size; i++)
        segments[i].prefetched = *location;
    return first >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_advice_forget(uint64_t start, uint64_t size)
{
    RG_SCOPED_LOCK(&lock);
    if (room(2)) {
        split(start);
        split(start + size);
        const size_t first = first_behind(start);
        size_t end = first;
        while (end < n_segments && segments[end].start < start + size)
            end++;
        memmove(&segments[first], &segments[end], (n_segments - end) * sizeof *segments);
        n_segments -= end - first;
    }
}

static bool same(const CUmemLocation *one, const CUmemLocation *other)
{
    return one->type == other->type && (one->type == CU_MEM_LOCATION_TYPE_INVALID || one->id == other->id);
}

/* What is true of all of a range. The lock is held. */
static struct segment common_facts(uint64_t start, uint64_t end)
{
    size_t i = first_behind(start);
    uint64_t at = start;
    struct segment facts = untold;
    for (bool begun = false; at < end; begun = true) {
        const bool gap = i == n_segments || segments[i].start > at;
        const struct segment *here = gap ? &untold : &segments[i];
        at = !gap ? segments[i].end : i < n_segments && segments[i].start < end ? segments[i].start : end;
        i += !gap;
        if (!begun) {
            facts = *here;
            continue;
        }
        facts.read_mostly &= here->read_mostly;
        facts.accessed_by &= here->accessed_by;
        facts.accessed_by_host &= here->accessed_by_host;
        if (!same(&facts.preferred, &here->preferred))
            facts.preferred = untold.preferred;
        if (!same(&facts.prefetched, &here->prefetched))
            facts.prefetched = untold.prefetched;
    }
    return facts;
}

/* A location as the older attributes say it. */
static int as_device(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
           : location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id
                                                           : CU_DEVICE_CPU;
}

static void list_accessors(const struct segment *facts, int *list, size_t n)
{
    size_t used = 0;
    for (int device = 0; device < DEVICES && used < n; device++)
        if (facts->accessed_by >> device & 1)
            list[used++] = device;
    if (facts->accessed_by_host && used < n)
        list[used++] = CU_DEVICE_CPU;
    while (used < n)
        list[used++] = CU_DEVICE_INVALID;
}

CUresult rg_advice_get(void *data, size_t data_size, CUmem_range_attribute attribute, uint64_t start,
                       uint64_t size)
{
    const bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (!data || !size || (list ? !data_size || data_size % sizeof(int) : data_size != sizeof(int)))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const struct segment facts = common_facts(start, start + size);
    pthread_mutex_unlock(&lock);
    int *out = data;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *out = facts.read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *out = as_device(&facts.preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *out = as_device(&facts.prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessors(&facts, out, data_size / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *out = (int)facts.preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *out = facts.preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *out = (int)facts.prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *out = facts.prefetched.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
