/* arena.c - memory of one decision. */
#include "pool/schedule/arena.h"

#include <stdint.h>
#include <stdlib.h>

#define BLOCK_SIZE ((size_t)64 << 10)
#define ALIGNMENT  16u

struct rg_pool_arena_block {
    struct rg_pool_arena_block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) unsigned char data[];
};

void *rg_pool_arena_take(struct rg_pool_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    struct rg_pool_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        const size_t room = bytes > BLOCK_SIZE ? bytes : BLOCK_SIZE;
        block = calloc(1, sizeof *block + room);
        if (!block)
            return NULL;
        block->size = room;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *piece = block->data + block->used;
    block->used += bytes;
    return piece;
}

void rg_pool_arena_clear(struct rg_pool_arena *arena)
{
    while (arena->blocks) {
        struct rg_pool_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}
