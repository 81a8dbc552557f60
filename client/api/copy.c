/*
 * copy.c - the copies of the API: each checks its arguments and describes what it copies as two regions,
 * which rg_region_copy copies. Anything may be copied to anything: host memory, device memory, arrays, in up
 * to three dimensions.
 */
#include "client/api/copy_description.h"
#include "client/api/region_copy.h"
#include "client/api/stream.h"
#include "client/core/address_map.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/multiserver/peer_copy.h"
#include "client/multiserver/proxy.h"
#include "common/cuda/copy_peer.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

/* --- one dimension -------------------------------------------------------------------------------------- */

static CUmemorytype type_of(enum rg_region_kind kind)
{
    return kind == RG_REGION_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static CUresult copy_line(enum rg_region_kind to_kind, uint64_t to, enum rg_region_kind from_kind,
                          uint64_t from, size_t size, CUstream stream, bool asynchronous)
{
    RG_TRY(rg_stream_check(stream));
    if (!size) /* is synchronous all the same */
        return !asynchronous && rg_capture_takes(stream) ? rg_capture_refuse(stream) : CUDA_SUCCESS;
    if ((to_kind == RG_REGION_HOST && !to) || (from_kind == RG_REGION_HOST && !from))
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, type_of(to_kind), from, type_of(from_kind), size, stream);
    struct rg_copy copy = {
        .to = rg_region_line(to_kind == RG_REGION_HOST ? rg_copy_place_of(to) : to_kind, to, size),
        .from = rg_region_line(from_kind == RG_REGION_HOST ? rg_copy_place_of(from) : from_kind, from, size),
        .stream = rg_effective_stream(stream),
        .asynchronous = asynchronous,
    };
    return rg_region_copy(&copy);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(RG_REGION_DEVICE, dstDevice, RG_REGION_DEVICE, srcDevice, ByteCount, NULL, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(RG_REGION_DEVICE, dstDevice, RG_REGION_DEVICE, srcDevice, ByteCount, hStream, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_line(RG_REGION_DEVICE, dstDevice, RG_REGION_HOST, (uint64_t)srcHost, ByteCount, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return copy_line(RG_REGION_DEVICE, dstDevice, RG_REGION_HOST, (uint64_t)srcHost, ByteCount, hStream,
                     true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(RG_REGION_HOST, (uint64_t)dstHost, RG_REGION_DEVICE, srcDevice, ByteCount, NULL, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_line(RG_REGION_HOST, (uint64_t)dstHost, RG_REGION_DEVICE, srcDevice, ByteCount, hStream,
                     true);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_line(rg_copy_place_of(dst), dst, rg_copy_place_of(src), src, ByteCount, NULL, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_line(rg_copy_place_of(dst), dst, rg_copy_place_of(src), src, ByteCount, hStream, true);
}

/* --- between contexts ----------------------------------------------------------------------------------- */

/*
 * A synchronous copy between contexts is serialised with all that is pending on their devices, and with what comes later there
 * (API reference, cudaMemcpyPeer). Where it is not the driver's own call that is made, both are waited for before, and the copy
 * after.
 */
static CUresult await_contexts(CUcontext to, CUcontext from)
{
    if (to)
        RG_TRY(cuCtxSynchronize_v2(to));
    return from && from != to ? cuCtxSynchronize_v2(from) : CUDA_SUCCESS;
}

/* Addresses tell whose they are; contexts of different servers need no access to each other. */
static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                          size_t size, CUstream stream, bool asynchronous)
{
    RG_TRY(rg_stream_check(stream));
    if (!rg_handle_known(RG_KIND_CONTEXT, (uint64_t)to_context) ||
        !rg_handle_known(RG_KIND_CONTEXT, (uint64_t)from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (rg_capture_takes(stream))
        return !asynchronous
                   ? rg_capture_refuse(stream)
                   : rg_capture_copy_1d(to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_DEVICE, size, stream);
    if (!rg_usable_on_device(to, 0, size, 1, true) || !rg_usable_on_device(from, 0, size, 1, false))
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t to_home = rg_home_of_address(to), from_home = rg_home_of_address(from);
    if (!size && rg_homes_differ((uint64_t)to_context, (uint64_t)from_context))
        return asynchronous ? CUDA_SUCCESS : await_contexts(to_context, from_context);
    if (size && rg_homes_differ(to_home, from_home)) {
        const struct rg_copy copy = {.to = rg_region_line(RG_REGION_DEVICE, to, size),
                                     .from = rg_region_line(RG_REGION_DEVICE, from, size),
                                     .stream = rg_effective_stream(stream),
                                     .asynchronous = asynchronous};
        if (asynchronous)
            return rg_peer_copy(&copy, to_home, from_home);
        RG_TRY(await_contexts(to_context, from_context));
        RG_TRY(rg_peer_copy(&copy, to_home, from_home));
        return cuStreamSynchronize(NULL);
    }
    struct rg_proxy proxy = {.stream = stream}; /* which may be of another server than both */
    if (rg_several_servers())
        RG_TRY(rg_proxy_begin(&proxy, to_home, rg_effective_stream(stream), !asynchronous));
    return rg_proxy_end(
        &proxy, asynchronous ? rg_op_cuMemcpyPeerAsync(to, to_context, from, from_context, size, proxy.stream)
                             : rg_op_cuMemcpyPeer(to, to_context, from, from_context, size));
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount)
{
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, true);
}

/* --- three dimensions ----------------------------------------------------------------------------------- */

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool asynchronous)
{
    RG_TRY(rg_stream_check(stream));
    if (!c || c->srcLOD || c->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(stream))
        return !asynchronous ? rg_capture_refuse(stream) : rg_capture_copy(c, stream);
    return rg_copy_described(c, stream, asynchronous, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, true);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    RG_TRY(rg_stream_check(NULL));
    if (!pCopy)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_takes(NULL))
        return rg_capture_refuse(NULL);
    CUcontext to, from;
    rg_cuda_contexts_of_peer(pCopy, &to, &from);
    RG_TRY(await_contexts(to, from));
    const CUDA_MEMCPY3D box = rg_cuda_copy_of_peer(pCopy);
    RG_TRY(copy_3d(&box, NULL, false));
    return cuStreamSynchronize(NULL);
}
