/*
 * video.c - the video instructions: on one value, out of any byte or half of its operands, with a second
 * operation or merged into a part of the third operand; and on two or four lanes of a word, taken from any
 * lanes of the first two operands. A value computes in 128 bits and lanes in 32, so that nothing is lost
 * before saturation.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#include "softgpu/compiler/ir/video.h"

#define B gen->builder

static LLVMValueRef clamp(struct sg_codegen *gen, LLVMValueRef value, unsigned bits, bool is_signed)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    int64_t top = is_signed ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
    int64_t bottom = is_signed ? -top - 1 : 0;
    value = sg_gen_math(gen, "llvm.smin", value, LLVMConstInt(type, (uint64_t)top, 1), NULL);
    return sg_gen_math(gen, "llvm.smax", value, LLVMConstInt(type, (uint64_t)bottom, 1), NULL);
}

/* Bits [first, first + bits) of a word as a number of the type's sign. */
static LLVMValueRef extract(struct sg_codegen *gen, LLVMValueRef word, unsigned first, unsigned bits,
                            enum sg_type type, LLVMTypeRef to)
{
    LLVMValueRef part = LLVMBuildLShr(B, word, sg_gen_const(gen, 32, first), "");
    part = LLVMBuildTrunc(B, part, sg_gen_int(gen, bits), "");
    return sg_type_is_signed(type) ? LLVMBuildSExt(B, part, to, "") : LLVMBuildZExt(B, part, to, "");
}

static LLVMValueRef is_true(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    static const LLVMIntPredicate predicates[] = {
        [SG_EQ] = LLVMIntEQ,      [SG_NE] = LLVMIntNE,  [SG_LT] = LLVMIntSLT,     [SG_LE] = LLVMIntSLE,
        [SG_GT] = LLVMIntSGT,     [SG_GE] = LLVMIntSGE, [SG_CMP_LO] = LLVMIntSLT, [SG_LS] = LLVMIntSLE,
        [SG_CMP_HI] = LLVMIntSGT, [SG_HS] = LLVMIntSGE};
    return LLVMBuildZExt(B, sg_gen_compare(gen, predicates[SG_MOD(gen->insn, SG_GROUP_CMP)], a, b),
                         LLVMTypeOf(a), "");
}

/* What both kinds can do with two numbers. */
static LLVMValueRef compute(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(a)), one = LLVMConstInt(LLVMTypeOf(a), 1, 0), sum;
    switch (gen->insn->form->op) {
    case SG_OP_VADD:
        return LLVMBuildAdd(B, a, b, "");
    case SG_OP_VSUB:
        return LLVMBuildSub(B, a, b, "");
    case SG_OP_VAVRG:
        /* halves are rounded away from 0 */
        sum = LLVMBuildAdd(B, a, b, "");
        one = sg_gen_select(gen, sg_gen_compare(gen, LLVMIntSGE, sum, zero), one, zero);
        return LLVMBuildAShr(B, LLVMBuildAdd(B, sum, one, ""), LLVMConstInt(LLVMTypeOf(a), 1, 0), "");
    case SG_OP_VMIN:
        return sg_gen_math(gen, "llvm.smin", a, b, NULL);
    case SG_OP_VMAX:
        return sg_gen_math(gen, "llvm.smax", a, b, NULL);
    case SG_OP_VSET:
        return is_true(gen, a, b);
    default:
        return LLVMBuildSub(B, sg_gen_math(gen, "llvm.smax", a, b, NULL),
                            sg_gen_math(gen, "llvm.smin", a, b, NULL), "");
    }
}

/* --- one value --- */

#define WIDE 128u

static LLVMTypeRef wide_type(struct sg_codegen *gen)
{
    return sg_gen_int(gen, WIDE);
}

static LLVMValueRef read_part(struct sg_codegen *gen, uint32_t operand, enum sg_type type)
{
    const struct sg_operand *from = &gen->insn->operands[operand];
    LLVMValueRef word = sg_gen_read(gen, from, type);
    return extract(gen, word, sg_video_first_bit(from->selector), sg_video_bits(from->selector), type,
                   wide_type(gen));
}

