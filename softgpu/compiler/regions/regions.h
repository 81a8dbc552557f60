/*
 * regions.h - kernels in loop form: where a kernel is cut, and what a thread keeps across the cuts.
 *
 * A kernel is cut at its points: the instructions at which threads meet (barriers, operations of a warp). A
 * parallel region, or region for short, is what can run from one point up to the next ones: the engine runs
 * it for row after row of threads. Registers that live across a point lie in the context (struct sg_lanes), a
 * column each; those whose value follows from the thread's place and the kernel's parameters alone are
 * computed anew in each region instead, because LLVM then sees how they depend on the thread.
 */
#ifndef SG_COMPILER_REGIONS_REGIONS_H
#define SG_COMPILER_REGIONS_REGIONS_H

#include "softgpu/compiler/analysis/analysis.h"

#include "softgpu/kernel_abi.h"

#define SG_AFFINE_MAX 8u /* registers of a region that are checked to be affine */

struct sg_regions {
    uint32_t n_points; /* numbered from 1 */
    uint32_t *points;  /* instruction → number of the point, or 0 */
    uint32_t *ends;   /* the same, at the last instruction of a run (matrices.h); of others, the same place */
    uint32_t n_words; /* of a set of registers */
    uint64_t **save;  /* point → registers to store before it */
    uint64_t **load;  /* point → registers to load after it */
    uint64_t **before; /* point → registers that are live before it */
    uint32_t *next;    /* point → the only one that its region leads to, SG_POINT_END, or 0 */
    uint64_t **affine; /* point → those of them that the region reads and that should be affine along a row */
    int64_t *step;    /* register → what it should differ by from thread to thread, if it is one of these */
    uint32_t *column; /* register → its column in the context, or 0 */
    uint64_t *crossing;          /* registers that live across some point */
    uint32_t *rematerialised;    /* register → 1 + the instruction that can compute it anew, or 0 */
    uint8_t *steady;             /* point → a thread that comes again names the same mask */
    uint32_t carry;              /* column of the carry flag, or 0 */
    uint32_t addresses, strides; /* the first columns of those of a run's loads and stores of matrices */
    uint32_t *local;             /* .local variable, by index → place in the thread's local memory */
    uint32_t context_size, local_size;
    /* loops whose turns threads take together: what is affine where a turn begins can be kept once a block */
    uint8_t *turns;                     /* point → it is the end of a turn */
    uint32_t n_kept, kept[SG_KEPT_MAX]; /* registers */
};

struct sg_flow;

/** Marks where the kernel's threads wait for what others write; before sg_regions_possible. */
void sg_points_mark_yields(struct sg_ptx_function *kernel);
/** Can the kernel be cut? It needs a point, and nothing that only a fiber can do. */
bool sg_regions_possible(struct sg_arena *arena, const struct sg_reach *reach);
/** By register: 1 + the instruction that can compute it anew, or 0. */
uint32_t *sg_rematerialise_find(struct sg_arena *arena, const struct sg_ptx_function *function);
/** Where a thread that comes again names the same mask (`steady`); once `rematerialised` is known. */
void sg_points_find_steady(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions);
void sg_regions_compute(struct sg_arena *arena, const struct sg_ptx_function *kernel,
                        struct sg_regions *regions);

/** The tests at a kernel's start that send threads to its end; what they test can be computed anew. */
#define SG_GUARDS_MAX 4u
struct sg_guards {
    uint32_t count;
    uint32_t insns[SG_GUARDS_MAX];
};
/**
 * Is it worth it to ask beforehand which tests at the start of a kernel in block form hold for a whole row?
 */
bool sg_guards_wanted(const struct sg_ptx_function *kernel);
/** The guards of such a kernel. */
void sg_guards_find(const struct sg_ptx_function *kernel, const uint32_t *rematerialised,
                    struct sg_guards *guards);

static inline bool sg_regions_has(const uint64_t *set, uint32_t reg)
{
    return set[reg / 64] >> reg % 64 & 1;
}

/** `to` gets all of `from`, both of `n` words; true if that is news. */
static inline bool sg_regions_merge(uint64_t *to, const uint64_t *from, uint32_t n)
{
    bool changed = false;
    for (uint32_t i = 0; i < n; i++) {
        changed |= (from[i] & ~to[i]) != 0;
        to[i] |= from[i];
    }
    return changed;
}

/* affine.c: parts of sg_regions_compute, in this order, once columns have their places */
/** Where each region leads if it can lead to one only (`next`). */
void sg_regions_find_nexts(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions);
/** Which registers that a region loads are to be affine along a row: none where a kernel has too many regions. */
void sg_regions_find_affine(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions);
/** What is affine at the end of some turn, as far as there is place. */
void sg_regions_find_kept(struct sg_arena *arena, const struct sg_ptx_function *kernel,
                          struct sg_regions *regions);

#endif
