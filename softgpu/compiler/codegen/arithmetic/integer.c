/*
 * integer.c - integer arithmetic. Everything wraps; nothing traps: division by zero gives all ones,
 * and the smallest number divided by -1 gives itself.
 */
#include "softgpu/compiler/codegen/arithmetic/arithmetic.h"

#define B gen->builder

static LLVMValueRef extend(struct sg_codegen *gen, LLVMValueRef value, unsigned bits, bool is_signed)
{
    return is_signed ? LLVMBuildSExt(B, value, sg_gen_int(gen, bits), "")
                     : LLVMBuildZExt(B, value, sg_gen_int(gen, bits), "");
}

/* {a op b, carry or borrow} */
static LLVMValueRef with_overflow(struct sg_codegen *gen, const char *name, LLVMValueRef a, LLVMValueRef b,
                                  LLVMValueRef *carry)
{
    LLVMValueRef both = sg_gen_math(gen, name, a, b, NULL);
    *carry = LLVMBuildExtractValue(B, both, 1, "");
    return LLVMBuildExtractValue(B, both, 0, "");
}

/*
 * a + b (+ carry) or a - b (- borrow); the carry flag is read and written as the instruction says. A
 * subtraction leaves there what GPUs do, who add a + ~b + 1: 1 if nothing is borrowed. It shows where an
 * addition goes on behind a subtraction, as in what nvcc makes of a division of 128 bits, whatever PTX's
 * manual says of borrows.
 */
static LLVMValueRef add_carry(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b, bool subtract,
                              bool carry_in)
{
    const char *name = subtract ? "llvm.usub.with.overflow" : "llvm.uadd.with.overflow";
    LLVMValueRef carry, second;
    LLVMValueRef value = with_overflow(gen, name, a, b, &carry);
    if (carry_in) {
        LLVMValueRef flag = LLVMBuildLoad2(B, gen->i1, gen->carry, "");
        flag = subtract ? LLVMBuildNot(B, flag, "") : flag;
        value = with_overflow(gen, name, value, LLVMBuildZExt(B, flag, LLVMTypeOf(a), ""), &second);
        carry = LLVMBuildOr(B, carry, second, "");
    }
    if (SG_MOD(gen->insn, SG_GROUP_CC) != 0)
        LLVMBuildStore(B, subtract ? LLVMBuildNot(B, carry, "") : carry, gen->carry);
    return value;
}

/* Both halves of a packed pair, one after the other. */
static LLVMValueRef each_half(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef (*apply)(struct sg_codegen *, LLVMValueRef, LLVMValueRef))
{
    LLVMTypeRef pair = LLVMVectorType(sg_gen_int(gen, 16), 2);
    return sg_gen_cast(gen, apply(gen, sg_gen_cast(gen, a, pair), sg_gen_cast(gen, b, pair)), gen->i32);
}

static LLVMValueRef add_plain(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAdd(B, a, b, "");
}

static LLVMValueRef min_max(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    enum sg_type type = sg_gen_type_of(gen);
    bool is_signed = sg_type_is_signed(type) || type == SG_S16X2;
    bool min = gen->insn->form->op == SG_OP_MIN;
    const char *name = is_signed ? (min ? "llvm.smin" : "llvm.smax") : (min ? "llvm.umin" : "llvm.umax");
    LLVMValueRef value = sg_gen_math(gen, name, a, b, NULL);
    if (SG_MOD(gen->insn, SG_GROUP_RELU) != 0)
        value = sg_gen_math(gen, "llvm.smax", value, LLVMConstNull(LLVMTypeOf(value)), NULL);
    return value;
}

static LLVMValueRef add_sub(struct sg_codegen *gen, bool subtract)
{
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2);
    const struct sg_operand *to = &gen->insn->operands[0];
    if (sg_gen_type_of(gen) == SG_U16X2 || sg_gen_type_of(gen) == SG_S16X2)
        return each_half(gen, a, b, add_plain);
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        return sg_gen_math(gen, subtract ? "llvm.ssub.sat" : "llvm.sadd.sat", a, b, NULL);
    if (SG_MOD(gen->insn, SG_GROUP_CC) != 0)
        return add_carry(gen, a, b, subtract, false);
    if (subtract)
        return LLVMBuildSub(B, a, b, "");
    /* base + offset stays a pointer and an offset, so that LLVM sees which memory a loop walks over */
    if (to->kind == SG_OPERAND_REG && gen->function->regs[to->reg].pointer)
        for (uint32_t i = 1; i <= 2; i++) {
            const struct sg_operand *base = &gen->insn->operands[i];
            if (base->kind != SG_OPERAND_REG || !gen->function->regs[base->reg].pointer)
                continue;
            LLVMValueRef pointer = LLVMBuildLoad2(B, gen->guest, gen->registers[base->reg], "");
            LLVMValueRef offset = i == 1 ? b : a;
            return LLVMBuildGEP2(B, gen->i8, pointer, &offset, 1, "");
        }
    return sg_gen_unwrapped(gen, LLVMBuildAdd(B, a, b, ""));
}

