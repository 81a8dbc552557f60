/*
 * compare.c - setp, set, selp, slct.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static LLVMRealPredicate float_predicate(uint8_t cmp)
{
    static const LLVMRealPredicate predicates[] = {
        [SG_EQ] = LLVMRealOEQ,  [SG_NE] = LLVMRealONE,  [SG_LT] = LLVMRealOLT,  [SG_LE] = LLVMRealOLE,
        [SG_GT] = LLVMRealOGT,  [SG_GE] = LLVMRealOGE,  [SG_EQU] = LLVMRealUEQ, [SG_NEU] = LLVMRealUNE,
        [SG_LTU] = LLVMRealULT, [SG_LEU] = LLVMRealULE, [SG_GTU] = LLVMRealUGT, [SG_GEU] = LLVMRealUGE,
        [SG_NUM] = LLVMRealORD, [SG_NAN] = LLVMRealUNO};
    return predicates[cmp];
}

static LLVMIntPredicate int_predicate(uint8_t cmp, bool is_signed)
{
    switch (cmp) {
    case SG_EQ:
        return LLVMIntEQ;
    case SG_NE:
        return LLVMIntNE;
    case SG_LT:
        return is_signed ? LLVMIntSLT : LLVMIntULT;
    case SG_LE:
        return is_signed ? LLVMIntSLE : LLVMIntULE;
    case SG_GT:
        return is_signed ? LLVMIntSGT : LLVMIntUGT;
    case SG_GE:
        return is_signed ? LLVMIntSGE : LLVMIntUGE;
    case SG_CMP_LO:
        return LLVMIntULT;
    case SG_LS:
        return LLVMIntULE;
    case SG_CMP_HI:
        return LLVMIntUGT;
    default:
        return LLVMIntUGE;
    }
}

static LLVMValueRef compare(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, enum sg_type type)
{
    uint8_t cmp = SG_MOD(gen->insn, SG_GROUP_CMP);
    if (type == SG_F16 || type == SG_BF16) {
        a = sg_gen_small_to_f32(gen, type, a);
        b = sg_gen_small_to_f32(gen, type, b);
    } else if (!sg_type_is_float(type)) {
        return sg_gen_compare(gen, int_predicate(cmp, sg_type_is_signed(type)), a, b);
    }
    if (SG_MOD(gen->insn, SG_GROUP_FTZ) != 0) {
        a = sg_gen_flush(gen, a);
        b = sg_gen_flush(gen, b);
    }
    return LLVMBuildFCmp(B, float_predicate(cmp), a, b, "");
}

LLVMValueRef sg_gen_combine(struct sg_codegen *gen, LLVMValueRef p, uint32_t operand)
{
    uint8_t operation = SG_MOD(gen->insn, SG_GROUP_BOOL);
    if (operation == 0)
        return p;
    LLVMValueRef c = sg_gen_read(gen, &gen->insn->operands[operand], SG_PRED);
    return operation == SG_AND  ? LLVMBuildAnd(B, p, c, "")
           : operation == SG_OR ? LLVMBuildOr(B, p, c, "")
                                : LLVMBuildXor(B, p, c, "");
}

static void set_predicate(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_type type = (enum sg_type)insn->types[0];
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2), p, q;
    if (type == SG_F16X2 || type == SG_BF16X2) {
        /* p of the low halves, q of the high ones */
        enum sg_type half = type == SG_F16X2 ? SG_F16 : SG_BF16;
        p = sg_gen_combine(gen, compare(gen, sg_gen_part(gen, a, 0, 16), sg_gen_part(gen, b, 0, 16), half),
                           3);
        q = sg_gen_combine(gen, compare(gen, sg_gen_part(gen, a, 1, 16), sg_gen_part(gen, b, 1, 16), half),
                           3);
    } else {
        LLVMValueRef plain = compare(gen, a, b, type);
        p = sg_gen_combine(gen, plain, 3);
        q = sg_gen_combine(gen, LLVMBuildNot(B, plain, ""), 3);
    }
    sg_gen_write(gen, &insn->operands[0], SG_PRED, p);
    sg_gen_write(gen, &insn->operands[insn->n_operands], SG_PRED, q);
}

static LLVMValueRef truth(struct sg_codegen *gen, LLVMValueRef p, enum sg_type type)
{
    if (type == SG_F32)
        return sg_gen_select(gen, p, LLVMConstReal(gen->f32, 1.0), LLVMConstReal(gen->f32, 0.0));
    if (type == SG_F16 || type == SG_BF16)
        return sg_gen_select(gen, p, sg_gen_const(gen, 16, type == SG_F16 ? 0x3c00 : 0x3f80),
                             sg_gen_const(gen, 16, 0));
    return LLVMBuildSExt(B, p, sg_gen_type(gen, type), "");
}

static void set_value(struct sg_codegen *gen)
{
    enum sg_type to = sg_gen_type_of(gen), from = (enum sg_type)gen->insn->types[1];
    LLVMValueRef a = sg_gen_read(gen, &gen->insn->operands[1], from);
    LLVMValueRef b = sg_gen_read(gen, &gen->insn->operands[2], from);
    if (from != SG_F16X2 && from != SG_BF16X2) {
        sg_gen_result(gen, truth(gen, sg_gen_combine(gen, compare(gen, a, b, from), 3), to));
        return;
    }
    enum sg_type half = from == SG_F16X2 ? SG_F16 : SG_BF16;
    enum sg_type half_to = to == SG_F16X2 ? SG_F16 : to == SG_BF16X2 ? SG_BF16 : SG_U16;
    LLVMValueRef value = sg_gen_const(gen, 32, 0);
    for (unsigned i = 0; i < 2; i++) {
        LLVMValueRef p = sg_gen_combine(
            gen, compare(gen, sg_gen_part(gen, a, i, 16), sg_gen_part(gen, b, i, 16), half), 3);
        LLVMValueRef part = LLVMBuildZExt(B, truth(gen, p, half_to), gen->i32, "");
        value = LLVMBuildOr(B, value, LLVMBuildShl(B, part, sg_gen_const(gen, 32, i * 16), ""), "");
    }
    sg_gen_result(gen, value);
}

static void select_by_sign(struct sg_codegen *gen)
{
    enum sg_type type = (enum sg_type)gen->insn->types[1];
    LLVMValueRef c = sg_gen_read(gen, &gen->insn->operands[3], type), p;
    if (type == SG_S32) {
        p = sg_gen_compare(gen, LLVMIntSGE, c, sg_gen_const(gen, 32, 0));
    } else {
        if (SG_MOD(gen->insn, SG_GROUP_FTZ) != 0)
            c = sg_gen_flush(gen, c);
        p = LLVMBuildFCmp(B, LLVMRealOGE, c, LLVMConstReal(gen->f32, 0.0), "");
    }
    sg_gen_result(gen, sg_gen_select(gen, p, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2)));
}

LLVMValueRef sg_emit_comparison(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_SETP:
        set_predicate(gen);
        return NULL;
    case SG_OP_SET:
        set_value(gen);
        return NULL;
    case SG_OP_SELP: {
        LLVMValueRef p = sg_gen_read(gen, &gen->insn->operands[3], SG_PRED);
        return sg_gen_select(gen, p, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2));
    }
    case SG_OP_SLCT:
        select_by_sign(gen);
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
