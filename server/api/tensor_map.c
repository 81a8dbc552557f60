/*
 * tensor_map.c - tensor maps, made by the driver of the description that came as words (proto/tensor_map.h).
 */
#include "proto/tensor_map.h"

#include "generated/server/execute.h"

#include <string.h>

struct arrays {
    cuuint64_t dims[RG_TENSOR_RANK_MAX], strides[RG_TENSOR_RANK_MAX];
    cuuint32_t steps[RG_TENSOR_RANK_MAX], box[RG_TENSOR_RANK_MAX];
    int lower[RG_TENSOR_RANK_MAX], upper[RG_TENSOR_RANK_MAX];
};

static void unpack(const unsigned long long *w, struct arrays *a)
{
    for (int i = 0; i < RG_TENSOR_RANK_MAX; i++) {
        a->dims[i] = w[RG_TENSOR_DIM + i];
        a->strides[i] = w[RG_TENSOR_STRIDE + i];
        a->steps[i] = (cuuint32_t)w[RG_TENSOR_STEP + i];
        a->box[i] = (cuuint32_t)w[RG_TENSOR_BOX + i];
        a->lower[i] = (int)w[RG_TENSOR_BOX + i];
        a->upper[i] = (int)w[RG_TENSOR_UPPER + i];
    }
}

CUresult rg_execute_rgTensorMapEncode(struct rg_request *request, CUtensorMap *map, unsigned int count,
                                      const unsigned long long *w)
{
    if (count != RG_TENSOR_WORDS || w[RG_TENSOR_RANK] > RG_TENSOR_RANK_MAX) {
        rg_request_violation(request, "a tensor map of %u words", count);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct arrays a;
    unpack(w, &a);
    const CUtensorMapDataType type = (CUtensorMapDataType)w[RG_TENSOR_TYPE];
    const cuuint32_t rank = (cuuint32_t)w[RG_TENSOR_RANK];
    const cuuint32_t channels = (cuuint32_t)w[RG_TENSOR_CHANNELS], pixels = (cuuint32_t)w[RG_TENSOR_PIXELS];
    const CUtensorMapInterleave interleave = (CUtensorMapInterleave)w[RG_TENSOR_INTERLEAVE];
    const CUtensorMapSwizzle swizzle = (CUtensorMapSwizzle)w[RG_TENSOR_SWIZZLE];
    const CUtensorMapL2promotion l2 = (CUtensorMapL2promotion)w[RG_TENSOR_L2];
    const CUtensorMapFloatOOBfill fill = (CUtensorMapFloatOOBfill)w[RG_TENSOR_FILL];
    void *address = (void *)(uintptr_t)w[RG_TENSOR_ADDRESS];
    switch (w[RG_TENSOR_KIND]) {
    case RG_TENSOR_TILED:
        return rg_driver.cuTensorMapEncodeTiled(map, type, rank, address, a.dims, a.strides, a.box, a.steps,
                                                interleave, swizzle, l2, fill);
    case RG_TENSOR_IM2COL:
        return rg_driver.cuTensorMapEncodeIm2col(map, type, rank, address, a.dims, a.strides, a.lower,
                                                 a.upper, channels, pixels, a.steps, interleave, swizzle, l2,
                                                 fill);
    case RG_TENSOR_IM2COL_WIDE:
        return rg_driver.cuTensorMapEncodeIm2colWide(
            map, type, rank, address, a.dims, a.strides, a.lower[0], a.upper[0], channels, pixels, a.steps,
            interleave, (CUtensorMapIm2ColWideMode)w[RG_TENSOR_MODE], swizzle, l2, fill);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult rg_execute_rgTensorMapReplace(struct rg_request *request, CUtensorMap *out, const CUtensorMap *map,
                                       void *address)
{
    (void)request;
    memcpy(out, map, sizeof *out);
    return rg_driver.cuTensorMapReplaceAddress(out, address);
}
