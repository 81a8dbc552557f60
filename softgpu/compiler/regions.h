/*
 * regions.h - kernels in loop form: where a kernel is cut, and what a thread keeps across the cuts.
 *
 * A kernel is cut at its points: the instructions at which threads meet (barriers, operations of a warp). A region
 * is what can run from one point up to the next ones. Registers that live across a point lie in the context (struct
 * sg_lanes), a column each; those whose value follows from the thread's place and the kernel's parameters alone are
 * computed anew in each region instead, because LLVM then sees how they depend on the thread.
 */
#ifndef SG_COMPILER_REGIONS_H
#define SG_COMPILER_REGIONS_H

#include "softgpu/compiler/analysis.h"

struct sg_regions {
    uint32_t n_points;  /* numbered from 1 */
    uint32_t *points;   /* instruction → number of the point, or 0 */
    uint32_t n_words;   /* of a set of registers */
    uint64_t **save;    /* point → registers to store before it */
    uint64_t **load;    /* point → registers to load after it */
    uint32_t *column;   /* register → its column in the context, or 0 */
    uint64_t *crossing; /* registers that live across some point */
    uint32_t *remade;   /* register → 1 + the instruction that can compute it anew, or 0 */
    uint32_t carry;     /* column of the carry flag, or 0 */
    uint32_t *local;    /* .local variable, by index → place in the thread's local memory */
    uint32_t context_size, local_size;
};

/** Can the kernel be cut? It needs a point, and nothing that only a fiber can do. */
bool sg_regions_possible(struct sg_arena *arena, const struct sg_reach *reach);
/** Is the instruction a point? */
bool sg_is_point(const struct sg_insn *insn);
void sg_regions_compute(struct sg_arena *arena, const struct sg_function *kernel, struct sg_regions *regions);

static inline bool sg_regions_has(const uint64_t *set, uint32_t reg)
{
    return set[reg / 64] >> reg % 64 & 1;
}

/** Calls `visit` for each register that the instruction reads or writes (`maybe`: perhaps not). */
typedef void (*sg_register_visitor)(void *user, uint32_t reg, bool written, bool maybe);
void sg_visit_registers(const struct sg_insn *insn, sg_register_visitor visit, void *user);

#endif
