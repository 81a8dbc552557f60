/*
 * address.h - addresses that instructions compute, taken apart into sums of registers times numbers, so that two of them can be
 * compared.
 */
#ifndef SG_COMPILER_UNIFORMITY_ADDRESS_H
#define SG_COMPILER_UNIFORMITY_ADDRESS_H

#include "softgpu/compiler/analysis/analysis.h"

#define SG_ADDRESS_TERMS 6u

/** number + Σ factor · root */
struct sg_address {
    uint64_t number;
    uint32_t n;
    bool known;
    struct {
        uint64_t root; /* a register, or where a variable is */
        uint64_t factor;
    } term[SG_ADDRESS_TERMS];
};

/** The instructions that write a function's registers. */
struct sg_writers {
    const struct sg_ptx_function *function;
    uint32_t *of; /* by register: 1 + the only instruction that writes it, 0: none, UINT32_MAX: several */
};

/** Memory of the arena. */
struct sg_writers sg_writers_find(struct sg_arena *arena, const struct sg_ptx_function *function);
/** What an operand is. `known` is false if it cannot be told. */
struct sg_address sg_address_of(const struct sg_writers *writers, const struct sg_operand *operand);
/** What `a` is more than `b`; *common: of how many roots they both are. */
struct sg_address sg_address_difference(const struct sg_address *a, const struct sg_address *b,
                                        uint32_t *common);

#endif
