/*
 * protocol_rendezvous.c - a copy to the device goes without its data (rgCopyInDeferred, rgBoxInDeferred), which the
 * worker asks for when the stream is there (rendezvous.c): where something queued may still write the source,
 * and where there is no credit.
 *
 * A call whose source must not be read later waits for its stream, as with a driver that has no memory left
 * to keep data aside.
 */
#include "client/transfer/protocol.h"
#include "client/transfer/transfer.h"
#include "generated/client/operations.h"

/* A box of the copy. *id: what it is registered by. */
static CUresult put(const struct rg_copy *copy, size_t offset, const struct rg_region *to, uint64_t *id)
{
    const struct rg_region from = rg_region_cut(&copy->from, offset, SIZE_MAX);
    *id = rg_rendezvous_create(copy->session, &from);
    CUresult status = *id ? rg_copy_put_rendezvous(to, copy->stream, *id) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status != CUDA_SUCCESS && *id)
        rg_transfer_cancel(*id);
    return status;
}

CUresult rg_protocol_rendezvous_rest(const struct rg_copy *copy, size_t offset)
{
    CUresult status = CUDA_SUCCESS;
    uint64_t ids[3] = {0}; /* the rest of a row, of a slice, and of the slices */
    unsigned n = 0;
    bool any = false;
    for (const size_t total = rg_region_size(&copy->to); offset < total && status == CUDA_SUCCESS;) {
        const struct rg_region to = rg_region_cut(&copy->to, offset, SIZE_MAX);
        status = put(copy, offset, &to, &ids[n++]);
        any |= status == CUDA_SUCCESS;
        offset += rg_region_size(&to);
    }
    if (!any || copy->deferrable)
        return status;
    const CUresult waited = rg_op_cuStreamSynchronize(copy->stream);
    while (n)
        rg_transfer_revoke(ids[--n]);
    return status == CUDA_SUCCESS ? waited : status;
}

static bool applies(const struct rg_copy *copy)
{
    return copy->deferrable && rg_transfers_may_write_host();
}

static CUresult start(const struct rg_copy *copy)
{
    return rg_protocol_rendezvous_rest(copy, 0);
}

const struct rg_protocol rg_protocol_rendezvous = {.name = "rendezvous", .applies = applies, .start = start};
