/*
 * codegen_mma.c - instructions on matrices that the registers of a warp hold. Each is a call of the engine: a lane puts
 * its registers into memory of its own, the engine works on those of all lanes, and the lane takes the result out.
 */
#include "softgpu/compiler/mma.h"

#include "softgpu/compiler/codegen.h"

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

static void multiply(struct sg_codegen *gen)
{
    static const size_t offsets[] = {offsetof(struct sg_matrix_fragments, a),
                                     offsetof(struct sg_matrix_fragments, b),
                                     offsetof(struct sg_matrix_fragments, c)};
    const struct sg_insn *insn = gen->insn;
    struct sg_mma_shape shape = sg_mma_shape(insn);
    enum sg_type type;
    for (uint8_t which = SG_MATRIX_A; which <= SG_MATRIX_C; which++) {
        uint32_t count = sg_mma_registers(insn, which, &type);
        put(gen, which, offsets[which - SG_MATRIX_A], count, type);
    }
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
    if (sg_mma_is_volta(insn)) {
        if (SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_COL)
            kind.flags |= SG_MATRIX_A_COLUMNS;
        if (SG_MOD(insn, SG_GROUP_LAYOUT2) == SG_ROW)
            kind.flags |= SG_MATRIX_B_ROWS;
    }
    call(gen, kind, NULL, NULL);
    uint32_t count = sg_mma_registers(insn, SG_MATRIX_D, &type);
    take(gen, 0, count, type);
}

static void access_fragment(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    bool load = insn->form->op == SG_OP_WMMA_LOAD;
    bool columns = SG_MOD(insn, SG_GROUP_LAYOUT1) == SG_COL;
    uint8_t which = SG_MOD(insn, SG_GROUP_MATRIX);
    struct sg_mma_shape shape = sg_mma_shape(insn);
    enum sg_type type;
    uint32_t count = sg_mma_registers(insn, which, &type);
    uint32_t rows = which == SG_MATRIX_B ? shape.k : shape.m,
             across = which == SG_MATRIX_A ? shape.k : shape.n;
    LLVMValueRef stride = sg_gen_const(gen, 32, columns ? rows : across);
    if (insn->n_operands > 2)
        stride = sg_gen_read(gen, &insn->operands[2], SG_U32);
    struct sg_matrix_kind kind = {.operation = load ? SG_MATRIX_LOAD : SG_MATRIX_STORE,
                                  .m = (uint8_t)shape.m,
                                  .n = (uint8_t)shape.n,
                                  .k_quarter = (uint8_t)(shape.k / 4),
                                  .a = (uint8_t)matrix_type((enum sg_type)insn->types[0]),
                                  .b = (uint8_t)count,
                                  .c_d = (uint8_t)(which - SG_MATRIX_A),
                                  .flags = columns ? SG_MATRIX_COLUMNS : 0};
    if (!load)
        put(gen, 1, offsetof(struct sg_matrix_fragments, c), count, type);
    call(gen, kind, sg_gen_address(gen, &insn->operands[load ? 1 : 0], SG_MOD(insn, SG_GROUP_SPACE)), stride);
    if (load)
        take(gen, 0, count, type);
}

/* ldmatrix, stmatrix, movmatrix */
static void access_rows(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_op op = insn->form->op;
    bool load = op == SG_OP_LDMATRIX, store = op == SG_OP_STMATRIX;
    uint32_t count = load || store ? sg_mma_count(insn) : 1;
    struct sg_matrix_kind kind = {.operation = load    ? SG_MATRIX_LOAD_ROWS
                                               : store ? SG_MATRIX_STORE_ROWS
                                                       : SG_MATRIX_TRANSPOSE,
                                  .m = (uint8_t)count,
                                  .flags = SG_MOD(insn, SG_GROUP_TRANSPOSE) != 0 ? SG_MATRIX_COLUMNS : 0};
    LLVMValueRef address = NULL;
    if (load || store)
        address = sg_gen_address(gen, &insn->operands[load ? 1 : 0], SG_MOD(insn, SG_GROUP_SPACE));
    if (!load)
        put(gen, 1, offsetof(struct sg_matrix_fragments, c), count, SG_B32);
    call(gen, kind, address, NULL);
    if (!store)
        take(gen, 0, count, SG_B32);
}

bool sg_gen_mma(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_MMA:
    case SG_OP_WMMA_MMA:
        multiply(gen);
        return true;
    case SG_OP_WMMA_LOAD:
    case SG_OP_WMMA_STORE:
        access_fragment(gen);
        return true;
    case SG_OP_LDMATRIX:
    case SG_OP_STMATRIX:
    case SG_OP_MOVMATRIX:
        access_rows(gen);
        return true;
    default:
        return false;
    }
}
