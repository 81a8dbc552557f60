/* chunk_size.c - see chunk_size.h. */
#include "common/sync/chunk_size.h"

#include "common/base/limits.h"

enum { PIECE_NS = 1000000, STEP = 64 << 10 };
static const struct rg_adaptive_range pieces = {
    .least = RG_CHUNK_SIZE_LEAST, .first = 512 << 10, .most = RG_BULK_MAX};

size_t rg_chunk_size_get(const struct rg_chunk_size *chunk)
{
    return rg_adaptive_get(&chunk->piece, &pieces);
}

void rg_chunk_size_sent(struct rg_chunk_size *chunk, size_t size, uint64_t ns)
{
    if (size >= rg_chunk_size_get(chunk) / 2)
        rg_adaptive_follow(&chunk->piece, &pieces, (uint64_t)size * PIECE_NS / (ns ? ns : 1) / STEP * STEP);
}
