/*
 * protocol_inline.c - a small line to the device goes in its record (rgCopyInSmall), and waits in the batch
 * as calls do.
 */
#include "client/core/optimisations.h"
#include "client/transfer/protocol.h"
#include "common/base/cleanup.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 8192 }; /* bytes that are cheaper to copy into the batch than to send by themselves */

static bool applies(const struct rg_copy *copy)
{
    return copy->to.kind == RG_REGION_DEVICE && rg_region_is_line(&copy->to) && copy->to.width <= MOST &&
           rg_optimise[RG_OPT_BATCH];
}

static CUresult start(const struct rg_copy *copy)
{
    /*
     * by way of our own memory: reading the application's may fault, which must not happen under the stream
     * lock
     */
    unsigned char few[1024]; /* the stack may be little */
    RG_CLEANUP_FREE unsigned char *many = copy->from.width > sizeof few ? malloc(copy->from.width) : NULL;
    if (copy->from.width > sizeof few && !many)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *data = many ? many : few;
    memcpy(data, (const void *)(uintptr_t)copy->from.address, copy->from.width);
    return rg_op_rgCopyInSmall(copy->to.address, copy->stream, !copy->asynchronous && !copy->stays,
                               copy->to.width, data);
}

const struct rg_protocol rg_protocol_inline = {.name = "inline", .applies = applies, .start = start};
