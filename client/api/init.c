/*
 * init.c - initialisation, version, errors, and the look-up of entry points.
 */
#include "client/connect/start.h"
#include "client/core/api_table.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "common/base/log.h"
#include "common/cuda/errors.h"
#include "common/cuda/runtime_calls.h"
#include "generated/proto/api_table.h"
#include "generated/proto/driver_versions.h"
#include "proto/api/proc_address.h"

#include <limits.h>
#include <string.h>

CUresult cuInit(unsigned int flags)
{
    rg_runtime_has_looked_up();
    struct rg_thread *thread = rg_thread_if_any();
    if (thread && thread->host_call)
        return CUDA_ERROR_NOT_PERMITTED;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_connect_start());
    if (rg_device_count() == 0)
        return CUDA_ERROR_NO_DEVICE;
    CUresult before = CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_compare_exchange_strong(&rg_sessions_ended, &before, CUDA_SUCCESS))
        atomic_store(&rg_initialised, true);
    return atomic_load(&rg_sessions_ended);
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    /* Without a server this is a machine with a driver and no device: cuInit says so. */
    *driverVersion = rg_connect_start() == CUDA_SUCCESS ? rg_driver_version() : RG_API_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = rg_cuda_error_string(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = rg_cuda_error_name(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- look-up ------------------------------------------------------------------------------------------- */

#define KNOWN_FLAGS                                                                                          \
    ((cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))

/*
 * The version of the driver that the server has, where the answer depends on it: then the connection begins here, as it does
 * when the program asks for the version. Without a server everything is found, and cuInit says that there is none.
 */
static int newest_version(const char *symbol, int version, cuuint64_t flags)
{
    const bool same = rg_proc_same_since(RG_DRIVER_VERSION_LEAST, symbol, version, flags);
    return same || rg_connect_start() != CUDA_SUCCESS ? INT_MAX : rg_driver_version();
}

static enum rg_proc_result find(const char *symbol, int version, cuuint64_t flags, int *index)
{
    return rg_proc_find_in(newest_version(symbol, version, flags), symbol, version, flags, index);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn || (flags & ~KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    int index;
    enum rg_proc_result result = find(symbol, cudaVersion, flags, &index);
    *pfn = rg_runtime_call(symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
                           result == RG_PROC_FOUND ? rg_api_table[index] : NULL);
    if (result == RG_PROC_UNKNOWN_NAME)
        rg_debug("cuGetProcAddress: no function '%s' (version %d)", symbol, cudaVersion);
    if (symbolStatus)
        *symbolStatus = result == RG_PROC_FOUND          ? CU_GET_PROC_ADDRESS_SUCCESS
                        : result == RG_PROC_UNKNOWN_NAME ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                                         : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    if (!symbol || !pfn || (flags & ~KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    int index;
    const bool found = find(symbol, cudaVersion, flags, &index) == RG_PROC_FOUND;
    void *function = rg_runtime_call(symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
                                     found ? rg_api_table[index] : NULL);
    if (!found)
        return CUDA_ERROR_NOT_FOUND;
    *pfn = function;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
