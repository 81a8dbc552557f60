/* ahead.h - memory made ready before it is asked for (server/ahead.h): what both sides know of it. */
#ifndef RG_PROTO_AHEAD_H
#define RG_PROTO_AHEAD_H

#include <assert.h>
#include <stdint.h>

#define RG_AHEAD_MAX 32u /* blocks ready of one kind */

enum rg_ahead_kind {
    RG_AHEAD_LINEAR,  /* cuMemAlloc: size */
    RG_AHEAD_PITCHED, /* cuMemAllocPitch: size is the width; height, element */
    RG_AHEAD_ORDERED, /* cuMemAllocAsync, or with a pool cuMemAllocFromPoolAsync: size; stream, pool */
};

/** With RG_NOTICE_AHEAD. */
struct rg_ahead_block {
    uint64_t address;
    uint64_t pitch; /* of pitched memory */
};
static_assert(sizeof(struct rg_ahead_block) == 16, "wire layout");

/** With RG_ANSWER_RECALLED. */
struct rg_ahead_return {
    uint64_t ticket;
    uint64_t address;
};
static_assert(sizeof(struct rg_ahead_return) == 16, "wire layout");

#endif
