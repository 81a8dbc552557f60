/*
 * mma.c - the rules of the instructions on matrices: which shapes, types and layouts go with each other, and
 * the vectors of registers that hold matrices.
 */
#include "softgpu/compiler/ir/mma.h"

#include "softgpu/compiler/check/checker.h"

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

/* Which of four neighbouring lanes have the words that say where a's elements are: a number that is written. */
static void check_sparse(struct sg_checker *checker, const struct sg_insn *insn)
{
    const struct sg_operand *selector = &insn->operands[5];
    const uint32_t choices = 4 / sg_mma_sparse_lanes(insn);
    if (selector->kind != SG_OPERAND_INTEGER || selector->value >= choices)
        sg_check_fail(checker, "the sparsity selector of this instruction is a number below %u", choices);
}

static void check_multiply(struct sg_checker *checker, struct sg_insn *insn)
{
    bool wmma = insn->form->op == SG_OP_WMMA_MMA;
    uint8_t bits = SG_MOD(insn, SG_GROUP_BOOL);
    enum sg_type a = sg_mma_type(insn, SG_MATRIX_A), b = sg_mma_type(insn, SG_MATRIX_B);
    uint64_t types = sg_mma_types(insn, false);
    if ((types >> a & 1) == 0 || (types >> b & 1) == 0)
        sg_check_unknown(checker, "the software device has no multiplication of this shape for .%s and .%s",
                         sg_types[a].name, sg_types[b].name);
    if (a != b && (sg_type_is_float(a) || a == SG_TF32 || b == SG_TF32))
        sg_check_fail(checker, "matrices of type .%s and .%s do not fit each other", sg_types[a].name,
                      sg_types[b].name);
    const uint64_t sixes = UINT64_C(1) << SG_E2M1 | UINT64_C(1) << SG_E2M3 | UINT64_C(1) << SG_E3M2;
    bool narrow = ((sixes >> a | sixes >> b) & 1) != 0;
    const uint32_t wanted = sg_mma_is_sparse(insn) ? 64 : 32;
    if (SG_MOD(insn, SG_GROUP_KIND) != 0 ? sg_mma_shape(insn).k != wanted : narrow)
        sg_check_fail(checker, "these types need .kind::f8f6f4 and the shape .m16n8k%u", wanted);
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
    if (sg_mma_is_sparse(insn))
        check_sparse(checker, insn);
}

static void check_fragment_access(struct sg_checker *checker, struct sg_insn *insn)
{
    bool load = insn->form->op == SG_OP_WMMA_LOAD;
    uint8_t which = SG_MOD(insn, SG_GROUP_MATRIX);
    if (load == (which == SG_MATRIX_D))
        sg_check_fail(checker, "a, b and c are loaded, d is stored");
    bool factor = which == SG_MATRIX_A || which == SG_MATRIX_B;
    uint64_t types = sg_mma_types(insn, !factor);
    if ((types >> insn->types[0] & 1) == 0)
        sg_check_unknown(checker, "the software device has no matrix of this shape and type .%s",
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
