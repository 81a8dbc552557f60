/* buffer.c - see buffer.h. */
#include "softgpu/nccl/buffer.h"

#include "softgpu/nccl/driver.h"

#include <stdlib.h>

#define STEP_LEAST ((size_t)64)

/* Somewhat more than `size`, so that what one operation had is often enough for another. */
static size_t rounded(size_t size)
{
    size_t step = STEP_LEAST;
    while (step < size / 8)
        step *= 2;
    return (size + step - 1) / step * step;
}

/* The smallest that is large enough; NULL: there is none. */
static struct sg_buffer *take_spare(struct sg_buffer **spare, size_t size)
{
    struct sg_buffer **best = NULL;
    for (struct sg_buffer **at = spare; *at && (!best || (*best)->size != size); at = &(*at)->next)
        if ((*at)->size >= size && (!best || (*at)->size < (*best)->size))
            best = at;
    if (!best)
        return NULL;
    struct sg_buffer *taken = *best;
    *best = taken->next;
    return taken;
}

struct sg_buffer *sg_buffer_get(struct sg_buffer **spare, size_t size)
{
    size = rounded(size);
    struct sg_buffer *buffer = take_spare(spare, size);
    if (!buffer) {
        void *memory = NULL;
        buffer = calloc(1, sizeof *buffer);
        if (!buffer ||
            sg_nccl_driver()->p_cuMemHostAlloc(&memory, size, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
            free(buffer);
            return NULL;
        }
        buffer->memory = memory;
        buffer->size = size;
    }
    buffer->next = NULL;
    buffer->users = 1;
    return buffer;
}

void sg_buffer_put(struct sg_buffer **spare, struct sg_buffer *buffer)
{
    if (!buffer || --buffer->users)
        return;
    buffer->next = *spare;
    *spare = buffer;
}

void sg_buffers_fini(struct sg_buffer **spare)
{
    while (*spare) {
        struct sg_buffer *buffer = *spare;
        *spare = buffer->next;
        (void)sg_nccl_driver()->p_cuMemFreeHost(buffer->memory);
        free(buffer);
    }
}
