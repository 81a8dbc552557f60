/*
 * init.c - cuInit, version and error texts.
 *
 * cuInit makes the devices, and a primary context and a memory pool for each. A fork of a process that had
 * called it is not initialised and cannot be: the device's threads and memory did not come along.
 */

#include "softgpu/driver/driver.h" /* first: it includes cuda.h so that the API is exported */

#include <stdlib.h>

#include "common/base/thread.h"
#include "common/cuda/errors.h"
#include "common/cuda/runtime_calls.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/context/context.h"
#include "softgpu/driver/memory/pool.h"
#include "softgpu/driver/module/module.h"

static atomic_bool starting; /* a thread is in start */

static void in_fork_child(void)
{
    if (atomic_load(&sg_state.initialised) || atomic_load(&starting))
        atomic_store(&sg_state.forked, true);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_fork_child);
}

/* Runs before the exit handlers that were registered before cuInit, so before the runtime's own. */
static void at_exit(void)
{
    atomic_store(&sg_state.exiting, true);
}

/* A thread of the driver's own, as GPUs' drivers have some: it blocks all signals and never ends. */
static void *stand_by(void *unused)
{
    (void)unused;
    for (;;)
        sg_behave_sleep_ms(1000);
    return NULL;
}

static CUresult start(void)
{
    if (sg_behaviour()->nvidia) {
        sg_behave_sleep_ms(sg_behaviour()->init_ms);
        if (!sg_behave_take_addresses())
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (int i = 0; i < 2; i++)
            if (!rg_thread_start("softgpu-standby", stand_by, NULL))
                return CUDA_ERROR_OUT_OF_MEMORY;
    }
    RG_TRY(sg_devices_init());
    sg_context_at_end(sg_modules_drop_context);
    sg_pools_init();
    for (int i = 0; i < sg_state.n_devices; i++) {
        struct sg_device *device = &sg_state.devices[i];
        device->default_pool = device->current_pool = sg_pool_new(device);
        device->primary = sg_context_new(device, true, 0, 0);
        if (device->default_pool == NULL || device->primary == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    rg_runtime_has_looked_up();
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&sg_state.forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_load_explicit(&sg_state.initialised, memory_order_acquire))
        return CUDA_SUCCESS; /* without the lock, which a thread that waits for a host function may hold */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks); /* first: a fork may come in the middle of what follows */
    CUresult result = CUDA_SUCCESS;
    atomic_store(&starting, true);
    pthread_mutex_lock(&sg_state.lock);
    if (!atomic_load(&sg_state.initialised)) {
        result = start();
        if (result == CUDA_SUCCESS) {
            atexit(at_exit);
            atomic_store_explicit(&sg_state.initialised, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&sg_state.lock);
    atomic_store(&starting, false);
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sg_version()->number;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = rg_cuda_error_string(error);
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = rg_cuda_error_name(error);
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
