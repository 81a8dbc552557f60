/*
 * device_memory.c - whether addresses that a client names are its session's device memory, or host memory that it shares with the
 * device: drivers that reach all of a process's memory (HMM, ATS) would take any other for good as well.
 *
 * The driver is asked, once for each range: what it has said counts until a record that does not merely use memory. Without
 * that, of a driver that tells nothing, nothing is refused.
 */
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"

static bool is_shared(struct rg_worker *worker, uint64_t address, uint64_t *end)
{
    bool shared = false;
    for (const struct rg_server_module *const *at = worker->modules; *at && !shared; at++)
        shared = (*at)->shares && (*at)->shares(worker, address, end);
    return shared;
}

/* The range that an address lies in, if it is the session's. */
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
        return is_shared(worker, address, &out->end);
    }
    if ((type == 0 || size == 0) && rg_driver.cuMemGetAddressRange_v2 &&
        rg_driver.cuMemGetAddressRange_v2(&start, &size, address) == CUDA_SUCCESS)
        type = CU_MEMORYTYPE_DEVICE; /* variables, where a driver counts those apart */
    if (type == 0 || address < start || address - start >= size)
        return false;
    *out = (struct rg_known_range){start, start + size};
    return true;
}

static bool known(const struct rg_worker *worker, uint64_t start, uint64_t end)
{
    for (unsigned i = 0; i < worker->n_known; i++)
        if (start >= worker->known[i].start && end <= worker->known[i].end)
            return true;
    return false;
}

static void remember(struct rg_worker *worker, const struct rg_known_range *range)
{
    const unsigned n = sizeof worker->known / sizeof *worker->known;
    worker->known[worker->next_known++ % n] = *range;
    if (worker->n_known < n)
        worker->n_known++;
}

bool rg_request_device_memory(struct rg_request *request, uint64_t address, uint64_t pitch, uint64_t width,
                              uint64_t height)
{
    struct rg_worker *worker = request->worker;
    const bool dispatches = rg_executor_of(request)->roles != 0;
    uint64_t extent, end;
    if (!width || !height || !rg_driver.cuPointerGetAttributes)
        return true;
    bool good = !__builtin_mul_overflow(pitch, height - 1, &extent) &&
                !__builtin_add_overflow(extent, width, &extent) &&
                !__builtin_add_overflow(address, extent, &end);
    if (good && dispatches && known(worker, address, end))
        return true;
    /* neighbours may have been mapped one by one */
    for (uint64_t at = address; good && at < end;) {
        struct rg_known_range range;
        good = find(worker, at, &range) && range.end > at;
        at = range.end;
        if (good && dispatches)
            remember(worker, &range);
    }
    if (!good && request->result == CUDA_SUCCESS)
        request->result = CUDA_ERROR_INVALID_VALUE;
    return good;
}
