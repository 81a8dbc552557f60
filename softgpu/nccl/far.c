/*
 * far.c - what ranks of other processes say and send: that they are there, and data, which is received straight into
 * the memory of the operation. What is said of an operation that no member has called yet is kept, so much at most. Run
 * by the readers of links (peer.h), but for sg_far_begin and sg_far_read, which are the stream's.
 *
 * What cannot be, as each process knows it, ends the link; ranks that have called different things fail the clique.
 */
#include "softgpu/nccl/far.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/nccl/list.h"

#include <stdlib.h>

#define READ_NS 1000000 /* how long a stream reads for itself */

/* A far rank has come to an operation that no member has called. */
struct sg_come {
    struct sg_come *next;
    int far;
    struct sg_wire wire;
    size_t size;
    unsigned char data[]; /* of a small operation */
};

static bool agrees(const struct sg_exchange *exchange, const struct sg_wire *wire)
{
    if (exchange->whole != wire->whole || exchange->count != wire->count ||
        (int)exchange->type != wire->dtype)
        return false;
    return exchange->source >= 0 ||
           ((int)exchange->kind == wire->kind && exchange->op == wire->op && exchange->peer == wire->peer);
}

/* Of a small operation: what the rank gives. */
static void take_given(struct sg_exchange *exchange, const struct sg_wire *wire, const void *data,
                       size_t size)
{
    if (exchange->parts[wire->rank] != 1 || size != sg_exchange_given_bytes(exchange)) {
        sg_clique_fail_locked(exchange->clique, ncclInternalError, "rank %d sends what it was not to send",
                              wire->rank);
        return;
    }
    memcpy(sg_exchange_place(exchange, wire->rank), data, size);
    memcpy(exchange->scalars + (size_t)wire->rank * 8, wire->scalar, sizeof wire->scalar);
    exchange->parts[wire->rank] = 0;
    sg_exchange_count(exchange, SG_WORD_GIVEN);
}

static void take_come(struct sg_exchange *exchange, int far, const struct sg_wire *wire, const void *data,
                      size_t size)
{
    if (!agrees(exchange, wire)) {
        sg_exchange_disagree(exchange, wire->rank, wire->kind, wire->whole, wire->dtype, wire->op,
                             wire->peer);
        return;
    }
    sg_exchange_arrives(exchange, wire->rank);
    if (sg_exchange_is_small(exchange))
        take_given(exchange, wire, data, size);
    exchange->far_ready |= UINT64_C(1) << far;
    sg_far_send(exchange);
    sg_exchange_finish(exchange);
}

bool sg_far_comes(struct sg_clique *clique, struct sg_peer *peer, const struct sg_wire *wire,
                  const void *data, size_t size)
{
    const int far = sg_clique_far_of(clique, peer), n = clique->n;
    if (clique->error != ncclSuccess)
        return true;
    if (far < 0 || wire->rank < 0 || wire->rank >= n || clique->at[wire->rank] != far || wire->source < -1 ||
        wire->source >= n || wire->peer < 0 || wire->peer >= n || wire->kind < 0 ||
        wire->kind > SG_NCCL_RECEIVE || size > SG_NCCL_SMALL ||
        (wire->source >= 0 && wire->rank != wire->source && wire->rank != wire->peer)) /* none of its ends */
        return false;
    struct sg_exchange *exchange = sg_exchange_find(clique, wire->source, wire->peer, wire->number);
    if (exchange) {
        take_come(exchange, far, wire, data, size);
        return true;
    }
    struct sg_come *come =
        clique->n_comes < RG_NCCL_EARLY_MAX && clique->come_bytes + size <= RG_NCCL_EARLY_BYTES_MAX
            ? malloc(sizeof *come + size)
            : NULL;
    if (!come) {
        sg_clique_fail_locked(clique, ncclSystemError,
                              "rank %d is too far ahead: it has called %d operations that others have not",
                              wire->rank, clique->n_comes);
        return true;
    }
    *come = (struct sg_come){.next = clique->comes, .far = far, .wire = *wire, .size = size};
    memcpy(come->data, data, size);
    clique->comes = come;
    clique->n_comes++;
    clique->come_bytes += size;
    return true;
}

void sg_far_begin(struct sg_exchange *exchange)
{
    struct sg_clique *clique = exchange->clique;
    for (int rank = 0; rank < clique->n; rank++) {
        if (clique->at[rank] < 0) {
            exchange->members +=
                exchange->source < 0 ? 1 : (rank == exchange->source) + (rank == exchange->peer);
            for (int far = 0; far < clique->n_far; far++)
                exchange->outgoing +=
                    sg_far_goes(exchange, SG_GIVEN, rank, far) + sg_far_goes(exchange, SG_REDUCED, rank, far);
        } else {
            exchange->parts[rank] = sg_exchange_gives(exchange, rank) ? sg_far_parts(exchange, -1) : 0;
            exchange->owes[rank] = sg_far_is_shared(exchange);
        }
    }
    for (struct sg_come **at = &clique->comes; *at;) {
        struct sg_come *come = *at;
        const struct sg_wire wire = come->wire;
        if (wire.source != exchange->source || wire.number != exchange->number ||
            (wire.source >= 0 && wire.peer != exchange->peer)) {
            at = &come->next;
            continue;
        }
        *at = come->next;
        clique->n_comes--;
        clique->come_bytes -= come->size;
        take_come(exchange, come->far, &wire, come->data, come->size);
        free(come);
    }
}

