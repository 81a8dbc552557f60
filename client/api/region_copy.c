/*
 * region_copy.c - what all copies of the API and of graphs have in common (region_copy.h).
 *
 * A copy on the device is one call, or a copy between servers. A copy between host and device goes, in its
 * stream's order and context, to the server whose memory that is (rg_proxy_begin), by a protocol
 * (client/transfer/protocol.h). Host → device has been read when the call returns, as CUDA promises for
 * pageable memory; device → host has arrived then. Page-locked memory of an asynchronous copy may be used
 * later, when the stream gets there, and so may all host memory of a graph's copies.
 *
 * Memory that host and device share must not be touched by a thread that holds a lock: it goes by way of
 * memory of our own.
 *
 * Any thread; no locks held.
 */
#include "client/api/region_copy.h"

#include "client/core/address_map.h"
#include "client/core/home.h"
#include "client/managed/pinned.h"
#include "client/managed/protected.h"
#include "client/managed/unified.h"
#include "client/multiserver/peer_copy.h"
#include "client/multiserver/proxy.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define EARLY_MOST                                                                                           \
    ((size_t)64 << 10) /* bytes of pageable memory that may be on their way when a synchronous copy returns */

/* Whether a device's end is there, and may be written or read; page-locked memory that the device does not know yet is mapped. */
static bool is_on_device(const struct rg_region *region, bool write)
{
    const bool rows = region->depth == 1;
    const uint64_t extent = rows ? 0 : rg_region_extent(region);
    return region->kind == RG_REGION_ARRAY ||
           rg_pinned_on_device(region->address, rows ? region->pitch : extent, rows ? region->width : extent,
                               rows ? region->height : 1, write);
}

static uint64_t home_of(const struct rg_region *region)
{
    return region->kind == RG_REGION_ARRAY ? rg_home_of(RG_KIND_ARRAY, (uint64_t)region->array)
                                           : rg_home_of_address(region->address);
}

/* --- on the host ---------------------------------------------------------------------------------------- */

static void move_now(void *argument)
{
    struct rg_copy *copy = argument;
    rg_region_move(&copy->to, &copy->from);
    free(copy);
}

static CUresult host_to_host(const struct rg_copy *copy)
{
    if (!copy->in_order) {
        RG_TRY(rg_op_cuStreamSynchronize(copy->stream));
        rg_region_move(&copy->to, &copy->from);
        return CUDA_SUCCESS;
    }
    struct rg_copy *later = malloc(sizeof *later);
    if (!later)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *later = *copy;
    const CUresult status = cuLaunchHostFunc(copy->stream, move_now, later);
    if (status != CUDA_SUCCESS)
        free(later);
    return status;
}

/* --- on the device -------------------------------------------------------------------------------------- */

/* The record of a copy on one server. */
static CUresult put_on_device(const struct rg_copy *copy)
{
    const struct rg_region *to = &copy->to, *from = &copy->from;
    if (!rg_region_is_rows(to) || !rg_region_is_rows(from)) {
        const CUDA_MEMCPY3D box = rg_copy_box(to, from);
        return rg_op_rgBoxCopy(&box, to->array, from->array, copy->stream, copy->asynchronous);
    }
    if (to->height == 1)
        return copy->asynchronous || copy->stream
                   ? rg_op_cuMemcpyDtoDAsync_v2(to->address, from->address, to->width, copy->stream)
                   : rg_op_cuMemcpyDtoD_v2(to->address, from->address, to->width);
    return rg_op_rgCopy2D(to->address, to->pitch, from->address, from->pitch, to->width, to->height,
                          copy->stream, copy->asynchronous);
}

/* Both ends are of one server; where the stream is of another, by one of that server's in its order. */
static CUresult on_one_server(const struct rg_copy *copy, uint64_t home)
{
    struct rg_copy own = *copy;
    struct rg_proxy proxy;
    RG_TRY(rg_proxy_begin(&proxy, home, copy->stream, !copy->asynchronous));
    own.stream = proxy.stream;
    CUresult status = put_on_device(&own);
    if (status == CUDA_SUCCESS && proxy.context && proxy.synchronous)
        status = rg_op_cuStreamSynchronize(proxy.stream); /* what comes next is not behind it by itself */
    return rg_proxy_end(&proxy, status);
}

static CUresult device_to_device(const struct rg_copy *copy)
{
    if (!is_on_device(&copy->to, true) || !is_on_device(&copy->from, false))
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_several_servers()) {
        const uint64_t to_home = home_of(&copy->to), from_home = home_of(&copy->from);
        return rg_homes_differ(to_home, from_home) ? rg_peer_copy(copy, to_home, from_home)
                                                   : on_one_server(copy, to_home);
    }
    return rg_pinned_copied(put_on_device(copy), copy->to.address, copy->from.address, copy->stream,
                            copy->asynchronous);
}