/* The part of a product that .lo, .hi or .wide names. */
static LLVMValueRef product(struct sg_codegen *gen, LLVMValueRef a, LLVMValueRef b)
{
    enum sg_type type = sg_gen_type_of(gen);
    unsigned bits = sg_types[type].bits;
    uint8_t part = SG_MOD(gen->insn, SG_GROUP_WIDE);
    if (part == SG_LO)
        return sg_gen_unwrapped(gen, LLVMBuildMul(B, a, b, ""));
    bool is_signed = sg_type_is_signed(type);
    LLVMValueRef wide =
        LLVMBuildMul(B, extend(gen, a, bits * 2, is_signed), extend(gen, b, bits * 2, is_signed), "");
    if (part == SG_WIDE)
        return wide;
    return LLVMBuildTrunc(B, LLVMBuildLShr(B, wide, sg_gen_const(gen, bits * 2, bits), ""),
                          sg_gen_int(gen, bits), "");
}

static enum sg_type wide_type(struct sg_codegen *gen)
{
    enum sg_type type = sg_gen_type_of(gen);
    return SG_MOD(gen->insn, SG_GROUP_WIDE) == SG_WIDE ? sg_type_widened(type) : type;
}

static void multiply(struct sg_codegen *gen)
{
    LLVMValueRef value = product(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2));
    sg_gen_write(gen, &gen->insn->operands[0], wide_type(gen), value);
}

static void multiply_add(struct sg_codegen *gen, bool carry_in)
{
    LLVMValueRef value = product(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2));
    LLVMValueRef addend = sg_gen_read(gen, &gen->insn->operands[3], wide_type(gen));
    if (SG_MOD(gen->insn, SG_GROUP_SAT) != 0)
        value = sg_gen_math(gen, "llvm.sadd.sat", value, addend, NULL);
    else if (carry_in || SG_MOD(gen->insn, SG_GROUP_CC) != 0)
        value = add_carry(gen, value, addend, false, carry_in);
    else
        value = sg_gen_unwrapped(gen, LLVMBuildAdd(B, value, addend, ""));
    sg_gen_write(gen, &gen->insn->operands[0], wide_type(gen), value);
}

static LLVMValueRef multiply24(struct sg_codegen *gen)
{
    bool is_signed = sg_type_is_signed(sg_gen_type_of(gen));
    LLVMTypeRef i24 = sg_gen_int(gen, 24);
    LLVMValueRef a = extend(gen, LLVMBuildTrunc(B, sg_gen_operand(gen, 1), i24, ""), 64, is_signed);
    LLVMValueRef b = extend(gen, LLVMBuildTrunc(B, sg_gen_operand(gen, 2), i24, ""), 64, is_signed);
    LLVMValueRef value = LLVMBuildMul(B, a, b, "");
    if (SG_MOD(gen->insn, SG_GROUP_WIDE) == SG_HI)
        value = LLVMBuildLShr(B, value, sg_gen_const(gen, 64, 16), "");
    value = LLVMBuildTrunc(B, value, gen->i32, "");
    if (gen->insn->form->op == SG_OP_MUL24)
        return value;
    LLVMValueRef addend = sg_gen_operand(gen, 3);
    return SG_MOD(gen->insn, SG_GROUP_SAT) != 0 ? sg_gen_math(gen, "llvm.sadd.sat", value, addend, NULL)
                                                : LLVMBuildAdd(B, value, addend, "");
}

static LLVMValueRef divide(struct sg_codegen *gen, bool remainder)
{
    bool is_signed = sg_type_is_signed(sg_gen_type_of(gen));
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2);
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMConstNull(type), one = LLVMConstInt(type, 1, 0), ones = LLVMConstAllOnes(type);
    LLVMValueRef by_zero = sg_gen_compare(gen, LLVMIntEQ, b, zero);
    LLVMValueRef unsafe = by_zero, by_minus_one = NULL;
    if (is_signed) {
        by_minus_one = sg_gen_compare(gen, LLVMIntEQ, b, ones);
        unsafe = LLVMBuildOr(B, by_zero, by_minus_one, "");
    }
    LLVMValueRef divisor = sg_gen_select(gen, unsafe, one, b);
    LLVMValueRef value =
        is_signed ? (remainder ? LLVMBuildSRem(B, a, divisor, "") : LLVMBuildSDiv(B, a, divisor, ""))
                  : (remainder ? LLVMBuildURem(B, a, divisor, "") : LLVMBuildUDiv(B, a, divisor, ""));
    if (is_signed && !remainder) /* a remainder by 1 is the remainder by -1: 0 */
        value = sg_gen_select(gen, by_minus_one, LLVMBuildNeg(B, a, ""), value);
    return sg_gen_select(gen, by_zero, ones, value);
}

