/* prepare.c - see prepare.h. */
#include "server/handshake/prepare.h"

#include "common/base/addresses.h"
#include "common/base/log.h"
#include "common/cuda/behaviour.h"
#include "server/handshake/address_space.h"
#include "server/shares/warm_places.h"
#include "server/shares/worker/memory.h"
#include "server/shares/worker/mps.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool done;
    struct rg_shape shape;
    uint32_t version;
    uint64_t contexts;
} prepared;

/* What no session can do without: a driver that lacks one of these is refused at the beginning, by its name. */
static const struct {
    const char *name;
    size_t offset;
} required[] = {
#define REQUIRED(name)                                                                                       \
    {                                                                                                        \
#name, offsetof(struct rg_driver_table, name)                                                        \
    }
    REQUIRED(cuInit),
    REQUIRED(cuDriverGetVersion),
    REQUIRED(cuDeviceGet),
    REQUIRED(cuDeviceGetCount),
    REQUIRED(cuDeviceGetName),
    REQUIRED(cuDeviceTotalMem_v2),
    REQUIRED(cuDeviceGetAttribute),
    REQUIRED(cuDevicePrimaryCtxRetain),
    REQUIRED(cuDevicePrimaryCtxRelease_v2),
    REQUIRED(cuDevicePrimaryCtxReset_v2),
    REQUIRED(cuCtxDestroy_v2),
    REQUIRED(cuCtxSetCurrent),
    REQUIRED(cuCtxPopCurrent_v2),
    REQUIRED(cuCtxGetDevice),
    REQUIRED(cuCtxSynchronize),
    REQUIRED(cuModuleLoadData),
    REQUIRED(cuModuleLoadDataEx),
    REQUIRED(cuModuleGetFunction),
    REQUIRED(cuFuncGetAttribute),
    REQUIRED(cuMemHostAlloc),
    REQUIRED(cuMemFreeHost),
    REQUIRED(cuMemcpyHtoDAsync_v2),
    REQUIRED(cuMemcpyDtoHAsync_v2),
    REQUIRED(cuStreamCreate),
    REQUIRED(cuStreamDestroy_v2),
    REQUIRED(cuStreamWaitEvent),
    REQUIRED(cuEventCreate),
    REQUIRED(cuEventDestroy_v2),
    REQUIRED(cuEventRecord),
    REQUIRED(cuEventQuery),
    REQUIRED(cuEventSynchronize),
    REQUIRED(cuLaunchKernel),
#undef REQUIRED
};

