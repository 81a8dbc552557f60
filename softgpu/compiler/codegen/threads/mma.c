/*
 * mma.c - instructions on matrices that the registers of a warp hold. In thread form each is a call of the
 * engine: a lane puts its registers into memory of its own, the engine works on those of all lanes, and the
 * lane takes the result out. In loop form they are points (matrices.h), and the engine is told in which
 * columns registers are.
 */
#include "softgpu/compiler/ir/mma.h"

#include "softgpu/compiler/codegen/threads/threads.h"
#include "softgpu/compiler/regions/matrices.h"

#include <stddef.h>
#include <string.h>

#define B gen->builder

static enum sg_matrix_type matrix_type(enum sg_type type)
{
    switch (type) {
    case SG_F16:
        return SG_MATRIX_F16;
    case SG_BF16:
        return SG_MATRIX_BF16;
    case SG_TF32:
        return SG_MATRIX_TF32;
    case SG_F32:
        return SG_MATRIX_F32;
    case SG_F64:
        return SG_MATRIX_F64;
    case SG_S8:
        return SG_MATRIX_S8;
    case SG_U8:
        return SG_MATRIX_U8;
    case SG_S4:
        return SG_MATRIX_S4;
    case SG_U4:
        return SG_MATRIX_U4;
    case SG_B1:
        return SG_MATRIX_B1;
    case SG_E4M3:
        return SG_MATRIX_E4M3;
    case SG_E5M2:
        return SG_MATRIX_E5M2;
    case SG_E2M1:
        return SG_MATRIX_E2M1;
    case SG_E2M3:
        return SG_MATRIX_E2M3;
    case SG_E3M2:
        return SG_MATRIX_E3M2;
    default:
        return SG_MATRIX_S32;
    }
}

/* The memory through which this function's matrices go. */
static LLVMValueRef fragments(struct sg_codegen *gen, size_t offset)
{
    if (gen->fragments == NULL) {
        LLVMTypeRef type = LLVMArrayType2(gen->i64, sizeof(struct sg_matrix_fragments) / 8);
        gen->fragments = LLVMBuildAlloca(gen->entry_builder, type, "fragments");
        LLVMSetAlignment(gen->fragments, 16);
    }
    LLVMValueRef index = sg_gen_const(gen, 64, offset);
    return LLVMBuildGEP2(B, gen->i8, gen->fragments, &index, 1, "");
}

static const struct sg_operand *item(const struct sg_operand *operand, uint32_t i)
{
    return operand->kind == SG_OPERAND_VECTOR ? &operand->items[i] : operand;
}

static void put(struct sg_codegen *gen, uint32_t operand, size_t offset, uint32_t count, enum sg_type type)
{
    for (uint32_t i = 0; i < count; i++) {
        LLVMValueRef value = sg_gen_read(gen, item(&gen->insn->operands[operand], i), type);
        LLVMSetAlignment(LLVMBuildStore(B, value, fragments(gen, offset + i * (size_t)sg_type_bytes(type))),
                         4);
    }
}

static void take(struct sg_codegen *gen, uint32_t operand, uint32_t count, enum sg_type type)
{
    size_t offset = offsetof(struct sg_matrix_fragments, c);
    for (uint32_t i = 0; i < count; i++) {
        LLVMValueRef from = fragments(gen, offset + i * (size_t)sg_type_bytes(type));
        LLVMValueRef value = LLVMBuildLoad2(B, sg_gen_type(gen, type), from, "");
        LLVMSetAlignment(value, 4);
        sg_gen_write(gen, item(&gen->insn->operands[operand], i), type, value);
    }
}

static void call(struct sg_codegen *gen, struct sg_matrix_kind kind, LLVMValueRef address,
                 LLVMValueRef stride)
{
    uint64_t word;
    _Static_assert(sizeof(kind) == sizeof(word), "a kind of matrix operation is passed as a word");
    memcpy(&word, &kind, sizeof(word));
    LLVMValueRef arguments[5] = {gen->thread, sg_gen_const(gen, 64, word),
                                 address != NULL ? address : LLVMConstNull(gen->pointer),
                                 stride != NULL ? stride : sg_gen_const(gen, 32, 0), fragments(gen, 0)};
    sg_gen_runtime(gen, "sg_rt_matrix", gen->nothing, arguments, 5);
}

