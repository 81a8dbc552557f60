/*
 * warp_sync.h - programs that rely on the lanes of a warp running instruction by instruction together, as
 * they did before Volta and still mostly do: shared memory that is volatile is written and read by all lanes
 * without any barrier, and what all have loaded from one place is overwritten by all.
 */
#ifndef SG_COMPILER_UNIFORMITY_WARP_SYNC_H
#define SG_COMPILER_UNIFORMITY_WARP_SYNC_H

#include "softgpu/compiler/ir/ir.h"

/**
 * Marks (insn->aligns) the accesses that have to wait until the other lanes are as far: to volatile shared
 * memory a store behind loads, and a load behind stores; a store of a constant behind a load from the same
 * place. Once a function, before its loops are analysed.
 */
void sg_analyse_warp_sync(struct sg_arena *arena, struct sg_ptx_function *function);
/** Marks loads of what neighbours in the warp have stored without any barrier between; after the above. */
void sg_analyse_neighbours(struct sg_arena *arena, struct sg_ptx_function *function);

#endif