bool rg_prepare_check(CUresult result, const char *call, char *why, size_t why_size)
{
    if (result == CUDA_SUCCESS)
        return true;
    const char *name = NULL;
    if (rg_driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    rg_explain(why, why_size, "%s failed: %s (%d)", call, name, (int)result);
    return false;
}

/* For the log. */
static const char *name_of(const struct rg_hello *hello)
{
    static char name[40] = "a warm worker";
    if (hello->session < RG_WARM_NUMBER)
        snprintf(name, sizeof name, "session %llu", (unsigned long long)hello->session);
    return name;
}

static bool behaves_as_nvidia(void)
{
    return rg_behaviour_is_nvidia(
        getenv("SOFTGPU_BEHAVE")); /* else the software device takes no notice of it */
}

/*
 * Keeps device memory in the window that the client keeps free for it. The software device takes it by name, and
 * needs no larger one than it has without a server, unless it is to behave as other drivers do: these take what the kernel offers, and it
 * offers nothing else.
 * A client of before there were windows names a part of the address space alone, as those of one client's
 * servers must not overlap.
 */
static void take_window(const struct rg_hello *hello, const struct rg_shape *shape)
{
    const bool by_name = strcmp(hello->driver_kind, "soft") == 0 && !behaves_as_nvidia();
    const bool named = shape->window_size != 0;
    const uint64_t start = named ? shape->window_start : rg_address_window(shape->address_part);
    const uint64_t size = named && (!by_name || shape->window_size < RG_ADDRESS_WINDOW_SIZE)
                              ? shape->window_size
                              : RG_ADDRESS_WINDOW_SIZE;
    char text[48];
    snprintf(text, sizeof text, "%#" PRIx64 "+%#" PRIx64, start, size);
    if (by_name && setenv("SOFTGPU_WINDOW", text, 1) != 0)
        rg_info("no memory for the environment");
    if (!by_name && (named || shape->address_part) && rg_address_space_close(start, size) != RG_OK)
        rg_warn("%s: not all addresses could be closed to the driver but those that the client "
                "keeps free (%s)",
                name_of(hello), text);
}

/*
 * The software device confines kernels, which are the client's, to their own memory, unless the server's environment says
 * otherwise. Where it behaves as other drivers do, its memory is among the worker's: nothing can be confined.
 */
static void guard_kernels(const struct rg_hello *hello)
{
    const char *own = getenv("SOFTGPU_GUARD");
    const bool off = own && strcmp(own, "0") == 0;
    if (strcmp(hello->driver_kind, "soft") != 0)
        return;
    if (off || behaves_as_nvidia()) {
        rg_warn("%s: kernels are not confined to their own memory, as %s is set in the server's "
                "environment",
                name_of(hello), off ? "SOFTGPU_GUARD=0" : "SOFTGPU_BEHAVE=nvidia");
        (void)setenv("SOFTGPU_GUARD", "0", 1);
        return;
    }
    if (setenv("SOFTGPU_GUARD", "1", 1) != 0)
        rg_info("no memory for the environment");
    rg_address_space_map_shared();
}

/* The software device reports what the client's program does best with, unless this server decides. */
static void take_capability(uint32_t capability)
{
    char text[16];
    const char *own = getenv("SOFTGPU_CC");
    if (capability == 0 || (own && *own))
        return;
    snprintf(text, sizeof text, "%u.%u", capability / 10, capability % 10);
    if (setenv("SOFTGPU_CC", text, 1) != 0)
        rg_info("no memory for the environment");
}

static bool load_driver(const struct rg_hello *hello, char *why, size_t why_size)
{
    void *library = dlopen(hello->driver, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rg_explain(why, why_size, "the driver cannot be loaded: %s", dlerror());
        return false;
    }
    rg_driver_resolve(library);
    rg_share_enter_driver();
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (*(void **)((char *)&rg_driver + required[i].offset) ==
            *(void *const *)((const char *)&rg_driver_absent + required[i].offset)) {
            rg_explain(why, why_size, "the driver %s has no function %s", hello->driver, required[i].name);
            return false;
        }
    }
    int number = 0;
    if (!rg_prepare_check(rg_driver.cuInit(0), "cuInit", why, why_size) ||
        !rg_prepare_check(rg_driver.cuDriverGetVersion(&number), "cuDriverGetVersion", why, why_size))
        return false;
    prepared.version = (uint32_t)number;
    return rg_mps_holds(why, why_size);
}

enum rg_status rg_prepare_driver(const struct rg_hello *hello, const struct rg_shape *shape, char *why,
                                 size_t why_size)
{
    take_window(hello, shape);
    guard_kernels(hello);
    take_capability(shape->capability);
    rg_share_tell_driver();
    if (!load_driver(hello, why, why_size))
        return RG_ERR_UNSUPPORTED;
    prepared.shape = *shape;
    prepared.done = true;
    return RG_OK;
}

const struct rg_shape *rg_prepared_shape(void)
{
    return prepared.done ? &prepared.shape : NULL;
}

uint32_t rg_prepared_version(void)
{
    return prepared.version;
}

uint64_t rg_prepared_contexts(void)
{
    return prepared.contexts;
}

void rg_prepare_contexts(uint64_t wanted, uint32_t n_devices)
{
    for (uint32_t i = 0; i < n_devices && i < 64; i++) {
        const uint64_t bit = 1ull << i;
        CUcontext context;
        CUdevice device;
        if ((wanted & bit & ~prepared.contexts) && rg_driver.cuDeviceGet(&device, (int)i) == CUDA_SUCCESS &&
            rg_driver.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
            prepared.contexts |= bit;
    }
}
