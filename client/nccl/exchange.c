/*
 * exchange.c - what servers have to say to each other for a group of calls, for whoever records it (client/core/probe.h). See nccl.h.
 *
 * It follows from the calls, as the software device's NCCL executes them (softgpu/nccl/far.h): ranks that are not of this process and
 * this server are taken to be on other servers, one in each process. Any thread.
 */
#include "client/core/probe.h"
#include "client/nccl/nccl.h"
#include "common/cuda/nccl_network.h"

/* Adds what one rank's call takes. */
static void add_call(struct rg_probe_exchange *exchange, const struct rg_nccl_submitted *call)
{
    const struct rg_nccl_call *wire = &call->wire;
    const uint64_t bytes = wire->count * rg_nccl_type_size((unsigned)wire->type),
                   n = (uint64_t)call->comm->ranks, here = rg_nccl_comm_ranks_here(call->comm),
                   far = n > here ? n - here : 0;
    const bool is_peer = wire->peer == (uint64_t)call->comm->rank;
    const uint64_t one = n > 1 ? bytes * far / (n - 1) : 0; /* to or from one other rank, wherever that is */
    uint64_t sent = 0, received = 0, parts = bytes / RG_NCCL_PART;
    bool small = false; /* all goes at once */
    if (!far)
        return;
    switch (wire->kind) {
    case RG_NCCL_ALL_REDUCE:
        small = bytes <= RG_NCCL_SMALL;
        sent = small ? bytes * far : 2 * bytes * far / n;
        received = small ? bytes * far / here : bytes * far / n * (here + 1) / here;
        break;
    case RG_NCCL_ALL_GATHER:
        small = bytes <= RG_NCCL_SMALL;
        sent = bytes * far;
        received = sent / here;
        parts = bytes * n / (2 * RG_NCCL_PART);
        break;
    case RG_NCCL_REDUCE_SCATTER:
        small = bytes * n <= RG_NCCL_SMALL;
        sent = received = bytes * far;
        parts = bytes * n / (2 * RG_NCCL_PART);
        break;
    case RG_NCCL_REDUCE:
        sent = is_peer ? 0 : one;
        received = is_peer ? bytes * far : 0;
        break;
    case RG_NCCL_BROADCAST:
        sent = is_peer ? bytes * far : 0;
        received = is_peer ? 0 : one / here;
        break;
    case RG_NCCL_SEND:
        sent = is_peer ? 0 : one;
        break;
    default:
        received = is_peer ? 0 : one;
    }
    const unsigned ways = small ? 1 : wire->kind == RG_NCCL_ALL_REDUCE ? 3 : 2;
    exchange->sent += sent;
    exchange->received += received;
    exchange->ways = ways > exchange->ways ? ways : exchange->ways;
    exchange->turns += (unsigned)(parts / RG_NCCL_PARTS_AT_ONCE);
}

void rg_nccl_tell_probe(const struct rg_nccl_submitted *calls, size_t n, const struct rg_session *session)
{
    struct rg_probe_exchange exchange = {0};
    if (!RG_PROBED(exchanged))
        return;
    for (size_t i = 0; i < n; i++) {
        ncclComm_t comm = calls[i].comm;
        if (comm->session != session)
            continue;
        add_call(&exchange, &calls[i]);
        if (calls[i].wire.kind == RG_NCCL_SEND || calls[i].wire.kind == RG_NCCL_RECEIVE)
            continue;
        comm->collectives++; /* as many on each rank */
        if (!exchange.key)
            exchange.key = comm->clique->whole << 32 | (comm->collectives & UINT32_MAX);
    }
    if (exchange.ways)
        rg_probe_exchanged(&exchange);
}