/* vshl, vshr: by at most 32. */
static LLVMValueRef shift(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    LLVMTypeRef type = wide_type(gen);
    if (SG_MOD(gen->insn, SG_GROUP_CLAMP) == SG_WRAP)
        b = LLVMBuildAnd(B, b, LLVMConstInt(type, 31, 0), "");
    else
        b = sg_gen_math(gen, "llvm.umin", b, LLVMConstInt(type, 32, 0), NULL);
    return gen->insn->form->op == SG_OP_VSHL ? LLVMBuildShl(B, a, b, "") : LLVMBuildAShr(B, a, b, "");
}

/* ±(a * b) ± c, or one more, scaled; signed if anything in it is. */
static LLVMValueRef multiply_add(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    const struct sg_insn *insn = gen->insn;
    const struct sg_operand *operands = insn->operands;
    LLVMTypeRef type = wide_type(gen);
    bool minus = operands[1].minus != operands[2].minus;
    bool is_signed = sg_type_is_signed((enum sg_type)insn->types[1]) ||
                     sg_type_is_signed((enum sg_type)insn->types[2]) || minus || operands[3].minus;
    LLVMValueRef product = LLVMBuildMul(B, a, b, "");
    LLVMValueRef c = sg_gen_read(gen, &operands[3], SG_B32);
    c = is_signed ? LLVMBuildSExt(B, c, type, "") : LLVMBuildZExt(B, c, type, "");
    if (minus)
        product = LLVMBuildNeg(B, product, "");
    else if (operands[3].minus)
        c = LLVMBuildNeg(B, c, "");
    LLVMValueRef sum = LLVMBuildAdd(B, product, c, "");
    if (SG_MOD(insn, SG_GROUP_PLUS_ONE) != 0)
        sum = LLVMBuildAdd(B, sum, LLVMConstInt(type, 1, 0), "");
    static const unsigned scales[] = {0, 7, 15};
    sum = LLVMBuildAShr(B, sum, LLVMConstInt(type, scales[SG_MOD(insn, SG_GROUP_SCALE)], 0), "");
    return SG_MOD(insn, SG_GROUP_SAT) != 0 ? clamp(gen, sum, 32, is_signed) : sum;
}

/* The second operation, or the merge, with the third operand. */
static LLVMValueRef combine(struct sg_codegen *gen, LLVMValueRef value, enum sg_type to)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t second = SG_MOD(insn, SG_GROUP_SECOND);
    uint16_t place = insn->operands[0].selector;
    LLVMValueRef result = LLVMBuildTrunc(B, value, gen->i32, "");
    if (place == 0 && second == 0)
        return result;
    LLVMValueRef c = sg_gen_read(gen, &insn->operands[3], to);
    if (place != 0) {
        uint64_t mask = ((UINT64_C(1) << sg_video_bits(place)) - 1) << sg_video_first_bit(place);
        result = LLVMBuildShl(B, result, sg_gen_const(gen, 32, sg_video_first_bit(place)), "");
        return LLVMBuildOr(B, LLVMBuildAnd(B, result, sg_gen_const(gen, 32, mask), ""),
                           LLVMBuildAnd(B, c, sg_gen_const(gen, 32, ~mask & UINT32_MAX), ""), "");
    }
    if (second == SG_SECOND_ADD)
        return LLVMBuildAdd(B, result, c, "");
    c = extract(gen, c, 0, 32, to, wide_type(gen));
    return LLVMBuildTrunc(
        B, sg_gen_math(gen, second == SG_SECOND_MIN ? "llvm.smin" : "llvm.smax", value, c, NULL), gen->i32,
        "");
}

