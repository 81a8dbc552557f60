/*
 * buffer.h - page-locked memory that the data of operations goes through.
 *
 * Of a clique, and under its lock. None is freed before the clique ends, since that could wait for streams.
 */
#ifndef SG_NCCL_BUFFER_H
#define SG_NCCL_BUFFER_H

#include <stddef.h>

struct sg_buffer {
    struct sg_buffer *next; /* of those that nobody uses */
    unsigned char *memory;
    size_t size;
    unsigned users; /* operations */
};

/** Of at least `size` bytes, for one user: from `spare`, or new. NULL: there is no memory. */
struct sg_buffer *sg_buffer_get(struct sg_buffer **spare, size_t size);
/** A user needs it no more; the last one's goes to `spare`. NULL is fine. */
void sg_buffer_put(struct sg_buffer **spare, struct sg_buffer *buffer);
/** Frees those that nobody uses. */
void sg_buffers_fini(struct sg_buffer **spare);

#endif
