/* protocol.c - the table of protocols, and the records they have in common. See protocol.h. */
#include "client/transfer/protocol.h"

#include "generated/client/operations.h"

#include <stddef.h>

static const struct rg_protocol *const protocols[] = {
    &rg_protocol_rendezvous,    &rg_protocol_inline, &rg_protocol_eager, /* to the device */
    &rg_protocol_deferred_read, &rg_protocol_reply,  &rg_protocol_read,
};

const struct rg_protocol *rg_protocol_choose(const struct rg_copy *copy)
{
    const struct rg_protocol *const *row = protocols;
    while ((*row)->to_host != (copy->to.kind == RG_REGION_HOST) ||
           ((*row)->applies && !(*row)->applies(copy)))
        row++; /* the last row of each direction always applies */
    return *row;
}

CUDA_MEMCPY3D rg_copy_box(const struct rg_region *to, const struct rg_region *from)
{
    const struct rg_region *any = to ? to : from;
    CUDA_MEMCPY3D box = {.WidthInBytes = any->width, .Height = any->height, .Depth = any->depth};
    if (from && from->kind == RG_REGION_ARRAY) {
        box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        box.srcXInBytes = from->x;
        box.srcY = from->y;
        box.srcZ = from->z;
    } else if (from) {
        box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        box.srcDevice = from->address;
        box.srcPitch = from->pitch;
        box.srcHeight = from->slice / from->pitch;
    }
    if (to && to->kind == RG_REGION_ARRAY) {
        box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        box.dstXInBytes = to->x;
        box.dstY = to->y;
        box.dstZ = to->z;
    } else if (to) {
        box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        box.dstDevice = to->address;
        box.dstPitch = to->pitch;
        box.dstHeight = to->slice / to->pitch;
    }
    return box;
}

CUresult rg_copy_put_rendezvous(const struct rg_region *to, CUstream stream, uint64_t transfer)
{
    if (rg_region_is_rows(to))
        return rg_op_rgCopyInDeferred(to->address, to->pitch, to->width, to->height, stream, transfer);
    const CUDA_MEMCPY3D box = rg_copy_box(to, NULL);
    return rg_op_rgBoxInDeferred(&box, to->array, stream, transfer);
}

CUresult rg_copy_put_deferred_read(const struct rg_region *from, CUstream stream, uint64_t transfer)
{
    if (rg_region_is_rows(from))
        return rg_op_rgCopyOutDeferred(from->address, from->pitch, from->width, from->height, stream,
                                       transfer);
    const CUDA_MEMCPY3D box = rg_copy_box(NULL, from);
    return rg_op_rgBoxOutDeferred(&box, from->array, stream, transfer);
}