static void operate_on_one(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    enum sg_op op = insn->form->op;
    bool set = op == SG_OP_VSET;
    enum sg_type to = set ? SG_U32 : (enum sg_type)insn->types[0];
    LLVMValueRef a = read_part(gen, 1, (enum sg_type)insn->types[set ? 0 : 1]);
    LLVMValueRef b = read_part(gen, 2, (enum sg_type)insn->types[set ? 1 : 2]), value;
    if (op == SG_OP_VMAD) {
        value = LLVMBuildTrunc(B, multiply_add(gen, a, b), gen->i32, "");
        sg_gen_write(gen, &insn->operands[0], to, value);
        return;
    }
    value = op == SG_OP_VSHL || op == SG_OP_VSHR ? shift(gen, a, b) : compute(gen, a, b);
    if (SG_MOD(insn, SG_GROUP_SAT) != 0)
        value = clamp(gen, value, sg_video_bits(insn->operands[0].selector), sg_type_is_signed(to));
    sg_gen_write(gen, &insn->operands[0], to, combine(gen, value, to));
}

/* --- lanes --- */

static LLVMValueRef read_lane(struct sg_codegen *gen, const LLVMValueRef words[2], unsigned lanes,
                              unsigned choice, enum sg_type type)
{
    unsigned bits = 32 / lanes;
    return extract(gen, words[choice / lanes], choice % lanes * bits, bits, type, gen->i32);
}

static void operate_on_lanes(struct sg_codegen *gen, unsigned lanes)
{
    const struct sg_insn *insn = gen->insn;
    const struct sg_operand *operands = insn->operands;
    bool set = insn->form->op == SG_OP_VSET, accumulate = SG_MOD(insn, SG_GROUP_ACCUMULATE) != 0;
    unsigned bits = 32 / lanes;
    enum sg_type to = set ? SG_U32 : (enum sg_type)insn->types[0];
    enum sg_type a_type = (enum sg_type)insn->types[set ? 0 : 1],
                 b_type = (enum sg_type)insn->types[set ? 1 : 2];
    LLVMValueRef words[2] = {sg_gen_read(gen, &operands[1], a_type), sg_gen_read(gen, &operands[2], b_type)};
    LLVMValueRef packed = sg_gen_const(gen, 32, 0), c = packed;
    if (insn->n_operands > 3)
        c = sg_gen_read(gen, &operands[3], to);
    LLVMValueRef sum = c;
    uint64_t kept = 0;
    for (unsigned i = 0; i < lanes; i++) {
        uint64_t mask = ((UINT64_C(1) << bits) - 1) << (i * bits);
        if ((sg_video_mask(operands[0].selector, lanes) >> i & 1) == 0) {
            kept |= mask;
            continue;
        }
        LLVMValueRef x =
            read_lane(gen, words, lanes, sg_video_choice(operands[1].selector, lanes, i, 0), a_type);
        LLVMValueRef y =
            read_lane(gen, words, lanes, sg_video_choice(operands[2].selector, lanes, i, lanes), b_type);
        LLVMValueRef value = compute(gen, x, y);
        if (SG_MOD(insn, SG_GROUP_SAT) != 0)
            value = clamp(gen, value, bits, sg_type_is_signed(to));
        sum = LLVMBuildAdd(B, sum, value, "");
        value = LLVMBuildShl(B, value, sg_gen_const(gen, 32, (uint64_t)i * bits), "");
        packed = LLVMBuildOr(B, packed, LLVMBuildAnd(B, value, sg_gen_const(gen, 32, mask), ""), "");
    }
    packed = LLVMBuildOr(B, packed, LLVMBuildAnd(B, c, sg_gen_const(gen, 32, kept), ""), "");
    sg_gen_write(gen, &operands[0], to, accumulate ? sum : packed);
}

LLVMValueRef sg_emit_video(struct sg_codegen *gen)
{
    unsigned lanes = sg_video_lanes(gen->insn->form);
    if (lanes == 1)
        operate_on_one(gen);
    else
        operate_on_lanes(gen, lanes);
    return NULL;
}
