/* chunk_size.c - see chunk_size.h. */
#include "common/sync/chunk_size.h"

#include "common/base/limits.h"

enum { PIECE_NS = 1000000, FIRST_PIECE = 512 << 10, STEP = 64 << 10 };

size_t rg_chunk_size_get(const struct rg_chunk_size *pace)
{
    const size_t piece = atomic_load_explicit(&pace->piece, memory_order_relaxed);
    return piece ? piece : FIRST_PIECE;
}

void rg_chunk_size_sent(struct rg_chunk_size *pace, size_t size, uint64_t ns)
{
    const size_t now = rg_chunk_size_get(pace);
    if (size < now / 2)
        return;
    const uint64_t fits = (uint64_t)size * PIECE_NS / (ns ? ns : 1) / STEP * STEP;
    size_t next = fits < 2 * now ? (size_t)fits : 2 * now;
    if (next < RG_CHUNK_SIZE_LEAST)
        next = RG_CHUNK_SIZE_LEAST;
    if (next > RG_BULK_MAX)
        next = RG_BULK_MAX;
    if (next != now)
        atomic_store_explicit(&pace->piece, next, memory_order_relaxed);
}
