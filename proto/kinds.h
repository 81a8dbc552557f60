/*
 * kinds.h - the kinds of objects that handles name, and how a handle is made up.
 *
 * A handle (what the application sees as CUstream, CUevent, …, and the id on the wire) is chosen by the client:
 *   bits 63..47  zero, so that it looks like a user-space pointer
 *   bits 46..42  the kind plus 1
 *   bits 41..26  generation: raised when the slot is used again, so that stale handles are known as such
 *   bits 25..4   index into the tables of both sides (RG_OBJECTS_MAX)
 *   bits 3..0    zero
 * A client uses the index of a context, stream, event or linker state again only when it has sent the record that ends that
 * object or its context: a server keeps state for it until then. Of others only the name is lost.
 * No handle is ever one of the small numbers that CUDA gives a meaning (CU_STREAM_LEGACY …).
 */
#ifndef RG_PROTO_KINDS_H
#define RG_PROTO_KINDS_H

#include "common/base/limits.h"

#include <assert.h>
#include <stdint.h>

enum rg_kind {
    RG_KIND_CONTEXT,
    RG_KIND_STREAM,
    RG_KIND_EVENT,
    RG_KIND_MODULE,
    RG_KIND_LIBRARY,
    RG_KIND_KERNEL,
    RG_KIND_FUNCTION,
    RG_KIND_POOL,
    RG_KIND_LINK,
    RG_KIND_ALLOCATION, /* CUmemGenericAllocationHandle */
    RG_KIND_ARRAY,
    RG_KIND_GREEN,     /* CUgreenCtx */
    RG_KIND_RESOURCES, /* CUdevResourceDesc */
    RG_KIND_GRAPH,     /* a graph that the worker launches: CUgraphExec */
    RG_KIND_MIPMAP,    /* CUmipmappedArray */
    RG_KIND_TEXREF,
    RG_KIND_SURFREF,
    RG_KIND_COUNT
};

#define RG_HANDLE_INDEX_BITS 22
static_assert(RG_OBJECTS_MAX <= 1u << RG_HANDLE_INDEX_BITS, "indices must fit in a handle");

static inline uint64_t rg_handle_make(enum rg_kind kind, uint32_t index, uint32_t generation)
{
    return (uint64_t)(kind + 1) << 42 | (uint64_t)(generation & 0xffffu) << 26 | (uint64_t)index << 4;
}
static inline uint32_t rg_handle_index(uint64_t handle)
{
    return (uint32_t)(handle >> 4) & ((1u << RG_HANDLE_INDEX_BITS) - 1);
}
/** The kind a handle claims, or RG_KIND_COUNT and above for none. */
static inline unsigned rg_handle_kind(uint64_t handle)
{
    return (handle >> 47) != 0 || (handle & 15) != 0 ? RG_KIND_COUNT : (unsigned)((handle >> 42) & 31) - 1u;
}

#endif
