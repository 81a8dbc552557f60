/*
 * batch_3d.c - copies of boxes in batches, as one copy after another in the batch's stream; see batch.c.
 * Extents and offsets count elements: those of the array that takes part, else bytes.
 */
#include "common/base/status.h"
#include "common/cuda/api.h"
#include "common/cuda/texel.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool operand_valid(const CUmemcpy3DOperand *operand, const CUextent3D *extent)
{
    switch (operand->type) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER:
        return operand->op.ptr.ptr &&
               (!operand->op.ptr.rowLength || operand->op.ptr.rowLength >= extent->width) &&
               (!operand->op.ptr.layerHeight || operand->op.ptr.layerHeight >= extent->height);
    case CU_MEMCPY_OPERAND_TYPE_ARRAY:
        return operand->op.array.array;
    default:
        return false;
    }
}

static bool op_valid(const CUDA_MEMCPY3D_BATCH_OP *op)
{
    return op->extent.width && op->extent.height && op->extent.depth &&
           op->srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
           op->srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           !(op->flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) &&
           operand_valid(&op->src, &op->extent) && operand_valid(&op->dst, &op->extent);
}

static CUresult element_of(CUarray array, size_t *size)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    RG_TRY(cuArray3DGetDescriptor_v2(&d, array));
    *size = rg_texel_size(d.Format, d.NumChannels);
    return *size ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED; /* arrays of other formats cannot be made */
}

/* The size of an element of the copy: 0 where two arrays disagree. */
static CUresult element_size(const CUDA_MEMCPY3D_BATCH_OP *op, size_t *size)
{
    size_t to = 0, from = 0;
    CUresult status = CUDA_SUCCESS;
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        status = element_of(op->src.op.array.array, &from);
    if (status == CUDA_SUCCESS && op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        status = element_of(op->dst.op.array.array, &to);
    *size = !to && !from ? 1 : !to ? from : !from || from == to ? to : 0;
    return status;
}

/* Row and slice of memory that an operand describes, in bytes and rows. */
static bool measure(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t element, size_t *pitch,
                    size_t *rows)
{
    const size_t length = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width;
    *rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
    return !__builtin_mul_overflow(length, element, pitch);
}

static CUresult describe(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *copy)
{
    size_t element;
    RG_TRY(element_size(op, &element));
    *copy = (CUDA_MEMCPY3D){.Height = op->extent.height, .Depth = op->extent.depth};
    if (!element || __builtin_mul_overflow(op->extent.width, element, &copy->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->srcArray = op->src.op.array.array;
        copy->srcY = op->src.op.array.offset.y;
        copy->srcZ = op->src.op.array.offset.z;
        if (__builtin_mul_overflow(op->src.op.array.offset.x, element, &copy->srcXInBytes))
            return CUDA_ERROR_INVALID_VALUE;
    } else {
        copy->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy->srcDevice = op->src.op.ptr.ptr;
        if (!measure(&op->src, &op->extent, element, &copy->srcPitch, &copy->srcHeight))
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->dstArray = op->dst.op.array.array;
        copy->dstY = op->dst.op.array.offset.y;
        copy->dstZ = op->dst.op.array.offset.z;
        if (__builtin_mul_overflow(op->dst.op.array.offset.x, element, &copy->dstXInBytes))
            return CUDA_ERROR_INVALID_VALUE;
    } else {
        copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy->dstDevice = op->dst.op.ptr.ptr;
        if (!measure(&op->dst, &op->extent, element, &copy->dstPitch, &copy->dstHeight))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Whether the source must have been read when the call returns, and an asynchronous copy would not have. */
static bool must_be_kept(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (op->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
        op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return false;
    if (cuStreamIsCapturing(stream, &capturing) != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, op->src.op.ptr.ptr) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_HOST;
}

static CUresult copy_one(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    CUDA_MEMCPY3D copy;
    size_t size;
    CUresult status = describe(op, &copy);
    if (status != CUDA_SUCCESS || !must_be_kept(op, stream))
        return status == CUDA_SUCCESS ? cuMemcpy3DAsync_v2(&copy, stream) : status;
    if (__builtin_mul_overflow(copy.WidthInBytes, copy.Height, &size) ||
        __builtin_mul_overflow(size, copy.Depth, &size))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned char *kept = malloc(size), *at = kept;
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t z = 0; z < copy.Depth; z++)
        for (size_t y = 0; y < copy.Height; y++, at += copy.WidthInBytes)
            memcpy(at, (const void *)(uintptr_t)(copy.srcDevice + (z * copy.srcHeight + y) * copy.srcPitch),
                   copy.WidthInBytes);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = kept;
    copy.srcPitch = copy.WidthInBytes;
    copy.srcHeight = copy.Height;
    status = cuMemcpy3DAsync_v2(&copy, stream); /* pageable: read when this returns */
    free(kept);
    return status;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream)
{
    CUcontext current;
    if (failIdx)
        *failIdx = SIZE_MAX; /* not that of one copy */
    CUresult status = cuStreamGetCtx(hStream, &current);
    if (status != CUDA_SUCCESS)
        return status;
    if (!hStream || hStream == CU_STREAM_LEGACY || !opList || !numOps || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numOps; i++)
        if (!op_valid(&opList[i])) {
            if (failIdx)
                *failIdx = i;
            return CUDA_ERROR_INVALID_VALUE;
        }
    for (size_t i = 0; i < numOps && status == CUDA_SUCCESS; i++) {
        status = copy_one(&opList[i], hStream);
        if (status != CUDA_SUCCESS && failIdx)
            *failIdx = i;
    }
    return status;
}