static struct sg_matrix_kind kind_of_multiply(const struct sg_insn *insn)
{
    struct sg_mma_shape shape = sg_mma_shape(insn);
    struct sg_matrix_kind kind = {.operation = SG_MATRIX_MULTIPLY,
                                  .m = (uint8_t)shape.m,
                                  .n = (uint8_t)shape.n,
                                  .k_quarter = (uint8_t)(shape.k / 4),
                                  .a = (uint8_t)matrix_type(sg_mma_type(insn, SG_MATRIX_A)),
                                  .b = (uint8_t)matrix_type(sg_mma_type(insn, SG_MATRIX_B)),
                                  .c_d = (uint8_t)(matrix_type(sg_mma_type(insn, SG_MATRIX_C)) |
                                                   matrix_type(sg_mma_type(insn, SG_MATRIX_D)) << 4)};
    if (SG_MOD(insn, SG_GROUP_SATFINITE) != 0)
        kind.flags |= SG_MATRIX_SATURATE;
    if (SG_MOD(insn, SG_GROUP_BOOL) == SG_XOR)
        kind.flags |= SG_MATRIX_XOR;
    if (sg_mma_is_sparse(insn)) {
        const uint64_t first = insn->operands[5].value * sg_mma_sparse_lanes(insn);
        kind.flags |= (uint8_t)(SG_MATRIX_SPARSE | first << SG_MATRIX_SPARSE_LANE);
    }
    if (sg_mma_is_volta(insn)) {
        if (SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_COL)
            kind.flags |= SG_MATRIX_A_COLUMNS;
        if (SG_MOD(insn, SG_GROUP_LAYOUT2) == SG_ROW)
            kind.flags |= SG_MATRIX_B_ROWS;
    }
    return kind;
}

static struct sg_matrix_kind kind_of_fragment_access(const struct sg_insn *insn)
{
    enum sg_type type;
    struct sg_mma_shape shape = sg_mma_shape(insn);
    uint8_t which = SG_MOD(insn, SG_GROUP_MATRIX);
    bool load = insn->form->op == SG_OP_WMMA_LOAD, columns = SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_COL;
    return (struct sg_matrix_kind){.operation = load ? SG_MATRIX_LOAD : SG_MATRIX_STORE,
                                   .m = (uint8_t)shape.m,
                                   .n = (uint8_t)shape.n,
                                   .k_quarter = (uint8_t)(shape.k / 4),
                                   .a = (uint8_t)matrix_type((enum sg_type)insn->types[0]),
                                   .b = (uint8_t)sg_mma_registers(insn, which, &type),
                                   .c_d = (uint8_t)(which - SG_MATRIX_A),
                                   .flags = columns ? SG_MATRIX_COLUMNS : 0};
}

/* ldmatrix, stmatrix, movmatrix */
static struct sg_matrix_kind kind_of_row_access(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return (struct sg_matrix_kind){.operation = op == SG_OP_LDMATRIX   ? SG_MATRIX_LOAD_ROWS
                                                : op == SG_OP_STMATRIX ? SG_MATRIX_STORE_ROWS
                                                                       : SG_MATRIX_TRANSPOSE,
                                   .m = (uint8_t)(op != SG_OP_MOVMATRIX ? sg_mma_count(insn) : 1),
                                   .flags = SG_MOD(insn, SG_GROUP_TRANSPOSE) != 0 ? SG_MATRIX_COLUMNS : 0};
}

/* The distance of rows, or columns, of a matrix in memory. */
static LLVMValueRef stride_of(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    struct sg_mma_shape shape = sg_mma_shape(insn);
    uint8_t which = SG_MOD(insn, SG_GROUP_MATRIX);
    uint32_t rows = which == SG_MATRIX_B ? shape.k : shape.m,
             across = which == SG_MATRIX_A ? shape.k : shape.n;
    if (insn->n_operands > 2)
        return sg_gen_operand_u32(gen, 2);
    return sg_gen_const(gen, 32, SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_COL ? rows : across);
}

static LLVMValueRef address_of(struct sg_codegen *gen)
{
    enum sg_op op = gen->insn->form->op;
    bool load = op == SG_OP_WMMA_LOAD || op == SG_OP_LDMATRIX;
    /* the engine goes from here as far as the stride says, even if it is a variable that is named */
    return sg_gen_as_guest(
        gen, sg_gen_address(gen, &gen->insn->operands[load ? 1 : 0], SG_MOD(gen->insn, SG_GROUP_SPACE)));
}

/* --- in thread form --- */

static void multiply(struct sg_codegen *gen)
{
    static const size_t offsets[] = {offsetof(struct sg_matrix_fragments, a),
                                     offsetof(struct sg_matrix_fragments, b),
                                     offsetof(struct sg_matrix_fragments, c)};
    const struct sg_insn *insn = gen->insn;
    enum sg_type type;
    for (unsigned which = SG_MATRIX_A; which <= SG_MATRIX_C; which++) {
        uint32_t count = sg_mma_registers(insn, which, &type);
        put(gen, which, offsets[which - SG_MATRIX_A], count, type);
    }
    if (sg_mma_is_sparse(insn))
        put(gen, 4, offsetof(struct sg_matrix_fragments, metadata), 1, SG_B32);
    call(gen, kind_of_multiply(insn), NULL, NULL);
    uint32_t count = sg_mma_registers(insn, SG_MATRIX_D, &type);
    take(gen, 0, count, type);
}

