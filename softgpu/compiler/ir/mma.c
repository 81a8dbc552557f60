/*
 * mma.c - the shapes of matrices: the types that go with each, and the registers of a lane that hold one.
 */
#include "softgpu/compiler/ir/mma.h"

#define BIT(type)  (UINT64_C(1) << SG_##type)
#define HALVES     (BIT(F16) | BIT(BF16))
#define BYTES      (BIT(S8) | BIT(U8))
#define NIBBLES    (BIT(S4) | BIT(U4))
#define EIGHTS     (BIT(E4M3) | BIT(E5M2))
#define SIXES      (BIT(E2M1) | BIT(E2M3) | BIT(E3M2))
#define SUMS       (BIT(F16) | BIT(F32) | BIT(S32))
#define LANES      32u
#define HALF_COUNT 8u /* registers of a wmma fragment a or b of .f16, whatever its shape */

/* In the order of the words of SG_GROUP_SHAPE: types of a and b in mma, mma.sp and wmma, of c and d in wmma. */
static const struct {
    struct sg_mma_shape shape;
    uint64_t mma, sparse, wmma, wmma_sums;
} shapes[] = {
    {{8, 8, 0}, 0, 0, 0, 0},
    {{8, 8, 4}, BIT(F64) | BIT(F16), 0, BIT(F64), BIT(F64)},
    {{8, 8, 16}, BYTES, 0, 0, 0},
    {{8, 8, 32}, NIBBLES, 0, NIBBLES, BIT(S32)},
    {{8, 8, 128}, BIT(B1), 0, BIT(B1), BIT(S32)},
    {{16, 8, 4}, BIT(TF32) | BIT(F64), 0, 0, 0},
    {{16, 8, 8}, HALVES | BIT(TF32) | BIT(F64), BIT(TF32), 0, 0},
    {{16, 8, 16}, HALVES | BYTES | EIGHTS | BIT(F64), HALVES | BIT(TF32), 0, 0},
    {{16, 8, 32}, BYTES | NIBBLES | EIGHTS | SIXES, HALVES | BYTES, 0, 0},
    {{16, 8, 64}, NIBBLES, BYTES | NIBBLES | EIGHTS | SIXES, 0, 0},
    {{16, 8, 128}, BIT(B1), NIBBLES, 0, 0},
    {{16, 8, 256}, BIT(B1), 0, 0, 0},
    {{16, 16, 8}, 0, 0, BIT(TF32), BIT(F32)},
    {{16, 16, 16}, 0, 0, HALVES | BYTES, SUMS},
    {{32, 8, 16}, 0, 0, HALVES | BYTES, SUMS},
    {{8, 32, 16}, 0, 0, HALVES | BYTES, SUMS},
};

struct sg_mma_shape sg_mma_shape(const struct sg_insn *insn)
{
    _Static_assert(sizeof(shapes) / sizeof(shapes[0]) < 28, "more shapes than words");
    return shapes[SG_MOD(insn, SG_GROUP_SHAPE) - 1].shape;
}

uint32_t sg_mma_count(const struct sg_insn *insn)
{
    return 1u << (SG_MOD(insn, SG_GROUP_MATRIX_COUNT) - 1);
}

enum sg_type sg_mma_type(const struct sg_insn *insn, uint8_t which)
{
    switch (insn->form->op) {
    case SG_OP_MMA:
        break;
    case SG_OP_WMMA_MMA:
        if (insn->form->n_types == 2) /* d and c alone are written: a and b are .f16 */
            return which == SG_MATRIX_A || which == SG_MATRIX_B
                       ? SG_F16
                       : (enum sg_type)insn->types[which == SG_MATRIX_C];
        break;
    default:
        return (enum sg_type)insn->types[0];
    }
    return (enum sg_type)insn->types[which == SG_MATRIX_D ? 0 : which];
}

bool sg_mma_is_sparse(const struct sg_insn *insn)
{
    return SG_MOD(insn, SG_GROUP_SPARSE) != 0;
}

uint32_t sg_mma_sparse_lanes(const struct sg_insn *insn)
{
    struct sg_mma_shape shape = sg_mma_shape(insn);
    uint32_t bits = sg_types[sg_mma_type(insn, SG_MATRIX_A)].bits;
    uint32_t group = bits == 32  ? 2
                     : bits == 4 ? 8
                                 : 4; /* elements of a row that four bits of a word are about */
    return shape.m * shape.k / group * 4 / 32 / (LANES / 4);
}

bool sg_mma_is_volta(const struct sg_insn *insn)
{
    struct sg_mma_shape shape = sg_mma_shape(insn);
    return insn->form->op == SG_OP_MMA && shape.m == 8 && shape.k == 4 && insn->types[1] == SG_F16;
}

uint32_t sg_mma_registers(const struct sg_insn *insn, uint8_t which, enum sg_type *type)
{
    struct sg_mma_shape shape = sg_mma_shape(insn);
    enum sg_type element = sg_mma_type(insn, which);
    bool factor = which == SG_MATRIX_A || which == SG_MATRIX_B;
    *type = element == SG_F64 || element == SG_F32 ? element : SG_B32;
    if (sg_mma_is_volta(insn)) /* each quarter of the warp has matrices of its own */
        return factor ? 2 : element == SG_F16 ? 4 : 8;
    if (factor && element == SG_F16 && insn->form->op != SG_OP_MMA)
        return HALF_COUNT;
    uint32_t elements = which == SG_MATRIX_A   ? shape.m * shape.k
                        : which == SG_MATRIX_B ? shape.k * shape.n
                                               : shape.m * shape.n;
    uint32_t width = element == SG_F64 ? 64 : 32;
    if (which == SG_MATRIX_A && sg_mma_is_sparse(insn))
        elements /= 2;
    return elements / LANES * sg_types[element].bits / width;
}

uint64_t sg_mma_types(const struct sg_insn *insn, bool sums)
{
    uint8_t shape = (uint8_t)(SG_MOD(insn, SG_GROUP_SHAPE) - 1);
    if (sums)
        return shapes[shape].wmma_sums;
    if (sg_mma_is_sparse(insn))
        return shapes[shape].sparse;
    return insn->form->op == SG_OP_MMA ? shapes[shape].mma : shapes[shape].wmma;
}
