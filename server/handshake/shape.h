/*
 * shape.h - what a worker has to know of its client before it loads the driver: nothing of it can be changed afterwards.
 *
 * The client's hello says it. A worker that is kept warm (warm.h) is made for a shape that is expected; a client whose hello says
 * another gets a worker of its own.
 */
#ifndef RG_SERVER_HANDSHAKE_SHAPE_H
#define RG_SERVER_HANDSHAKE_SHAPE_H

#include "proto/control/control.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_shape {
    uint64_t window_start,
        window_size;       /* addresses for device memory (address_space.h); size 0: none were named */
    uint32_t address_part; /* then this part of the address space */
    uint32_t capability;   /* that a software device reports, times 10; 0: its own choice */
};

static inline struct rg_shape rg_shape_of(const struct rg_client_hello *hello)
{
    return (struct rg_shape){.window_start = hello->window_start,
                             .window_size = hello->window_size,
                             .address_part = hello->address_part,
                             .capability = hello->capability};
}

static inline bool rg_shape_is(const struct rg_shape *a, const struct rg_shape *b)
{
    return a->window_start == b->window_start && a->window_size == b->window_size &&
           a->address_part == b->address_part && a->capability == b->capability;
}

#endif
