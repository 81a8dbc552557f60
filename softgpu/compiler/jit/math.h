/*
 * math.h - functions that generated code calls: arithmetic that the host has no single instruction for. The
 * names beginning with sg_math_ depend on their arguments alone.
 */
#ifndef SG_COMPILER_JIT_MATH_H
#define SG_COMPILER_JIT_MATH_H

#include "softgpu/kernel_abi.h"

/** All functions that generated code may call beside the engine's; ended by a NULL name. */
extern const struct sg_rt_symbol sg_math_symbols[];

/* Rounding modes are those of enum SG_RN… in instruction.h. */
double sg_math_add_f64(double a, double b, uint32_t round);
double sg_math_mul_f64(double a, double b, uint32_t round);
double sg_math_fma_f64(double a, double b, double c, uint32_t round);
double sg_math_div_f64(double a, double b, uint32_t round);
float sg_math_div_f32(float a, float b, uint32_t round);
double sg_math_sqrt_f64(double a, uint32_t round);
float sg_math_sqrt_f32(float a, uint32_t round);
double sg_math_integer_to_f64(uint64_t value, uint32_t is_signed, uint32_t round);
/** Half precision by integer arithmetic: for hosts that cannot convert, and for directed rounding. */
float sg_math_half_to_float(uint32_t bits);
uint32_t sg_math_float_to_half(float value, uint32_t round);
/** fns: the place of the offset-th set bit from `base`, or 0xffffffff. */
uint32_t sg_math_fns(uint32_t mask, uint32_t base, uint32_t offset);
/** 128-bit exchanges; the old value goes to *old. */
void sg_atomic_cas_128(void *address, const void *expected, const void *value, void *old);
void sg_atomic_exch_128(void *address, const void *value, void *old);

#endif
