/*
 * protocol_read.c - copies to the host.
 *
 *   deferred read  page-locked memory of an asynchronous call is filled when the stream gets there
 *                  (rgCopyOutDeferred, rgBoxOutDeferred)
 *   reply          the call waits, and the data is the bulk part of its reply (rgCopyOut)
 *   read           the call waits, and the worker sends the data ahead of the reply, in parts or with
 *                  one-sided writes, or in the reply all the same, as it likes (rgCopyOut, rgBoxOut)
 */
#include "client/core/call.h"
#include "client/core/optimisations.h"
#include "client/timeline/timeline.h"
#include "client/transfer/protocol.h"
#include "client/transfer/transfer.h"
#include "common/sync/chunk_size.h"
#include "generated/client/operations.h"

static CUresult wait_for(const struct rg_copy *copy, uint64_t transfer)
{
    const struct rg_region *from = &copy->from, *to = &copy->to;
    CUresult status;
    if (rg_region_is_rows(from)) {
        struct rg_call reply;
        status = rg_op_rgCopyOut(from->address, from->pitch, from->width, from->height, copy->stream,
                                 transfer, &reply, rg_region_size(to) <= RG_BULK_MAX ? to : NULL);
        rg_call_done(&reply);
    } else {
        const CUDA_MEMCPY3D box = rg_copy_box(NULL, from);
        status = rg_op_rgBoxOut(&box, from->array, copy->stream, transfer);
    }
    if (status == CUDA_SUCCESS)
        rg_timeline_waited(copy->stream);
    return status;
}

/* --- reply --- */

static bool reply_applies(const struct rg_copy *copy)
{
    const size_t most = rg_optimise[RG_OPT_CHUNKS] ? RG_CHUNK_SIZE_LEAST : RG_BULK_MAX;
    return rg_region_is_rows(&copy->from) && rg_region_size(&copy->to) <= most &&
           !rg_read_gains(copy->session, &copy->to);
}

static CUresult reply_start(const struct rg_copy *copy)
{
    return wait_for(copy, 0);
}

const struct rg_protocol rg_protocol_reply = {
    .name = "reply", .to_host = true, .applies = reply_applies, .start = reply_start};

/* --- read --- */

static CUresult read_start(const struct rg_copy *copy)
{
    const uint64_t id = rg_read_create(copy->session, &copy->to, false);
    const CUresult status = id ? wait_for(copy, id) : CUDA_ERROR_OUT_OF_MEMORY;
    if (id)
        rg_read_destroy(id);
    return status;
}

const struct rg_protocol rg_protocol_read = {.name = "read", .to_host = true, .start = read_start};

/* --- deferred read --- */

static bool deferred_applies(const struct rg_copy *copy)
{
    return copy->deferrable && rg_optimise[RG_OPT_DEFERRED_COPIES];
}

static CUresult deferred_start(const struct rg_copy *copy)
{
    const uint64_t id = rg_read_create(copy->session, &copy->to, true);
    const CUresult status =
        id ? rg_copy_put_deferred_read(&copy->from, copy->stream, id) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status != CUDA_SUCCESS && id)
        rg_transfer_cancel(id);
    return status;
}

const struct rg_protocol rg_protocol_deferred_read = {
    .name = "deferred read", .to_host = true, .applies = deferred_applies, .start = deferred_start};
