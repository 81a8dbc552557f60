/* pace.c - see pace.h. */
#include "common/pace.h"

#include "common/limits.h"

enum { PIECE_NS = 1000000, FIRST_PIECE = 512 << 10, STEP = 64 << 10 };

size_t rg_pace_piece(const struct rg_pace *pace)
{
    const size_t piece = atomic_load_explicit(&pace->piece, memory_order_relaxed);
    return piece ? piece : FIRST_PIECE;
}

void rg_pace_sent(struct rg_pace *pace, size_t size, uint64_t ns)
{
    const size_t now = rg_pace_piece(pace);
    if (size < now / 2)
        return;
    const uint64_t fits = (uint64_t)size * PIECE_NS / (ns ? ns : 1) / STEP * STEP;
    size_t next = fits < 2 * now ? (size_t)fits : 2 * now;
    if (next < RG_PACE_LEAST)
        next = RG_PACE_LEAST;
    if (next > RG_BULK_MAX)
        next = RG_BULK_MAX;
    if (next != now)
        atomic_store_explicit(&pace->piece, next, memory_order_relaxed);
}