/* The process whose part of a small operation is missing; -1: none is that a stream could go on with. */
static int missing(const struct sg_exchange *exchange)
{
    struct sg_clique *clique = exchange->clique;
    RG_SCOPED_LOCK(&clique->lock);
    if (clique->error != ncclSuccess || __builtin_popcountll(exchange->given) < clique->here)
        return -1;
    for (int rank = 0; rank < clique->n; rank++)
        if (exchange->parts[rank] > 0 || exchange->owes[rank])
            return clique->at[rank];
    return -1;
}

void sg_far_read(const struct sg_exchange *exchange, struct sg_peer *const *told, int n_told)
{
    const uint64_t until = rg_now_ns() + READ_NS;
    for (int far; (far = missing(exchange)) >= 0 && far < n_told && rg_now_ns() < until;)
        if (!sg_peer_read(told[far]))
            return;
}

bool sg_far_is_waited_for(const struct sg_exchange *exchange)
{
    bool waits = exchange->outgoing > 0;
    for (int rank = 0; rank < exchange->clique->n; rank++)
        waits = waits || exchange->parts[rank] > 0 || exchange->owes[rank];
    return waits;
}

/* Whether a rank has not sent all that it is to send in that phase. */
static bool is_missing(const struct sg_exchange *exchange, const struct sg_wire *wire)
{
    return wire->phase == SG_REDUCED ? exchange->owes[wire->rank]
                                     : wire->phase == SG_GIVEN && exchange->parts[wire->rank] > 0;
}

/* Where data belongs; NULL: nowhere, or its memory is still another operation's, and nobody has been told anything else. */
static unsigned char *where(const struct sg_exchange *exchange, int far, const struct sg_wire *wire,
                            size_t size)
{
    const struct sg_clique *clique = exchange->clique;
    const size_t all = sg_exchange_given_bytes(exchange);
    if (wire->rank < 0 || wire->rank >= clique->n || clique->at[wire->rank] != far || wire->offset > all ||
        size > all - wire->offset || !is_missing(exchange, wire) || exchange->before)
        return NULL;
    if (wire->phase == SG_REDUCED)
        return sg_exchange_result(exchange, wire->offset);
    return sg_exchange_takes(exchange, wire->offset, size)
               ? sg_exchange_given(exchange, wire->rank, wire->offset)
               : NULL;
}

/* A part is all here. */
static void take_part(struct sg_exchange *exchange, const struct sg_wire *wire)
{
    const int rank = wire->rank;
    if (wire->phase == SG_REDUCED) {
        exchange->owes[rank] = false;
        sg_exchange_count(exchange, SG_WORD_REDUCED);
        return;
    }
    memcpy(exchange->scalars + (size_t)rank * 8, wire->scalar, sizeof wire->scalar);
    if (--exchange->parts[rank] == 0)
        sg_exchange_count(exchange, SG_WORD_GIVEN);
}

bool sg_far_data(struct sg_peer *peer, const struct sg_wire *wire, size_t size)
{
    sg_cliques_lock();
    struct sg_clique *clique = sg_clique_by_key(wire->clique);
    if (!clique) {
        sg_cliques_unlock();
        return !size || sg_peer_receive(peer, NULL, size);
    }
    pthread_mutex_lock(&clique->lock);
    clique->users++;
    sg_cliques_unlock();
    const int far = sg_clique_far_of(clique, peer);
    struct sg_exchange *exchange = clique->error == ncclSuccess
                                       ? sg_exchange_find(clique, wire->source, wire->peer, wire->number)
                                       : NULL;
    if (exchange && !sg_exchange_buffers_last(exchange))
        sg_exchange_buffers_gone(exchange);
    unsigned char *memory = exchange && far >= 0 ? where(exchange, far, wire, size) : NULL;
    const bool good = memory || clique->error != ncclSuccess;
    if (memory)
        exchange->incoming++; /* whatever becomes of the clique meanwhile */
    pthread_mutex_unlock(&clique->lock);
    const bool came = good && (!size || sg_peer_receive(peer, memory, size));
    pthread_mutex_lock(&clique->lock);
    if (memory) {
        exchange->incoming--;
        sg_exchange_unused(exchange);
        if (came && wire->last && is_missing(exchange, wire))
            take_part(exchange, wire);
        sg_exchange_finish(exchange);
    }
    sg_clique_unuse(clique);
    return came;
}

void sg_far_fini(struct sg_clique *clique)
{
    while (clique->comes) {
        struct sg_come *come = clique->comes;
        clique->comes = come->next;
        free(come);
    }
}
