/*
 * arithmetic.h - what depends on operands in registers alone: integers, bits, floating point, comparisons,
 * conversions, video instructions.
 */
#ifndef SG_COMPILER_CODEGEN_ARITHMETIC_ARITHMETIC_H
#define SG_COMPILER_CODEGEN_ARITHMETIC_ARITHMETIC_H

#include "softgpu/compiler/codegen/builder/builder.h"

/*
 * Emitters generate the instruction gen->insn. What they return is the value of operand 0, of the
 * instruction's first type; NULL: there is none, or it has been written.
 */
LLVMValueRef sg_emit_integer(struct sg_codegen *gen);    /* integer.c */
LLVMValueRef sg_emit_bits(struct sg_codegen *gen);       /* bits.c */
LLVMValueRef sg_emit_float(struct sg_codegen *gen);      /* float.c */
LLVMValueRef sg_emit_comparison(struct sg_codegen *gen); /* compare.c */
LLVMValueRef sg_emit_conversion(struct sg_codegen *gen); /* convert.c */
LLVMValueRef sg_emit_video(struct sg_codegen *gen);      /* video.c */

/** Conversions between pairs (narrow.c). */
void sg_gen_convert_pair(struct sg_codegen *gen);

/** The predicate combined with operand `operand` as the instruction says (.and, .or, .xor); as it is, where it says nothing. compare.c */
LLVMValueRef sg_gen_combine(struct sg_codegen *gen, LLVMValueRef p, uint32_t operand);

/* --- round.c: pieces of floating-point arithmetic that emitters share --- */

/** Does the instruction flush denormal numbers, and how does it round? */
static inline bool sg_gen_flushes(const struct sg_codegen *gen)
{
    return SG_MOD(gen->insn, SG_GROUP_FTZ) != 0;
}
static inline uint8_t sg_gen_rounding(const struct sg_codegen *gen)
{
    uint8_t round = SG_MOD(gen->insn, SG_GROUP_ROUND);
    return round == 0 ? SG_RN : round;
}
/** Denormal numbers of float become 0; between 0 and 1 (NaN: 0); negative numbers become 0. */
LLVMValueRef sg_gen_flush(struct sg_codegen *gen, LLVMValueRef value);
LLVMValueRef sg_gen_saturate(struct sg_codegen *gen, LLVMValueRef value);
LLVMValueRef sg_gen_relu(struct sg_codegen *gen, LLVMValueRef value);
/** p + c, exact, rounded to float in the given direction. */
LLVMValueRef sg_gen_round_sum(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c, uint8_t round);
/** A double to float in the given direction. */
LLVMValueRef sg_gen_round_f32(struct sg_codegen *gen, LLVMValueRef value, uint8_t round);
/** p + c rounded to double so that a later rounding to a much narrower type is the only one that counts. */
LLVMValueRef sg_gen_sum_to_odd(struct sg_codegen *gen, LLVMValueRef p, LLVMValueRef c);
LLVMValueRef sg_gen_f32_to_half(struct sg_codegen *gen, LLVMValueRef value, uint8_t round);
/** Round to odd: what a second rounding does is then right. */
LLVMValueRef sg_gen_f64_to_f32_odd(struct sg_codegen *gen, LLVMValueRef value);
/** Either of the small formats, by type (f16 or bf16). */
LLVMValueRef sg_gen_small_to_f32(struct sg_codegen *gen, enum sg_type type, LLVMValueRef bits);
LLVMValueRef sg_gen_f32_to_small(struct sg_codegen *gen, enum sg_type type, LLVMValueRef value,
                                 uint8_t round);
/** A float, but not beyond the greatest number of .f16 or .bf16. */
LLVMValueRef sg_gen_clamp_finite(struct sg_codegen *gen, LLVMValueRef value, enum sg_type to);

/* --- approx.c: the approximate functions of float --- */

/**
 * Code for ex2, lg2, sin, cos and tanh of a float `x`, without calls, so that it can be vectorised. How
 * exact each is stands in the file.
 */
LLVMValueRef sg_gen_ex2(struct sg_codegen *gen, LLVMValueRef x);
LLVMValueRef sg_gen_lg2(struct sg_codegen *gen, LLVMValueRef x);
LLVMValueRef sg_gen_sine(struct sg_codegen *gen, LLVMValueRef x, bool cosine);
LLVMValueRef sg_gen_tanh(struct sg_codegen *gen, LLVMValueRef x);

#endif
