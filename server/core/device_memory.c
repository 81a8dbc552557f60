/*
 * device_memory.c - whether addresses that a client names are its session's device memory, or host memory that it shares with the
 * device: drivers that reach all of a process's memory (HMM, ATS) would take any other for good as well.
 *
 * The driver is asked, once for each range: what it has said counts until something may have ended memory
 * (rg_worker_memory_ended): an operation that `ends` (proto/api/traits.txt), a block of prealloc/ that is freed. Once there is
 * memory of pools, whatever waits may, and what is not known to leave memory as it is: pools give back what is free when
 * somebody waits. Of a driver that cannot be asked, nothing is refused.
 */
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"

#include <string.h>

static bool is_shared(struct rg_worker *worker, uint64_t address, uint64_t *end)
{
    bool shared = false;
    for (const struct rg_server_module *const *at = worker->modules; *at && !shared; at++)
        shared = (*at)->shares && (*at)->shares(worker, address, end);
    return shared;
}

/* The range that an address lies in, if it is the session's; without `worker`, host memory is not. */
static bool find(struct rg_worker *worker, uint64_t address, struct rg_known_range *out)
{
    unsigned type = 0;
    CUdeviceptr start = 0;
    size_t size = 0;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &start, &size};
    if (rg_driver.cuPointerGetAttributes(3, wanted, values, address) != CUDA_SUCCESS)
        type = 0;
    if (type == CU_MEMORYTYPE_HOST) { /* page-locked: also buffers of the worker's own */
        out->start = address;
        return worker && is_shared(worker, address, &out->end);
    }
    if ((type == 0 || size == 0) && rg_driver.cuMemGetAddressRange_v2(&start, &size, address) == CUDA_SUCCESS)
        type = CU_MEMORYTYPE_DEVICE; /* variables, where a driver counts those apart */
    if (type == 0 || address < start || address - start >= size)
        return false;
    *out = (struct rg_known_range){start, start + size};
    return true;
}

/* The first known range that starts behind `address`. */
static unsigned behind(const struct rg_known_ranges *known, uint64_t address)
{
    unsigned from = 0, to = known->n;
    while (from < to) {
        const unsigned middle = from + (to - from) / 2;
        if (known->ranges[middle].start <= address)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Where the known range ends that an address lies in; at the address itself if there is none. */
static uint64_t known_until(const struct rg_known_ranges *known, uint64_t address)
{
    const unsigned at = behind(known, address);
    return at && address < known->ranges[at - 1].end ? known->ranges[at - 1].end : address;
}

static void remember(struct rg_known_ranges *known, const struct rg_known_range *range)
{
    unsigned at = behind(known, range->start);
    if (at && known->ranges[at - 1].start == range->start) {
        known->ranges[at - 1] = *range;
        return;
    }
    if (known->n == RG_KNOWN_RANGES_MAX)
        known->n = at = 0;
    memmove(&known->ranges[at + 1], &known->ranges[at], (known->n - at) * sizeof *range);
    known->ranges[at] = *range;
    known->n++;
}

/* Those that still count. Memory may end on another thread while the driver is asked: then its answer is not kept. */
static struct rg_known_ranges *known_of(struct rg_worker *worker)
{
    const uint64_t epoch = atomic_load_explicit(&worker->memory_epoch, memory_order_acquire);
    if (worker->known.epoch != epoch) {
        worker->known.epoch = epoch;
        worker->known.n = 0;
    }
    return &worker->known;
}

bool rg_request_device_memory(struct rg_request *request, uint64_t address, uint64_t pitch, uint64_t width,
                              uint64_t height)
{
    struct rg_worker *worker = request->worker;
    /* what is known is the dispatcher's */
    struct rg_known_ranges *known = rg_executor_of(request)->roles ? known_of(worker) : NULL;
    uint64_t extent, end;
    if (!width || !height || !rg_driver_has(cuPointerGetAttributes))
        return true;
    bool good = (height == 1 || pitch >= width) && !__builtin_mul_overflow(pitch, height - 1, &extent) &&
                !__builtin_add_overflow(extent, width, &extent) &&
                !__builtin_add_overflow(address, extent, &end);
    /* neighbours may have been mapped one by one */
    for (uint64_t at = address; good && at < end;) {
        struct rg_known_range range = {0, known ? known_until(known, at) : at};
        if (range.end == at) {
            good = find(worker, at, &range) && range.end > at;
            if (good && known)
                remember(known, &range);
        }
        at = range.end;
    }
    if (!good && request->result == CUDA_SUCCESS)
        request->result = CUDA_ERROR_INVALID_VALUE;
    return good;
}

bool rg_is_device_memory(uint64_t address, uint64_t size)
{
    uint64_t end;
    if (!rg_driver_has(cuPointerGetAttributes))
        return true;
    if (__builtin_add_overflow(address, size, &end))
        return false;
    for (struct rg_known_range range; address < end; address = range.end)
        if (!find(NULL, address, &range))
            return false;
    return true;
}
