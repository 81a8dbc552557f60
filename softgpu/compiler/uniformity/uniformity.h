/*
 * uniformity.h - how values depend on the thread's place in its row, and which loops the threads of a block
 * had better go through together.
 *
 * All of it is a guess that only speed depends on: a block's threads may do as they like
 * (exec/lanes/lanes.c), and code that takes a value for regular checks first that it is (frame.c).
 */
#ifndef SG_COMPILER_UNIFORMITY_UNIFORMITY_H
#define SG_COMPILER_UNIFORMITY_UNIFORMITY_H

#include "softgpu/compiler/analysis/analysis.h"

/** A register's value in the threads of one row or warp (they differ in %tid.x alone). */
struct sg_uniformity {
    enum { SG_UNIFORMITY_UNKNOWN, SG_UNIFORMITY_AFFINE, SG_UNIFORMITY_DIVERGENT } kind;
    /*
     * of a divergent one: it changes at few places of a row, as comparisons and quotients of affine values do
     */
    bool piecewise;
    int64_t step;  /* affine: from each thread to the next */
    uint64_t bits; /* divergent, among a warp: the only ones in which lanes differ; 0: unknown */
};

/** Of the threads of a row, or of those of one warp, in which %tid.x / 32 is the same for all. */
enum sg_uniformity_among { SG_AMONG_ROW, SG_AMONG_WARP };

/** By register; memory of the arena. */
struct sg_uniformity *sg_uniformity_compute(struct sg_arena *arena, const struct sg_ptx_function *function,
                                            enum sg_uniformity_among among);
/** Of an operand, from that of the registers. */
struct sg_uniformity sg_uniformity_of(const struct sg_uniformity *uniformities,
                                      const struct sg_operand *operand);
/**
 * Marks the jumps back (insn->passes) of loops whose turns the threads of a block should take together,
 * because they all go round about as often and their accesses to memory lie side by side.
 */
void sg_analyse_lockstep(struct sg_arena *arena, struct sg_ptx_function *kernel);

/*
 * --- warp_sync.c and neighbours.c ---
 *
 * Programs rely on the lanes of a warp running instruction by instruction together, as they did before Volta
 * and still mostly do: shared memory that is volatile is written and read by all lanes without any barrier,
 * and what all have loaded from one place is overwritten by all.
 */

/**
 * Marks (insn->aligns) the accesses that have to wait until the other lanes are as far: to volatile shared
 * memory a store behind loads, and a load behind stores; a store of a constant behind a load from the same
 * place. Once a function, before its loops are analysed.
 */
void sg_analyse_warp_sync(struct sg_arena *arena, struct sg_ptx_function *function);
/** Marks loads of what neighbours in the warp have stored without any barrier between; after the above. */
void sg_analyse_neighbours(struct sg_arena *arena, struct sg_ptx_function *function);

#endif