/* --- between host and device ---------------------------------------------------------------------------- */

/* Whether the host's end may be used after the call, which is asynchronous, has returned. */
static bool is_deferrable(const struct rg_copy *copy, const struct rg_region *host)
{
    struct rg_range range;
    return copy->in_order || (rg_map_find(host->address, &range) && !rg_range_on_device(&range) &&
                              rg_region_extent(host) <= range.size - (host->address - range.start));
}

/* The device may come to know addresses of page-locked memory by what is copied to it. */
static CUresult map_addresses_in(const struct rg_region *host)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < host->height * host->depth && status == CUDA_SUCCESS; i++) {
        struct iovec row;
        size_t covered;
        rg_region_iovec(host, i * host->width, host->width, &row, 1, &covered);
        status = rg_pinned_scan(row.iov_base, row.iov_len);
    }
    return status;
}

/* By the CUDA runtime's manual, "API synchronization behavior". */
static bool may_return_early(const struct rg_region *host)
{
    struct rg_range range;
    return rg_region_size(host) <= EARLY_MOST && !rg_map_find(host->address, &range);
}

/* Moves the data, by way of memory of our own where host and device share pages. */
static CUresult move_data(struct rg_copy *copy, struct rg_region *host, bool to_host)
{
    const struct rg_region users = *host;
    const bool shared = rg_unified_any() && rg_unified_meets(host->address, rg_region_extent(host));
    if (shared && !rg_region_allocate(&users, host))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (shared && !to_host)
        rg_region_move(host, &users);
    const bool forbidden = !shared && rg_pinned_any_unmapped() && rg_pinned_forbid_mapping();
    CUresult status = CUDA_SUCCESS;
    copy->deferrable = copy->asynchronous && !shared && is_deferrable(copy, host);
    if (!to_host && !copy->asynchronous) {
        /* what the stream does first may write the source, or memory that it shares with the host */
        if (rg_transfers_may_write_host() || (rg_unified_any() && !may_return_early(&users)))
            status = rg_timeline_wait_stream(copy->stream);
        copy->stays = rg_timeline_blocks_on_stream(copy->stream);
    }
    if (status == CUDA_SUCCESS)
        status = rg_protocol_choose(copy)->start(copy);
    if (status == CUDA_SUCCESS && !to_host && !copy->asynchronous && !copy->stays &&
        !may_return_early(&users))
        copy->stays = !rg_timeline_synchronous(copy->stream);
    if (forbidden)
        rg_pinned_allow_mapping();
    if (shared && to_host && status == CUDA_SUCCESS)
        rg_region_move(&users, host);
    if (shared)
        rg_region_free(host);
    return status;
}

/* In the stream's order and context, also where the memory is of another server than the stream. */
static CUresult with_host(struct rg_copy *copy, bool to_host)
{
    struct rg_region *const host = to_host ? &copy->to : &copy->from, *const device =
                                                                          to_host ? &copy->from : &copy->to;
    struct rg_proxy proxy;
    if (!copy->in_order && (to_host || !rg_protocol_inline.applies(copy))) /* which this thread reads */
        rg_protected_open(host, to_host);
    CUresult status = CUDA_SUCCESS;
    RG_TRY(rg_proxy_begin(&proxy, rg_several_servers() ? home_of(device) : 0, copy->stream,
                          !copy->asynchronous));
    copy->stream = proxy.stream;
    copy->session = rg_session_current();
    if (!is_on_device(device, !to_host))
        status = CUDA_ERROR_INVALID_VALUE;
    else if (!to_host && device->kind == RG_REGION_DEVICE && rg_pinned_any_unmapped() &&
             !copy->session->guest) /* where no kernel of the program's is */
        status = map_addresses_in(host);
    if (status == CUDA_SUCCESS)
        status = move_data(copy, host, to_host);
    if (status == CUDA_SUCCESS && copy->stays)
        status = rg_timeline_wait_stream(copy->stream);
    else if (!to_host)
        status = rg_pinned_copied(status, device->address, 0, copy->stream, copy->asynchronous);
    return rg_proxy_end(&proxy, status);
}

CUresult rg_region_copy(struct rg_copy *copy)
{
    const bool to_host = copy->to.kind == RG_REGION_HOST, from_host = copy->from.kind == RG_REGION_HOST;
    if (!rg_region_is_line(&copy->to))
        rg_region_fold(&copy->to, &copy->from);
    return to_host && from_host   ? host_to_host(copy)
           : to_host || from_host ? with_host(copy, to_host)
                                  : device_to_device(copy);
}
