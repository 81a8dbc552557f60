/* arena.h - memory of one decision: taken piece by piece, zeroed, freed as a whole. One thread. */
#ifndef RG_POOL_SCHEDULE_ARENA_H
#define RG_POOL_SCHEDULE_ARENA_H

#include <stddef.h>

struct rg_pool_arena_block;

/** Zeroed, it is empty. */
struct rg_pool_arena {
    struct rg_pool_arena_block *blocks;
};

/** `n` zeroed pieces of `size` bytes, aligned for anything; never NULL for n == 0. NULL: no memory. */
void *rg_pool_arena_take(struct rg_pool_arena *arena, size_t n, size_t size);
void rg_pool_arena_clear(struct rg_pool_arena *arena);

#endif
