/*
 * mma.c - the rules of the instructions on matrices: which shapes go with which types, and the vectors of
 * registers that hold them.
 */
#include "softgpu/compiler/ir/mma.h"

#include "softgpu/compiler/check/checker.h"

#define BIT(type)  (UINT64_C(1) << SG_##type)
#define HALVES     (BIT(F16) | BIT(BF16))
#define BYTES      (BIT(S8) | BIT(U8))
#define NIBBLES    (BIT(S4) | BIT(U4))
#define EIGHTS     (BIT(E4M3) | BIT(E5M2))
#define SIXES      (BIT(E2M1) | BIT(E2M3) | BIT(E3M2))
#define SUMS       (BIT(F16) | BIT(F32) | BIT(S32))
#define LANES      32u
#define HALF_COUNT 8u /* registers of a wmma fragment a or b of .f16, whatever its shape */

/*
 * In the order of the words of SG_GROUP_SHAPE: the types of a and b in mma and in wmma, those of c and d in
 * wmma.
 */
static const struct {
    struct sg_mma_shape shape;
    uint64_t mma, wmma, wmma_sums;
} shapes[] = {
    {{8, 8, 0}, 0, 0, 0},
    {{8, 8, 4}, BIT(F64) | BIT(F16), BIT(F64), BIT(F64)},
    {{8, 8, 16}, BYTES, 0, 0},
    {{8, 8, 32}, NIBBLES, NIBBLES, BIT(S32)},
    {{8, 8, 128}, BIT(B1), BIT(B1), BIT(S32)},
    {{16, 8, 4}, BIT(TF32) | BIT(F64), 0, 0},
    {{16, 8, 8}, HALVES | BIT(TF32) | BIT(F64), 0, 0},
    {{16, 8, 16}, HALVES | BYTES | EIGHTS | BIT(F64), 0, 0},
    {{16, 8, 32}, BYTES | NIBBLES | EIGHTS | SIXES, 0, 0},
    {{16, 8, 64}, NIBBLES, 0, 0},
    {{16, 8, 128}, BIT(B1), 0, 0},
    {{16, 8, 256}, BIT(B1), 0, 0},
    {{16, 16, 8}, 0, BIT(TF32), BIT(F32)},
    {{16, 16, 16}, 0, HALVES | BYTES, SUMS},
    {{32, 8, 16}, 0, HALVES | BYTES, SUMS},
    {{8, 32, 16}, 0, HALVES | BYTES, SUMS},
};

struct sg_mma_shape sg_mma_shape(const struct sg_insn *insn)
{
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
    return elements / LANES * sg_types[element].bits / width;
}

static void check_fragment(struct sg_checker *checker, struct sg_operand *operand, uint32_t count,
                           enum sg_type type, bool dest)
{
    if (operand->kind != SG_OPERAND_VECTOR || operand->count != count)
        sg_check_fail(checker, "a vector of %u registers is wanted for a matrix of this instruction", count);
    for (uint32_t i = 0; i < count; i++)
        sg_check_type(checker, &operand->items[i], type, dest, false);
}

static void check_matrix(struct sg_checker *checker, struct sg_insn *insn, uint32_t operand, uint8_t which,
                         bool dest)
{
    enum sg_type type;
    uint32_t count = sg_mma_registers(insn, which, &type);
    check_fragment(checker, &insn->operands[operand], count, type, dest);
}

static void check_space(struct sg_checker *checker, const struct sg_insn *insn, bool global)
{
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    if (space != 0 && space != SG_MOD_SHARED && !(global && space == SG_MOD_GLOBAL))
        sg_check_fail(checker, global ? "matrices are in .global or .shared memory"
                                      : "the matrices of this instruction are in .shared memory");
}

