/*
 * measured.c - contexts and modules: the driver takes for them what it needs, and only how the device's free memory changes
 * tells how much. What is too much is undone. What a driver takes later, as when a kernel is first launched, is not seen.
 */
#include "server/shares/worker/memory.h"

/* --- contexts ---------------------------------------------------------------------------------------------- */

static CUresult create(CUcontext *out, unsigned int flags, CUdevice device)
{
    struct rg_meter_change change;
    rg_meter_watch(&change, device);
    const CUresult result = rg_share_direct.cuCtxCreate_v2(out, flags, device); /* which is current then */
    if (rg_meter_watched(&change, result, RG_METER_CONTEXT, result == CUDA_SUCCESS ? (uintptr_t)*out : 0))
        return result;
    (void)rg_share_direct.cuCtxDestroy_v2(*out);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(CUcontext context)
{
    struct rg_meter_freed freed = {NULL};
    const CUresult result = rg_share_direct.cuCtxDestroy_v2(context);
    if (result == CUDA_SUCCESS)
        rg_meter_context_gone(context);
    rg_meter_free_end(&freed, result);
    return result;
}

/* Of each device the primary context that is charged; the dispatcher's and the handshake's, never at the same time. */
static CUcontext primary[RG_DEVICES_MAX];

static bool is_one(CUdevice device)
{
    return device >= 0 && device < RG_DEVICES_MAX;
}

static CUresult retain_primary(CUcontext *out, CUdevice device)
{
    struct rg_meter_change change;
    CUcontext before;
    rg_meter_watch(&change, device);
    const CUresult result = rg_share_direct.cuDevicePrimaryCtxRetain(out, device);
    if (result != CUDA_SUCCESS || !is_one(device) || primary[device] == *out ||
        rg_share_direct.cuCtxPushCurrent_v2(*out) != CUDA_SUCCESS)
        return result;
    const bool fits = rg_meter_watched(&change, result, RG_METER_CONTEXT, (uintptr_t)*out);
    (void)rg_share_direct.cuCtxPopCurrent_v2(&before);
    if (fits) {
        primary[device] = *out;
        return result;
    }
    (void)rg_share_direct.cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its last user has gone, or it was reset. */
static void look_at_primary(CUdevice device)
{
    unsigned flags;
    int active = 1;
    struct rg_meter_freed freed = {NULL};
    if (!is_one(device) || !primary[device] ||
        rg_share_direct.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active)
        return;
    rg_meter_context_gone(primary[device]);
    primary[device] = NULL;
    rg_meter_free_end(&freed, CUDA_SUCCESS);
}

static CUresult release_primary(CUdevice device)
{
    const CUresult result = rg_share_direct.cuDevicePrimaryCtxRelease_v2(device);
    look_at_primary(device);
    return result;
}

static CUresult reset_primary(CUdevice device)
{
    const CUresult result = rg_share_direct.cuDevicePrimaryCtxReset_v2(device);
    look_at_primary(device);
    return result;
}

/* --- modules ----------------------------------------------------------------------------------------------- */

/* What is more than is left is unloaded again. */
static CUresult end_module(const struct rg_meter_change *change, CUresult result, const CUmodule *out)
{
    if (rg_meter_watched(change, result, RG_METER_MODULE, result == CUDA_SUCCESS ? (uintptr_t)*out : 0))
        return result;
    (void)rg_share_direct.cuModuleUnload(*out);
    rg_meter_look(change->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_ex(CUmodule *out, const void *image, unsigned int n, CUjit_option *options,
                        void **values)
{
    struct rg_meter_change change;
    rg_meter_watch_current(&change);
    return end_module(&change, rg_share_direct.cuModuleLoadDataEx(out, image, n, options, values), out);
}

static CUresult load(CUmodule *out, const void *image)
{
    struct rg_meter_change change;
    rg_meter_watch_current(&change);
    return end_module(&change, rg_share_direct.cuModuleLoadData(out, image), out);
}

RG_SHARE_FREES(unload, RG_METER_MODULE, cuModuleUnload, CUmodule)

void rg_share_enter_measured(void)
{
    RG_SHARE_ENTER(cuCtxCreate_v2, create);
    RG_SHARE_ENTER(cuCtxDestroy_v2, destroy);
    RG_SHARE_ENTER(cuDevicePrimaryCtxRetain, retain_primary);
    RG_SHARE_ENTER(cuDevicePrimaryCtxRelease_v2, release_primary);
    RG_SHARE_ENTER(cuDevicePrimaryCtxReset_v2, reset_primary);
    RG_SHARE_ENTER(cuModuleLoadDataEx, load_ex);
    RG_SHARE_ENTER(cuModuleLoadData, load);
    RG_SHARE_ENTER(cuModuleUnload, unload);
}
