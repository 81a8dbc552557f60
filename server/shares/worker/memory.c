/* memory.c - what a device's memory is said to be, and linear memory. See memory.h. */
#include "server/shares/worker/memory.h"

#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool behaves_as_others(void)
{
    const char *behaviour = getenv("SOFTGPU_BEHAVE");
    return behaviour && strcmp(behaviour, "nvidia") == 0;
}

void rg_share_tell_driver(void)
{
    char text[RG_DEVICES_MAX * 21 + 1] = "";
    size_t used = 0;
    bool any = false;
    if (!rg_share.slot || !rg_share.own_memory)
        return;
    if (behaves_as_others()) { /* for tests of what holds for other drivers */
        rg_share.own_memory = false;
        return;
    }
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        const uint64_t limit = rg_share.accounts[i].limit;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i ? "," : "",
                                 (unsigned long long)limit);
        any = any || limit;
    }
    if (any && setenv("SOFTGPU_SHARES", text, 1) != 0)
        rg_error("no memory for the environment");
}

void rg_share_enter_driver(void)
{
    rg_share_direct = rg_driver;
    if (!rg_share.slot || !rg_driver_has(cuMemGetInfo_v2))
        return;
    rg_share_enter_linear();
    rg_share_enter_arrays();
    rg_share_enter_pools();
    rg_share_enter_physical();
    rg_share_enter_measured();
    rg_share_enter_libraries();
}

/* --- how much there is ----------------------------------------------------------------------------------- */

static uint64_t limit_of(CUdevice device)
{
    return device >= 0 && (uint32_t)device < rg_share.n_devices ? rg_share.accounts[device].limit : 0;
}

/* A card of the size of the limit; and what of it, and of what others leave, is free. */
static CUresult get_info(size_t *available, size_t *total)
{
    CUdevice device;
    size_t now = 0, all = 0;
    const CUresult result = rg_share_direct.cuMemGetInfo_v2(&now, &all);
    if (result == CUDA_SUCCESS && rg_meter_current(&device) && (uint32_t)device < rg_share.n_devices) {
        rg_meter_look(device);
        const uint64_t left = rg_share_left(&rg_share.accounts[device]), limit = limit_of(device);
        now = left < now ? left : now;
        all = limit && limit < all ? limit : all;
    }
    if (result == CUDA_SUCCESS && available)
        *available = now;
    if (result == CUDA_SUCCESS && total)
        *total = all;
    return result;
}

static CUresult total_memory(size_t *bytes, CUdevice device)
{
    const CUresult result = rg_share_direct.cuDeviceTotalMem_v2(bytes, device);
    const uint64_t limit = result == CUDA_SUCCESS ? limit_of(device) : 0;
    if (limit && limit < *bytes)
        *bytes = limit;
    return result;
}

/* --- linear memory ----------------------------------------------------------------------------------------- */

/* What is more than is left is freed again. `bytes`: what the driver has taken. */
static CUresult end_linear(struct rg_meter *meter, CUresult result, const CUdeviceptr *out, uint64_t bytes)
{
    if (rg_meter_end(meter, result, RG_METER_LINEAR, result == CUDA_SUCCESS ? *out : 0, bytes))
        return result;
    (void)rg_share_direct.cuMemFree_v2(*out);
    rg_meter_look(meter->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(CUdeviceptr *out, size_t size)
{
    struct rg_meter meter;
    const uint64_t bytes = rg_meter_round(size);
    if (!rg_meter_begin_current(&meter, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end_linear(&meter, rg_share_direct.cuMemAlloc_v2(out, size), out, bytes);
}

static CUresult allocate_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                               unsigned int element)
{
    struct rg_meter meter;
    uint64_t least;
    if (__builtin_mul_overflow(width, height, &least))
        return rg_share_direct.cuMemAllocPitch_v2(out, pitch, width, height, element);
    if (!rg_meter_begin_current(&meter, rg_meter_round(least)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = rg_share_direct.cuMemAllocPitch_v2(out, pitch, width, height, element);
    return end_linear(&meter, result, out, result == CUDA_SUCCESS ? rg_meter_round(*pitch * height) : 0);
}

static CUresult allocate_managed(CUdeviceptr *out, size_t size, unsigned int flags)
{
    struct rg_meter meter;
    const uint64_t bytes = rg_meter_round(size);
    if (!rg_meter_begin_current(&meter, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end_linear(&meter, rg_share_direct.cuMemAllocManaged(out, size, flags), out, bytes);
}

RG_SHARE_FREES(free_linear, RG_METER_LINEAR, cuMemFree_v2, CUdeviceptr)

/* Memory of pools stays theirs; other memory may be freed so, too. */
static CUresult free_async(CUdeviceptr address, CUstream stream)
{
    struct rg_meter_freed freed = rg_meter_free_begin(RG_METER_LINEAR, address);
    const CUresult result = rg_share_direct.cuMemFreeAsync(address, stream);
    rg_meter_free_end(&freed, result);
    return result;
}

void rg_share_enter_linear(void)
{
    RG_SHARE_ENTER(cuMemGetInfo_v2, get_info);
    RG_SHARE_ENTER(cuDeviceTotalMem_v2, total_memory);
    RG_SHARE_ENTER(cuMemAlloc_v2, allocate);
    RG_SHARE_ENTER(cuMemAllocPitch_v2, allocate_pitch);
    RG_SHARE_ENTER(cuMemAllocManaged, allocate_managed);
    RG_SHARE_ENTER(cuMemFree_v2, free_linear);
    RG_SHARE_ENTER(cuMemFreeAsync, free_async);
}