static LLVMValueRef absolute_difference(struct sg_codegen *gen)
{
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2);
    LLVMValueRef less =
        sg_gen_compare(gen, sg_type_is_signed(sg_gen_type_of(gen)) ? LLVMIntSLT : LLVMIntULT, a, b);
    LLVMValueRef difference = sg_gen_select(gen, less, LLVMBuildSub(B, b, a, ""), LLVMBuildSub(B, a, b, ""));
    return LLVMBuildAdd(B, difference, sg_gen_operand(gen, 3), "");
}

static LLVMValueRef byte_of(struct sg_codegen *gen, LLVMValueRef word, uint32_t i, unsigned bits,
                            enum sg_type type)
{
    LLVMValueRef part = LLVMBuildLShr(B, word, sg_gen_const(gen, 32, i * bits), "");
    return extend(gen, LLVMBuildTrunc(B, part, sg_gen_int(gen, bits), ""), 32, sg_type_is_signed(type));
}

/* Sums of products of bytes: dp4a takes four of each, dp2a halves of a and two bytes of b. */
static LLVMValueRef dot_product(struct sg_codegen *gen, bool four)
{
    enum sg_type a_type = sg_gen_type_of(gen), b_type = (enum sg_type)gen->insn->types[1];
    LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_read(gen, &gen->insn->operands[2], b_type);
    LLVMValueRef sum = sg_gen_read(gen, &gen->insn->operands[3], SG_B32);
    uint32_t first = SG_MOD(gen->insn, SG_GROUP_WIDE) == SG_HI ? 2 : 0;
    for (uint32_t i = 0; i < (four ? 4u : 2u); i++) {
        LLVMValueRef left = byte_of(gen, a, i, four ? 8 : 16, a_type);
        LLVMValueRef right = byte_of(gen, b, first + i, 8, b_type);
        sum = LLVMBuildAdd(B, sum, LLVMBuildMul(B, left, right, ""), "");
    }
    return sum;
}

LLVMValueRef sg_emit_integer(struct sg_codegen *gen)
{
    enum sg_type type = sg_gen_type_of(gen);
    switch (gen->insn->form->op) {
    case SG_OP_ADD:
        return add_sub(gen, false);
    case SG_OP_SUB:
        return add_sub(gen, true);
    case SG_OP_ADDC:
        return add_carry(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), false, true);
    case SG_OP_SUBC:
        return add_carry(gen, sg_gen_operand(gen, 1), sg_gen_operand(gen, 2), true, true);
    case SG_OP_MUL:
        multiply(gen);
        return NULL;
    case SG_OP_MAD:
        multiply_add(gen, false);
        return NULL;
    case SG_OP_MADC:
        multiply_add(gen, true);
        return NULL;
    case SG_OP_MUL24:
    case SG_OP_MAD24:
        return multiply24(gen);
    case SG_OP_SAD:
        return absolute_difference(gen);
    case SG_OP_DIV:
        return divide(gen, false);
    case SG_OP_REM:
        return divide(gen, true);
    case SG_OP_ABS:
        return sg_gen_math(gen, "llvm.smax", sg_gen_operand(gen, 1),
                           LLVMBuildNeg(B, sg_gen_operand(gen, 1), ""), NULL);
    case SG_OP_NEG:
        return LLVMBuildNeg(B, sg_gen_operand(gen, 1), "");
    case SG_OP_MIN:
    case SG_OP_MAX: {
        LLVMValueRef a = sg_gen_operand(gen, 1), b = sg_gen_operand(gen, 2);
        bool packed = type == SG_U16X2 || type == SG_S16X2;
        return packed ? each_half(gen, a, b, min_max) : min_max(gen, a, b);
    }
    case SG_OP_DP4A:
        sg_gen_write(gen, &gen->insn->operands[0], SG_B32, dot_product(gen, true));
        return NULL;
    case SG_OP_DP2A:
        sg_gen_write(gen, &gen->insn->operands[0], SG_B32, dot_product(gen, false));
        return NULL;
    default:
        sg_gen_lacks(gen);
    }
}