static void check_multiply(struct sg_checker *checker, struct sg_insn *insn)
{
    bool wmma = insn->form->op == SG_OP_WMMA_MMA;
    uint8_t shape = (uint8_t)(SG_MOD(insn, SG_GROUP_SHAPE) - 1), bits = SG_MOD(insn, SG_GROUP_BOOL);
    enum sg_type a = sg_mma_type(insn, SG_MATRIX_A), b = sg_mma_type(insn, SG_MATRIX_B);
    uint64_t types = wmma ? shapes[shape].wmma : shapes[shape].mma;
    if ((types >> a & 1) == 0 || (types >> b & 1) == 0)
        sg_check_fail(checker, "the software device has no multiplication of this shape for .%s and .%s",
                      sg_types[a].name, sg_types[b].name);
    if (a != b && (sg_type_is_float(a) || a == SG_TF32 || b == SG_TF32))
        sg_check_fail(checker, "matrices of type .%s and .%s do not fit each other", sg_types[a].name,
                      sg_types[b].name);
    bool narrow = ((SIXES >> a | SIXES >> b) & 1) != 0;
    if (SG_MOD(insn, SG_GROUP_KIND) != 0 ? sg_mma_shape(insn).k != 32 : narrow)
        sg_check_fail(checker, "these types need .kind::f8f6f4 and the shape .m16n8k32");
    if (!sg_mma_is_volta(insn) && (!wmma || a == SG_S4 || a == SG_U4 || a == SG_B1) &&
        (SG_MOD(insn, SG_GROUP_LAYOUT1) != SG_ROW || SG_MOD(insn, SG_GROUP_LAYOUT2) != SG_COL))
        sg_check_fail(checker, "the layouts of this instruction are .row.col");
    if (SG_MOD(insn, SG_GROUP_ROUND) > SG_RN)
        sg_check_fail(checker, "the software device has only .rn for this instruction");
    if (bits == SG_OR)
        sg_check_fail(checker, "not a form of this instruction");
    check_matrix(checker, insn, 0, SG_MATRIX_D, true);
    check_matrix(checker, insn, 1, SG_MATRIX_A, false);
    check_matrix(checker, insn, 2, SG_MATRIX_B, false);
    check_matrix(checker, insn, 3, SG_MATRIX_C, false);
}

static void check_fragment_access(struct sg_checker *checker, struct sg_insn *insn)
{
    bool load = insn->form->op == SG_OP_WMMA_LOAD;
    uint8_t which = SG_MOD(insn, SG_GROUP_MATRIX), shape = (uint8_t)(SG_MOD(insn, SG_GROUP_SHAPE) - 1);
    if (load == (which == SG_MATRIX_D))
        sg_check_fail(checker, "a, b and c are loaded, d is stored");
    bool factor = which == SG_MATRIX_A || which == SG_MATRIX_B;
    uint64_t types = factor ? shapes[shape].wmma : shapes[shape].wmma_sums;
    if ((types >> insn->types[0] & 1) == 0)
        sg_check_fail(checker, "the software device has no matrix of this shape and type .%s",
                      sg_types[insn->types[0]].name);
    if (sg_types[insn->types[0]].bits < 8 &&
        (SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_ROW) != (which == SG_MATRIX_A))
        sg_check_fail(checker, "this layout does not fit the type");
    check_space(checker, insn, true);
    check_matrix(checker, insn, load ? 0 : 1, which, load);
}

/* ldmatrix and stmatrix: a register a matrix; one register may stand without braces. */
static void check_row_access(struct sg_checker *checker, struct sg_insn *insn)
{
    bool load = insn->form->op == SG_OP_LDMATRIX;
    struct sg_operand *operand = &insn->operands[load ? 0 : 1];
    uint32_t count = sg_mma_count(insn);
    check_space(checker, insn, false);
    if (count > 1 || operand->kind == SG_OPERAND_VECTOR)
        check_fragment(checker, operand, count, SG_B32, load);
    else
        sg_check_type(checker, operand, SG_B32, load, false);
}

void sg_check_mma(struct sg_checker *checker, struct sg_insn *insn)
{
    _Static_assert(sizeof(shapes) / sizeof(shapes[0]) < 28, "more shapes than words");
    enum sg_op op = insn->form->op;
    if (op == SG_OP_MMA || op == SG_OP_WMMA_MMA) {
        check_multiply(checker, insn);
        return;
    }
    if (op == SG_OP_WMMA_LOAD || op == SG_OP_WMMA_STORE) {
        check_fragment_access(checker, insn);
        return;
    }
    if (sg_mma_shape(insn).k != 0)
        sg_check_fail(checker, "the shape of this instruction is .m8n8");
    if (op != SG_OP_MOVMATRIX)
        check_row_access(checker, insn);
}
