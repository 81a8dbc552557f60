/* tensor_map.h - what the software device keeps in the 128 bytes of a CUtensorMap. */
#ifndef SG_TENSOR_MAP_H
#define SG_TENSOR_MAP_H

#include <stdint.h>

#define SG_TENSOR_MAGIC 0x50414d54u

enum sg_tensor_kind { SG_TENSOR_TILED, SG_TENSOR_IM2COL, SG_TENSOR_IM2COL_WIDE };

struct sg_tensor_map {
    uint64_t address;
    uint64_t strides[4]; /* bytes, of dimensions 1 and up */
    uint32_t last[5];    /* size of each dimension minus 1 */
    uint32_t magic;
    uint16_t box[5];                        /* elements, tiled */
    int16_t lower[3], upper[3];             /* corners of the pixels' box, im2col */
    uint16_t channels, pixels;              /* im2col */
    uint8_t kind, type, rank, interleave;   /* enum sg_tensor_kind; the API's numbers */
    uint8_t swizzle, promotion, fill, mode; /* mode: im2col wide */
    uint8_t steps[5];                       /* element strides */
    uint8_t unused[22];
};
_Static_assert(sizeof(struct sg_tensor_map) == 128, "the size of a CUtensorMap");

#endif
