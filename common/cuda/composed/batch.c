/*
 * batch.c - copies in batches, as one copy after another in the batch's stream.
 *
 * The batch is checked as a whole before anything is queued; after that the first copy that fails ends it,
 * and those before it have been queued, as the API allows. A source that may be gone when the call returns is
 * read during the call: the copies of pageable memory do that anyway, other host memory goes through a copy
 * of it.
 */
#include "common/cuda/api.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool attributes_valid(const CUmemcpyAttributes *attributes, const size_t *first, size_t n,
                             size_t count)
{
    if (!attributes || !first || n == 0 || n > count)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((i == 0 && first[0] != 0) || (i > 0 && first[i] <= first[i - 1]) || first[i] >= count)
            return false;
        if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
            (attributes[i].flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) != 0)
            return false;
    }
    return true;
}

/*
 * Whether the copies' source must have been read when the call returns, and asynchronous copies would not
 * have.
 */
static bool must_be_kept(const CUmemcpyAttributes *attributes, CUdeviceptr source, CUstream stream)
{
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
        return false;
    if (cuStreamIsCapturing(stream, &capturing) != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, source) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_HOST;
}

static CUresult copy_one(CUdeviceptr to, CUdeviceptr from, size_t size, const CUmemcpyAttributes *attributes,
                         CUstream stream)
{
    if (!size || !must_be_kept(attributes, from, stream))
        return cuMemcpyAsync(to, from, size, stream);
    void *kept = malloc(size);
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(kept, (const void *)(uintptr_t)from, size);
    CUresult status = cuMemcpyAsync(to, (uintptr_t)kept, size, stream); /* pageable: read when this returns */
    free(kept);
    return status;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                            CUstream hStream)
{
    CUcontext current;
    if (failIdx)
        *failIdx = SIZE_MAX; /* not that of one copy */
    CUresult status = cuStreamGetCtx(hStream, &current);
    if (status != CUDA_SUCCESS)
        return status;
    if (!hStream || hStream == CU_STREAM_LEGACY || !dsts || !srcs || !sizes || !count ||
        !attributes_valid(attrs, attrsIdxs, numAttrs, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, a = 0; i < count && status == CUDA_SUCCESS; i++) {
        if (a + 1 < numAttrs && attrsIdxs[a + 1] == i)
            a++;
        status = copy_one(dsts[i], srcs[i], sizes[i], &attrs[a], hStream);
        if (status != CUDA_SUCCESS && failIdx)
            *failIdx = i;
    }
    return status;
}
