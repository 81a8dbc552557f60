/*
 * chunk_size.h - how much bulk data to send at a time, so that what others send does not wait for long behind it.
 *
 * A piece is what the wire takes in about a millisecond, as the last pieces showed: all that a message may have on a fast
 * link, little on a slow one. Where the kernel takes data faster than the wire, the first pieces show nothing of it; so a
 * piece is at most twice as large as the one before, and the kernel's queue fills before they are large.
 *
 * Threads: any; several may send by one struct rg_chunk_size, which then shows what each of them gets.
 */
#ifndef RG_COMMON_SYNC_CHUNK_SIZE_H
#define RG_COMMON_SYNC_CHUNK_SIZE_H

#include "common/sync/adaptive.h"

#include <stddef.h>
#include <stdint.h>

#define RG_CHUNK_SIZE_LEAST (128u << 10) /* bytes of the smallest piece */

/** Starts zeroed. */
struct rg_chunk_size {
    struct rg_adaptive piece;
};

/** Bytes to send next at most: RG_CHUNK_SIZE_LEAST to RG_BULK_MAX. */
size_t rg_chunk_size_get(const struct rg_chunk_size *chunk);
/** A piece of `size` bytes took so long to send. Less than half of a piece shows nothing. */
void rg_chunk_size_sent(struct rg_chunk_size *chunk, size_t size, uint64_t ns);

#endif
