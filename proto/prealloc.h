/* prealloc.h - memory made ready before it is asked for (server/prealloc/slabs.h): what both sides know of it. */
#ifndef RG_PROTO_PREALLOC_H
#define RG_PROTO_PREALLOC_H

#include "common/base/limits.h"

#include <assert.h>
#include <stdint.h>

enum rg_prealloc_kind {
    RG_PREALLOC_LINEAR,  /* cuMemAlloc: size */
    RG_PREALLOC_PITCHED, /* cuMemAllocPitch: size is the width; height, element */
    RG_PREALLOC_ORDERED, /* cuMemAllocAsync, or with a pool cuMemAllocFromPoolAsync: size; stream, pool */
};

/** With RG_NOTICE_PREALLOC. */
struct rg_prealloc_block {
    uint64_t address;
    uint64_t pitch; /* of pitched memory */
};
static_assert(sizeof(struct rg_prealloc_block) == 16, "wire layout");

/** With rgMemPreallocHints, for each slab; the answer has a number (8 bytes), and so many blocks, for each. */
struct rg_prealloc_hint {
    uint64_t slab_id;
    uint64_t size, height;
    uint32_t kind, element; /* not RG_PREALLOC_ORDERED */
    uint32_t count;
    uint32_t reserved;
};
static_assert(sizeof(struct rg_prealloc_hint) == 40, "wire layout");
#define RG_PREALLOC_HINTS 64u /* at most, in one message */

/** With RG_ANSWER_RECLAIMED. */
struct rg_prealloc_return {
    uint64_t slab_id;
    uint64_t address;
};
static_assert(sizeof(struct rg_prealloc_return) == 16, "wire layout");

#endif
