/*
 * protocol_eager.c - data to the device leaves with its records, chunk by chunk, as long as there is credit
 * for it.
 *
 * Each record (rgCopyIn, rgBoxIn) is of a box of the copy and has the box's data as its bulk part; how that
 * travels, with the message or out of band, on one connection or several, or written into memory that the
 * worker has advertised, is the transport's. Without credit, what is left is a rendezvous.
 */
#include "client/core/call.h"
#include "client/transfer/chunk.h"
#include "client/transfer/credit.h"
#include "client/transfer/protocol.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "generated/client/operations.h"

#include <stdint.h>
#include <stdlib.h>

enum { ROWS = 512 }; /* iovecs of one message */

/* Bytes of the next record, at most: rows that have gaps are an iovec each. */
static size_t chunk_of(const struct rg_copy *copy)
{
    const size_t chunk = rg_chunk(copy->session);
    const bool by_rows = !rg_region_is_gapless(&copy->from) && chunk / copy->from.width > ROWS;
    return by_rows ? ROWS * copy->from.width : chunk;
}

/*
 * Sends the data of `to`, which begins at packed byte `offset` of the copy. Other streams are ordered after
 * the end of a synchronous copy that nobody waits for; not after its beginning, as it may yet turn out that
 * the call has to wait for its stream.
 */
static CUresult send(const struct rg_copy *copy, const struct rg_region *to, size_t offset,
                     struct rg_lease *lease)
{
    const size_t size = rg_region_size(to);
    const bool gapless = rg_region_is_gapless(&copy->from);
    struct iovec line; /* rows are too many for a little stack */
    RG_CLEANUP_FREE struct iovec *several = gapless ? NULL : malloc(ROWS * sizeof *several);
    if (!gapless && !several) {
        rg_credit_return(copy->session, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct iovec *rows = gapless ? &line : several;
    size_t covered;
    const int n = rg_region_iovec(&copy->from, offset, size, rows, gapless ? 1 : ROWS, &covered);
    struct rg_bulk bulk = {.data = rows, .n = n, .lease = lease};
    const bool ends = offset + size == rg_region_size(&copy->to),
               synchronous = ends && !copy->asynchronous && !copy->stays;
    const uint64_t began = rg_now_ns();
    CUresult status;
    if (rg_region_is_rows(to)) {
        status =
            rg_op_rgCopyIn(to->address, to->pitch, to->width, to->height, copy->stream, synchronous, &bulk);
    } else {
        const CUDA_MEMCPY3D box = rg_copy_box(to, NULL);
        status = rg_op_rgBoxIn(&box, to->array, copy->stream, synchronous, &bulk);
    }
    if (!bulk.posted)
        rg_credit_return(copy->session, size);
    rg_chunk_size_sent(&copy->session->chunk, covered, rg_now_ns() - began);
    return status;
}

static CUresult start(const struct rg_copy *copy)
{
    struct rg_lease lease = {0};
    CUresult status = CUDA_SUCCESS;
    const size_t total = rg_region_size(&copy->to);
    for (size_t offset = 0, size; offset < total && status == CUDA_SUCCESS; offset += size) {
        const struct rg_region to = rg_region_cut(&copy->to, offset, chunk_of(copy));
        size = rg_region_size(&to);
        if (!rg_credit_take(copy->session, size)) {
            status = rg_protocol_rendezvous_rest(copy, offset);
            break;
        }
        status = send(copy, &to, offset, copy->deferrable ? &rg_lease_until_reply : &lease);
    }
    if (lease.conn)
        rg_call_end_lease(copy->session, &lease);
    return status;
}

const struct rg_protocol rg_protocol_eager = {.name = "eager", .start = start};
