/*
 * tensor_map.c - tensor maps: the driver's own 128 bytes for a description, which only the worker's driver
 * can make. The address is the device's, so what comes back is what kernels there understand.
 */
#include "proto/tensor_map.h"
#include "client/core/call.h"
#include "common/base/status.h"
#include "generated/client/operations.h"

#include <string.h>

typedef unsigned long long words[RG_TENSOR_WORDS];

/* What all kinds have in common; false: an argument that no driver takes. */
static bool describe(words w, enum rg_tensor_kind kind, CUtensorMapDataType type, cuuint32_t rank,
                     const void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                     const cuuint32_t *steps)
{
    memset(w, 0, sizeof(words));
    if (rank == 0 || rank > RG_TENSOR_RANK_MAX || !dims || (!strides && rank > 1) || !steps)
        return false;
    w[RG_TENSOR_KIND] = kind;
    w[RG_TENSOR_TYPE] = (unsigned)type;
    w[RG_TENSOR_RANK] = rank;
    w[RG_TENSOR_ADDRESS] = (uint64_t)address;
    for (cuuint32_t i = 0; i < rank; i++) {
        w[RG_TENSOR_DIM + i] = dims[i];
        w[RG_TENSOR_STEP + i] = steps[i];
        if (i + 1 < rank)
            w[RG_TENSOR_STRIDE + i] = strides[i];
    }
    return true;
}

static void lay_out(words w, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                    CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
    w[RG_TENSOR_INTERLEAVE] = (unsigned)interleave;
    w[RG_TENSOR_SWIZZLE] = (unsigned)swizzle;
    w[RG_TENSOR_L2] = (unsigned)l2;
    w[RG_TENSOR_FILL] = (unsigned)fill;
}

/* cuda.h wants maps at multiples of 64 bytes, but objects of Python, in which cuda.bindings has them, are where they are. */
static CUresult put(CUresult status, CUtensorMap *map, const CUtensorMap *made)
{
    if (status == CUDA_SUCCESS)
        memcpy((void *)(uintptr_t)map, made, sizeof *made);
    return status;
}

static CUresult encode(CUtensorMap *map, bool described, const words w)
{
    RG_TRY(rg_call_allowed(0));
    if (!map || !described)
        return CUDA_ERROR_INVALID_VALUE;
    CUtensorMap made;
    return put(rg_op_rgTensorMapEncode(&made, RG_TENSOR_WORDS, w), map, &made);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
                                const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill)
{
    words w;
    bool good = describe(w, RG_TENSOR_TILED, tensorDataType, tensorRank, globalAddress, globalDim,
                         globalStrides, elementStrides) &&
                boxDim;
    for (cuuint32_t i = 0; good && i < tensorRank; i++)
        w[RG_TENSOR_BOX + i] = boxDim[i];
    lay_out(w, interleave, swizzle, l2Promotion, oobFill);
    return encode(tensorMap, good, w);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                 const cuuint64_t *globalStrides, const int *pixelBoxLowerCorner,
                                 const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
                                 cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    words w;
    bool good = describe(w, RG_TENSOR_IM2COL, tensorDataType, tensorRank, globalAddress, globalDim,
                         globalStrides, elementStrides) &&
                tensorRank >= 3 && pixelBoxLowerCorner && pixelBoxUpperCorner;
    for (cuuint32_t i = 0; good && i + 2 < tensorRank; i++) {
        w[RG_TENSOR_BOX + i] = (unsigned)pixelBoxLowerCorner[i];
        w[RG_TENSOR_UPPER + i] = (unsigned)pixelBoxUpperCorner[i];
    }
    w[RG_TENSOR_CHANNELS] = channelsPerPixel;
    w[RG_TENSOR_PIXELS] = pixelsPerColumn;
    lay_out(w, interleave, swizzle, l2Promotion, oobFill);
    return encode(tensorMap, good, w);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                     cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                     const cuuint64_t *globalStrides, int pixelBoxLowerCornerWidth,
                                     int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
                                     cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                     CUtensorMapFloatOOBfill oobFill)
{
    words w;
    bool good = describe(w, RG_TENSOR_IM2COL_WIDE, tensorDataType, tensorRank, globalAddress, globalDim,
                         globalStrides, elementStrides) &&
                tensorRank >= 3;
    w[RG_TENSOR_BOX] = (unsigned)pixelBoxLowerCornerWidth;
    w[RG_TENSOR_UPPER] = (unsigned)pixelBoxUpperCornerWidth;
    w[RG_TENSOR_CHANNELS] = channelsPerPixel;
    w[RG_TENSOR_PIXELS] = pixelsPerColumn;
    w[RG_TENSOR_MODE] = (unsigned)mode;
    lay_out(w, interleave, swizzle, l2Promotion, oobFill);
    return encode(tensorMap, good, w);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
    RG_TRY(rg_call_allowed(0));
    if (!tensorMap)
        return CUDA_ERROR_INVALID_VALUE;
    CUtensorMap before, after;
    memcpy(&before, (const void *)(uintptr_t)tensorMap, sizeof before);
    return put(rg_op_rgTensorMapReplace(&after, &before, globalAddress), tensorMap, &after);
}
