/* ahead.h - memory made ready before it is asked for (server/prealloc/prealloc.h): what both sides know of it. */
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

/** With rgMemForesee, for each ticket; the answer has a number (8 bytes), and so many blocks, for each. */
struct rg_ahead_wish {
    uint64_t ticket;
    uint64_t size, height;
    uint32_t kind, element; /* not RG_AHEAD_ORDERED */
    uint32_t count;
    uint32_t reserved;
};
static_assert(sizeof(struct rg_ahead_wish) == 40, "wire layout");
#define RG_AHEAD_WISHES 64u /* at most, in one message */

/** With RG_ANSWER_RECALLED. */
struct rg_ahead_return {
    uint64_t ticket;
    uint64_t address;
};
static_assert(sizeof(struct rg_ahead_return) == 16, "wire layout");

#endif
