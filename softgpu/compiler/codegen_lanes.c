/*
 * codegen_lanes.c - the instructions on two or four lanes of a word (vadd2 ... vset4), without lane masks and
 * selectors. Lanes compute in 32 bits, so that nothing is lost before saturation.
 */
#include "softgpu/compiler/codegen.h"

#include <string.h>

#define B gen->builder

static LLVMValueRef lane_of(struct sg_codegen *gen, LLVMValueRef word, unsigned i, unsigned bits,
                            enum sg_type type)
{
    LLVMValueRef part = LLVMBuildLShr(B, word, sg_gen_const(gen, 32, (uint64_t)i * bits), "");
    part = LLVMBuildTrunc(B, part, sg_gen_int(gen, bits), "");
    return sg_type_is_signed(type) ? LLVMBuildSExt(B, part, gen->i32, "")
                                   : LLVMBuildZExt(B, part, gen->i32, "");
}

static LLVMValueRef compute(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef one = sg_gen_const(gen, 32, 1);
    switch (gen->insn->form->op) {
    case SG_OP_VADD:
        return LLVMBuildAdd(B, a, b, "");
    case SG_OP_VSUB:
        return LLVMBuildSub(B, a, b, "");
    case SG_OP_VAVRG:
        return LLVMBuildAShr(B, LLVMBuildAdd(B, LLVMBuildAdd(B, a, b, ""), one, ""), one, "");
    case SG_OP_VMIN:
        return sg_gen_math(gen, "llvm.smin", a, b, NULL);
    case SG_OP_VMAX:
        return sg_gen_math(gen, "llvm.smax", a, b, NULL);
    default:
        return LLVMBuildSub(B, sg_gen_math(gen, "llvm.smax", a, b, NULL),
                            sg_gen_math(gen, "llvm.smin", a, b, NULL), "");
    }
}

static LLVMValueRef compare(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    static const LLVMIntPredicate predicates[] = {
        [SG_EQ] = LLVMIntEQ,  [SG_NE] = LLVMIntNE,  [SG_LT] = LLVMIntSLT,
        [SG_LE] = LLVMIntSLE, [SG_GT] = LLVMIntSGT, [SG_GE] = LLVMIntSGE};
    uint8_t cmp = SG_MOD(gen->insn, SG_GROUP_CMP);
    if (cmp > SG_GE)
        sg_gen_fail(gen, "not a comparison of this instruction");
    return LLVMBuildZExt(B, sg_gen_compare(gen, predicates[cmp], a, b), gen->i32, "");
}

static LLVMValueRef saturate(struct sg_codegen *gen, LLVMValueRef value, unsigned bits, enum sg_type type)
{
    bool is_signed = sg_type_is_signed(type);
    int64_t top = is_signed ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
    int64_t bottom = is_signed ? -top - 1 : 0;
    value = sg_gen_math(gen, "llvm.smin", value, sg_gen_const(gen, 32, (uint64_t)top & 0xffffffff), NULL);
    return sg_gen_math(gen, "llvm.smax", value, sg_gen_const(gen, 32, (uint64_t)bottom & 0xffffffff), NULL);
}

bool sg_gen_lanes(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_op op = insn->form->op;
    if (op < SG_OP_VADD || op > SG_OP_VSET)
        return false;
    bool set = op == SG_OP_VSET, accumulate = SG_MOD(insn, SG_GROUP_ACCUMULATE) != 0;
    unsigned count = insn->form->base[strlen(insn->form->base) - 1] == '4' ? 4 : 2, bits = 32 / count;
    enum sg_type to = set ? SG_U32 : (enum sg_type)insn->types[0];
    enum sg_type a_type = (enum sg_type)insn->types[set ? 0 : 1],
                 b_type = (enum sg_type)insn->types[set ? 1 : 2];
    LLVMValueRef a = sg_gen_read(gen, &insn->operands[1], a_type),
                 b = sg_gen_read(gen, &insn->operands[2], b_type);
    LLVMValueRef sum = sg_gen_read(gen, &insn->operands[3], to), packed = sg_gen_const(gen, 32, 0);
    for (unsigned i = 0; i < count; i++) {
        LLVMValueRef x = lane_of(gen, a, i, bits, a_type), y = lane_of(gen, b, i, bits, b_type);
        LLVMValueRef value = set ? compare(gen, x, y) : compute(gen, x, y);
        if (SG_MOD(insn, SG_GROUP_SAT) != 0)
            value = saturate(gen, value, bits, to);
        sum = LLVMBuildAdd(B, sum, value, "");
        value = LLVMBuildAnd(B, value, sg_gen_const(gen, 32, (UINT64_C(1) << bits) - 1), "");
        packed =
            LLVMBuildOr(B, packed, LLVMBuildShl(B, value, sg_gen_const(gen, 32, (uint64_t)i * bits), ""), "");
    }
    sg_gen_write(gen, &insn->operands[0], to, accumulate ? sum : packed);
    return true;
}
