/*
 * driver.h - the functions of the driver that the library uses: those of libcuda.so.1 beside it.
 *
 * Loaded by path, once a process, when the first function is called that needs a device; a program, or a worker, has loaded the same
 * file already. Any thread.
 */
#ifndef SG_NCCL_DRIVER_H
#define SG_NCCL_DRIVER_H

#include "common/cuda/graph/captured.h"

/* X(name, symbol): `symbol` is what the library exports. */
#define SG_NCCL_DRIVER(X)                                                                                    \
    X(cuInit, cuInit)                                                                                        \
    X(cuDeviceGet, cuDeviceGet)                                                                              \
    X(cuDeviceGetCount, cuDeviceGetCount)                                                                    \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                    \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)                                               \
    X(cuCtxGetCurrent, cuCtxGetCurrent)                                                                      \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2)                                                                 \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2)                                                                   \
    X(cuCtxGetDevice, cuCtxGetDevice)                                                                        \
    X(cuMemAlloc, cuMemAlloc_v2)                                                                             \
    X(cuMemFree, cuMemFree_v2)                                                                               \
    X(cuMemHostAlloc, cuMemHostAlloc)                                                                        \
    X(cuMemFreeHost, cuMemFreeHost)                                                                          \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                                               \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                                               \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                                                               \
    X(cuLaunchHostFunc, cuLaunchHostFunc)                                                                    \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2)                                                           \
    X(cuStreamQuery, cuStreamQuery)                                                                          \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode)                                  \
    X(cuGetExportTable, cuGetExportTable)

struct sg_nccl_driver {
#define SG_NCCL_MEMBER(name, symbol) __typeof__(symbol) *p_##name;
    SG_NCCL_DRIVER(SG_NCCL_MEMBER)
#undef SG_NCCL_MEMBER
    const struct rg_captured_table *captured; /* how calls become nodes of graphs */
};

/** NULL: there is none, which was said on stderr. */
const struct sg_nccl_driver *sg_nccl_driver(void);

#endif
