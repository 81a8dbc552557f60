/* tensor_map.h - the words of rgTensorMapEncode: the arguments of the three cuTensorMapEncode… calls. */
#ifndef RG_PROTO_TENSOR_MAP_H
#define RG_PROTO_TENSOR_MAP_H

#define RG_TENSOR_RANK_MAX 5

enum rg_tensor_kind { RG_TENSOR_TILED, RG_TENSOR_IM2COL, RG_TENSOR_IM2COL_WIDE };

enum rg_tensor_word {
    RG_TENSOR_KIND,
    RG_TENSOR_TYPE,
    RG_TENSOR_RANK,
    RG_TENSOR_ADDRESS,
    RG_TENSOR_INTERLEAVE,
    RG_TENSOR_SWIZZLE,
    RG_TENSOR_L2,
    RG_TENSOR_FILL,
    RG_TENSOR_MODE,     /* im2col wide */
    RG_TENSOR_CHANNELS, /* im2col */
    RG_TENSOR_PIXELS,
    RG_TENSOR_DIM,                                          /* rank of them */
    RG_TENSOR_STRIDE = RG_TENSOR_DIM + RG_TENSOR_RANK_MAX,  /* rank - 1 */
    RG_TENSOR_STEP = RG_TENSOR_STRIDE + RG_TENSOR_RANK_MAX, /* element strides: rank */
    RG_TENSOR_BOX =
        RG_TENSOR_STEP + RG_TENSOR_RANK_MAX, /* tiled: rank; im2col: rank - 2 lower corners; wide: one */
    RG_TENSOR_UPPER = RG_TENSOR_BOX + RG_TENSOR_RANK_MAX, /* im2col: rank - 2; wide: one */
    RG_TENSOR_WORDS = RG_TENSOR_UPPER + RG_TENSOR_RANK_MAX,
};

#endif
