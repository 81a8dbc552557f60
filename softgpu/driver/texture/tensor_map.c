/*
 * tensor_map.c - tensor maps: descriptions of tensors for copies by kernels, checked as cuda.h says and kept
 * in a layout of the software device's own (softgpu/tensor_map.h).
 */
#include "softgpu/tensor_map.h"

#include <string.h>

#include "softgpu/driver/driver.h"

#define PACKED_4_IN_8  CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B
#define PACKED_4_IN_16 CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B
#define PACKED_6       CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B

/* Bits of an element; 0: no such type. */
static unsigned bits_of(CUtensorMapDataType type)
{
    static const unsigned char bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
    return (unsigned)type < sizeof bits ? bits[type] : 0;
}

struct layout {
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static bool is_real(CUtensorMapDataType type)
{
    return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ||
           type == CU_TENSOR_MAP_DATA_TYPE_FLOAT64 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
           type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ || type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 ||
           type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static bool layout_valid(const struct layout *l, CUtensorMapDataType type)
{
    return (unsigned)l->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
           (unsigned)l->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
           (unsigned)l->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
           (unsigned)l->fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
           (l->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || is_real(type)) &&
           (l->interleave != CU_TENSOR_MAP_INTERLEAVE_32B || l->swizzle == CU_TENSOR_MAP_SWIZZLE_32B);
}

/* cuda.h wants maps at multiples of 64 bytes, but objects of Python, in which cuda.bindings has them, are where they are. */
static CUresult put(CUtensorMap *map, const struct sg_tensor_map *made)
{
    memcpy((void *)(uintptr_t)map, made, sizeof *made);
    return CUDA_SUCCESS;
}

/* Everything but the box; the checks are the API's. */
static CUresult describe(struct sg_tensor_map *out, enum sg_tensor_kind kind, const void *map,
                         CUtensorMapDataType type, cuuint32_t rank, uint64_t address, const cuuint64_t *dims,
                         const cuuint64_t *strides, const cuuint32_t *steps, const struct layout *l)
{
    RG_TRY(sg_enter());
    const bool wide = type == PACKED_4_IN_16 || type == PACKED_6;
    const bool by_32 = wide || l->interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
    const cuuint32_t least =
        kind == SG_TENSOR_TILED && l->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE ? 1 : 3;
    if (map == NULL || bits_of(type) == 0 || rank < least || rank > 5 || dims == NULL ||
        (strides == NULL && rank > 1) || steps == NULL || !layout_valid(l, type) ||
        address % (by_32 ? 32 : 16) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sg_tensor_map){.magic = SG_TENSOR_MAGIC,
                                  .address = address,
                                  .kind = (uint8_t)kind,
                                  .type = (uint8_t)type,
                                  .rank = (uint8_t)rank,
                                  .interleave = (uint8_t)l->interleave,
                                  .swizzle = (uint8_t)l->swizzle,
                                  .promotion = (uint8_t)l->promotion,
                                  .fill = (uint8_t)l->fill};
    for (cuuint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > 1ull << 32)
            return CUDA_ERROR_INVALID_VALUE;
        out->last[i] = (uint32_t)(dims[i] - 1);
        /* the first element's stride is ignored where the layout is plain */
        const bool counts = i > 0 || l->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
        if (counts && (steps[i] == 0 || steps[i] > 8))
            return CUDA_ERROR_INVALID_VALUE;
        out->steps[i] = counts ? (uint8_t)steps[i] : 1;
        if (i + 1 == rank)
            continue;
        if (strides[i] % (by_32 ? 32 : 16) != 0 || strides[i] >= 1ull << 40)
            return CUDA_ERROR_INVALID_VALUE;
        out->strides[i] = strides[i];
    }
    if ((wide && dims[0] % 128 != 0) || (type == PACKED_4_IN_8 && dims[0] % 2 != 0))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Whether a row of `elements` fits the swizzle and the hardware's unit of 16 bytes. */
static bool row_valid(const struct layout *l, CUtensorMapDataType type, uint32_t elements)
{
    static const unsigned widest[] = {0, 32, 64, 128, 128, 128, 128};
    const uint64_t bits = (uint64_t)elements * bits_of(type);
    if (l->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return true;
    if (type == PACKED_4_IN_16 || type == PACKED_6)
        return elements == 128;
    return bits % 128 == 0 && (widest[l->swizzle] == 0 || bits / 8 <= widest[l->swizzle]);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    const struct layout l = {interleave, swizzle, promotion, fill};
    struct sg_tensor_map made;
    RG_TRY(describe(&made, SG_TENSOR_TILED, map, type, rank, (uintptr_t)address, dims, strides, steps, &l));
    if (box == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (box[i] == 0 || box[i] > 256)
            return CUDA_ERROR_INVALID_VALUE;
        made.box[i] = (uint16_t)box[i];
    }
    if (!row_valid(&l, type, box[0]))
        return CUDA_ERROR_INVALID_VALUE;
    return put(map, &made);
}

/* Channels and pixels of both im2col kinds. */
static bool column_valid(struct sg_tensor_map *made, const struct layout *l, CUtensorMapDataType type,
                         cuuint32_t channels, cuuint32_t pixels)
{
    made->channels = (uint16_t)channels;
    made->pixels = (uint16_t)pixels;
    return channels > 0 && channels <= 256 && pixels > 0 && pixels <= 1024 && row_valid(l, type, channels);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill)
{
    const struct layout l = {interleave, swizzle, promotion, fill};
    struct sg_tensor_map made;
    RG_TRY(describe(&made, SG_TENSOR_IM2COL, map, type, rank, (uintptr_t)address, dims, strides, steps, &l));
    if (lower == NULL || upper == NULL || rank < 3 || !column_valid(&made, &l, type, channels, pixels))
        return CUDA_ERROR_INVALID_VALUE;
    /* a corner has as many bits as three, two or one of them fit into 16 */
    const int limit = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
    for (cuuint32_t i = 0; i + 2 < rank; i++) {
        if (lower[i] < -limit || lower[i] >= limit || upper[i] < -limit || upper[i] >= limit)
            return CUDA_ERROR_INVALID_VALUE;
        made.lower[i] = (int16_t)lower[i];
        made.upper[i] = (int16_t)upper[i];
    }
    return put(map, &made);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                     void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                     int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
                                     const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                     CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    const struct layout l = {interleave, swizzle, promotion, fill};
    struct sg_tensor_map made;
    RG_TRY(describe(&made, SG_TENSOR_IM2COL_WIDE, map, type, rank, (uintptr_t)address, dims, strides, steps,
                    &l));
    if (rank < 3 || (unsigned)mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 || lower < -(1 << 15) ||
        lower >= 1 << 15 || upper < -(1 << 15) || upper >= 1 << 15 ||
        !column_valid(&made, &l, type, channels, pixels))
        return CUDA_ERROR_INVALID_VALUE;
    made.lower[0] = (int16_t)lower;
    made.upper[0] = (int16_t)upper;
    made.mode = (uint8_t)mode;
    return put(map, &made);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    struct sg_tensor_map changed;
    RG_TRY(sg_enter());
    if (map == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&changed, (const void *)(uintptr_t)map, sizeof changed);
    const bool by_32 = changed.type == PACKED_4_IN_16 || changed.type == PACKED_6 ||
                       changed.interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
    if (changed.magic != SG_TENSOR_MAGIC || (uintptr_t)address % (by_32 ? 32 : 16) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    changed.address = (uintptr_t)address;
    return put(map, &changed);
}