static void access_fragment(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool load = insn->form->op == SG_OP_WMMA_LOAD;
    enum sg_type type;
    uint32_t count = sg_mma_registers(insn, SG_MOD(insn, SG_GROUP_MATRIX), &type);
    LLVMValueRef stride = stride_of(gen);
    if (!load)
        put(gen, 1, offsetof(struct sg_matrix_fragments, c), count, type);
    call(gen, kind_of_fragment_access(insn), address_of(gen), stride);
    if (load)
        take(gen, 0, count, type);
}

static void access_rows(struct sg_codegen *gen)
{
    enum sg_op op = gen->insn->form->op;
    struct sg_matrix_kind kind = kind_of_row_access(gen->insn);
    LLVMValueRef address = op != SG_OP_MOVMATRIX ? address_of(gen) : NULL;
    if (op != SG_OP_LDMATRIX)
        put(gen, 1, offsetof(struct sg_matrix_fragments, c), kind.m, SG_B32);
    call(gen, kind, address, NULL);
    if (op != SG_OP_STMATRIX)
        take(gen, 0, kind.m, SG_B32);
}

LLVMValueRef sg_emit_matrix(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_MMA:
    case SG_OP_WMMA_MMA:
        multiply(gen);
        return NULL;
    case SG_OP_WMMA_LOAD:
    case SG_OP_WMMA_STORE:
        access_fragment(gen);
        return NULL;
    case SG_OP_LDMATRIX:
    case SG_OP_STMATRIX:
    case SG_OP_MOVMATRIX:
        access_rows(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}

/* --- in loop form --- */

static void columns_of(const struct sg_codegen *gen, uint32_t operand, uint32_t columns[16])
{
    const struct sg_operand *from = &gen->insn->operands[operand];
    uint32_t count = from->kind == SG_OPERAND_VECTOR ? from->count : 1;
    for (uint32_t i = 0; i < count; i++)
        columns[i] = gen->loops.regions.column[item(from, i)->reg];
}

/* Hands the address over, and the stride where it is not known. */
static void hand_over_place(struct sg_codegen *gen, struct sg_matrix_op *op, uint32_t number)
{
    op->address = gen->loops.regions.addresses + number * (uint32_t)sizeof(uint64_t);
    sg_gen_store_column(gen, op->address, LLVMBuildPtrToInt(B, address_of(gen), gen->i64, ""));
    op->strides = SG_MATRIX_STRIDE;
    if (op->kind.operation != SG_MATRIX_LOAD && op->kind.operation != SG_MATRIX_STORE)
        return;
    LLVMValueRef stride = stride_of(gen);
    if (LLVMIsAConstantInt(stride) != NULL) {
        op->stride = (uint32_t)LLVMConstIntGetZExtValue(stride);
        return;
    }
    op->strides = gen->loops.regions.strides + number * (uint32_t)sizeof(uint32_t);
    sg_gen_store_column(gen, op->strides, stride);
}

static void describe(struct sg_codegen *gen, struct sg_matrix_op *op)
{
    switch (gen->insn->form->op) {
    case SG_OP_MMA:
    case SG_OP_WMMA_MMA:
        op->kind = kind_of_multiply(gen->insn);
        columns_of(gen, 0, op->d);
        columns_of(gen, 1, op->a);
        columns_of(gen, 2, op->b);
        columns_of(gen, 3, op->c);
        if (sg_mma_is_sparse(gen->insn))
            op->metadata = gen->loops.regions.column[gen->insn->operands[4].reg];
        break;
    case SG_OP_WMMA_LOAD:
        op->kind = kind_of_fragment_access(gen->insn);
        columns_of(gen, 0, op->d);
        break;
    case SG_OP_WMMA_STORE:
        op->kind = kind_of_fragment_access(gen->insn);
        columns_of(gen, 1, op->c);
        break;
    default:
        op->kind = kind_of_row_access(gen->insn);
        if (op->kind.operation != SG_MATRIX_STORE_ROWS)
            columns_of(gen, 0, op->d);
        if (op->kind.operation != SG_MATRIX_LOAD_ROWS)
            columns_of(gen, 1, op->c);
        break;
    }
}

void sg_gen_matrix_run(struct sg_codegen *gen)
{
    const struct sg_insn *first = gen->insn;
    const struct sg_insn *last =
        &gen->function->insns[sg_matrix_run_end(gen->function, (uint32_t)(first - gen->function->insns))];
    uint32_t accesses = 0;
    for (; gen->insn <= last; gen->insn++) {
        struct sg_matrix_op *op =
            SG_PUSH(gen->arena, gen->loops.matrices, gen->loops.n_matrices, gen->loops.matrices_capacity);
        *op = (struct sg_matrix_op){0};
        describe(gen, op);
        if (sg_matrix_accesses(gen->insn))
            hand_over_place(gen, op, accesses++);
    }
    gen->insn = first;
}
