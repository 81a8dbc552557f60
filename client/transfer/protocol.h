/*
 * protocol.h - the ways in which the data of a copy between host and device moves. See README.md.
 *
 * A protocol is chosen once for each copy, by the first row of the table that applies. Its `start` puts
 * records into the stream; what happens behind the call's back is the progress of what it has registered
 * (registry.h).
 */
#ifndef RG_CLIENT_TRANSFER_PROTOCOL_H
#define RG_CLIENT_TRANSFER_PROTOCOL_H

#include "client/core/region.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_session;

/** A copy; both ends have the same extents. */
struct rg_copy {
    struct rg_region to, from;
    CUstream stream;
    bool asynchronous;
    bool in_order; /* of graphs: the host's ends, whatever memory, are used when the stream gets there */
    /* of a copy that a protocol moves */
    struct rg_session *session;
    bool deferrable; /* the host's end may be read or written after the call has returned */
    bool stays;      /* to the device: the call waits until it is done */
};

struct rg_protocol {
    const char *name;
    bool to_host;
    /** The rows before this one do not apply. NULL: always. */
    bool (*applies)(const struct rg_copy *copy);
    /**
     * Puts the copy into its stream. When it returns, the memory is the application's, unless the copy is
     * deferrable.
     */
    CUresult (*start)(const struct rg_copy *copy);
};

/** The protocol of a copy between host and device. */
const struct rg_protocol *rg_protocol_choose(const struct rg_copy *copy);

/* The rows of the table, one file each; the order is protocol.c's. */
extern const struct rg_protocol rg_protocol_rendezvous, rg_protocol_inline, rg_protocol_eager;
extern const struct rg_protocol rg_protocol_deferred_read, rg_protocol_reply, rg_protocol_read;

/** The rendezvous of what is left of a copy from packed byte `offset` on. */
CUresult rg_protocol_rendezvous_rest(const struct rg_copy *copy, size_t offset);

/** Whether a device's end is rows of memory, which have records of their own; everything else is a box. */
static inline bool rg_region_is_rows(const struct rg_region *region)
{
    return region->kind == RG_REGION_DEVICE && region->depth == 1;
}
/** The box that records carry. An end that is not on the device is NULL. */
CUDA_MEMCPY3D rg_copy_box(const struct rg_region *to, const struct rg_region *from);
/** Puts a copy of `to`, or `from`, the device's end, into a stream; the host's end is the transfer. */
CUresult rg_copy_put_rendezvous(const struct rg_region *to, CUstream stream, uint64_t transfer);
CUresult rg_copy_put_deferred_read(const struct rg_region *from, CUstream stream, uint64_t transfer);

#endif
