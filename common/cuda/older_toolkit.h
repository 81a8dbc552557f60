/*
 * older_toolkit.h - what cuda.h of CUDA 12.9 lacks of 13.0's: included before everything else where the build has such
 * headers (cmake/RemoteGpu.cmake), and never otherwise.
 *
 * The API that is exported is that of proto/api/symbols.txt, whatever the headers; numbers and layouts are 13.0's.
 */
#ifndef RG_COMMON_CUDA_OLDER_TOOLKIT_H
#define RG_COMMON_CUDA_OLDER_TOOLKIT_H
#ifndef __ASSEMBLER__

#pragma GCC visibility push(default)
#include <cuda.h>

#define CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER                        ((CUresult)36)
#define CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED ((CUdevice_P2PAttribute)5)

typedef enum CUatomicOperation_enum {
    CU_ATOMIC_OPERATION_EXCHANGE = 8,
    CU_ATOMIC_OPERATION_CAS = 9,
    CU_ATOMIC_OPERATION_FLOAT_ADD = 10,
    CU_ATOMIC_OPERATION_MAX = 13
} CUatomicOperation;

#define CU_ATOMIC_CAPABILITY_SIGNED    1u
#define CU_ATOMIC_CAPABILITY_UNSIGNED  2u
#define CU_ATOMIC_CAPABILITY_SCALAR_32 8u
#define CU_ATOMIC_CAPABILITY_SCALAR_64 16u

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx);
CUresult cuCtxSynchronize_v2(CUcontext ctx);
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice dev);
CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice);
CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream);
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                 CUstream hStream);
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream);

#pragma GCC visibility pop
#endif
#endif
