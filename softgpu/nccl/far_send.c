/*
 * far_send.c - what members here tell other processes: that they are there, and, to each process that has memory for
 * it, what they give or have reduced, in chunks. The sender of the link to that process sends (peer.h); everything else
 * is the thread's of the stream that got there, under the clique's lock.
 *
 * A process that has left, memory that has run out or a link that is lost fails the clique.
 */
#include "softgpu/nccl/far.h"

#include "common/base/limits.h"

#include <stdlib.h>

#define CHUNK ((size_t)1 << 20) /* bytes of data in one message */

_Static_assert(CHUNK <= RG_BULK_MAX, "a chunk is the data of one message");
_Static_assert(SG_NCCL_RANKS_MAX <= 64, "far processes are bits of a word");

/* What a member gives, or has reduced, on its way to another process. */
struct shipment {
    struct sg_job job; /* first */
    struct sg_exchange *exchange;
    enum sg_phase phase;
    int rank, far;
};

/* --- who needs what ------------------------------------------------------------------------------------- */

static bool is_scattered(const struct sg_exchange *exchange)
{
    return !sg_exchange_is_small(exchange) &&
           (exchange->kind == SG_NCCL_ALL_REDUCE || exchange->kind == SG_NCCL_REDUCE_SCATTER);
}

bool sg_far_is_shared(const struct sg_exchange *exchange)
{
    return !sg_exchange_is_small(exchange) && exchange->kind == SG_NCCL_ALL_REDUCE;
}

int sg_far_parts(const struct sg_exchange *exchange, int far)
{
    const struct sg_clique *clique = exchange->clique;
    if (is_scattered(exchange))
        return far < 0 ? clique->here : clique->far[far].n_ranks;
    if (exchange->source >= 0 || exchange->kind == SG_NCCL_REDUCE)
        return clique->at[exchange->peer] == far;
    return 1;
}

static bool takes_part(const struct sg_exchange *exchange, int rank)
{
    return exchange->source < 0 || rank == exchange->source || rank == exchange->peer;
}

/* Whether a rank of that process takes part. */
static bool concerns(const struct sg_exchange *exchange, int far)
{
    for (int rank = 0; rank < exchange->clique->n; rank++)
        if (exchange->clique->at[rank] == far && takes_part(exchange, rank))
            return true;
    return false;
}

/* Bytes of a part, and where it is in what the rank gives. `of`: the rank that reduces it. */
static void part_of(const struct sg_exchange *exchange, int of, size_t *offset, size_t *size)
{
    const size_t width = rg_nccl_type_size(exchange->type);
    *offset = 0;
    *size = sg_exchange_given_bytes(exchange);
    if (!is_scattered(exchange))
        return;
    sg_exchange_block(exchange, of, offset, size);
    *offset *= width;
    *size *= width;
}

/* --- sending -------------------------------------------------------------------------------------------- */

static struct sg_wire wire_of(const struct sg_exchange *exchange, enum sg_wire_type type, int rank)
{
    return (struct sg_wire){.type = type,
                            .clique = exchange->clique->key,
                            .number = exchange->number,
                            .rank = rank,
                            .source = exchange->source,
                            .peer = exchange->peer,
                            .kind = (int)exchange->kind,
                            .dtype = (int)exchange->type,
                            .op = exchange->op,
                            .count = exchange->count,
                            .whole = exchange->whole};
}

/* A part goes in messages, of which the last says so; also an empty one. */
static bool send_part(struct sg_peer *peer, struct sg_wire *wire, const unsigned char *data, size_t size)
{
    const size_t offset = wire->offset;
    for (size_t at = 0;;) {
        const size_t now = size - at < CHUNK ? size - at : CHUNK;
        wire->offset = offset + at;
        wire->last = at + now == size;
        if (!sg_peer_send(peer, wire, data + at, now))
            return false;
        at += now;
        if (wire->last)
            return true;
    }
}

static void ship(struct sg_job *job, struct sg_peer *peer, bool lost)
{
    struct shipment *shipment = (struct shipment *)job;
    struct sg_exchange *exchange = shipment->exchange;
    struct sg_clique *clique = exchange->clique;
    const int rank = shipment->rank;
    size_t offset, size;
    pthread_mutex_lock(&clique->lock);
    if (!sg_exchange_buffers_last(exchange))
        sg_exchange_buffers_gone(exchange);
    lost = lost || clique->error != ncclSuccess;
    exchange->sending += !lost;
    const bool sends = !lost;
    pthread_mutex_unlock(&clique->lock);
    struct sg_wire wire = wire_of(exchange, SG_WIRE_DATA, rank);
    wire.phase = (int)shipment->phase;
    memcpy(wire.scalar, exchange->scalars + (size_t)rank * 8, sizeof wire.scalar);
    if (shipment->phase == SG_REDUCED) {
        part_of(exchange, rank, &offset, &size);
        wire.offset = offset;
        lost = lost || !send_part(peer, &wire, sg_exchange_result(exchange, offset), size);
    }
    for (int of = 0; shipment->phase == SG_GIVEN && of < clique->n && !lost; of++) {
        if (is_scattered(exchange) && clique->at[of] != shipment->far)
            continue;
        part_of(exchange, of, &offset, &size);
        wire.offset = offset;
        lost = !send_part(peer, &wire, sg_exchange_given(exchange, rank, offset), size);
        if (!is_scattered(exchange))
            break;
    }
    free(job);
    pthread_mutex_lock(&clique->lock);
    exchange->outgoing--;
    exchange->sending -= sends;
    sg_exchange_unused(exchange);
    sg_exchange_finish(exchange);
    sg_clique_unuse(clique);
}

static void queue(struct sg_exchange *exchange, enum sg_phase phase, int rank, int far)
{
    struct sg_clique *clique = exchange->clique;
    const uint64_t bit = UINT64_C(1) << far;
    struct shipment *shipment = clique->far[far].peer ? malloc(sizeof *shipment) : NULL;
    if (!shipment) {
        sg_clique_fail_locked(clique, ncclSystemError, "out of memory");
        return;
    }
    *shipment = (struct shipment){
        .job = {.send = ship}, .exchange = exchange, .phase = phase, .rank = rank, .far = far};
    exchange->told[phase][rank] |= bit;
    clique->users++;
    sg_peer_queue(clique->far[far].peer, &shipment->job);
}

/* Fails the clique if a process has no ranks in it any more. */
static bool is_there(struct sg_clique *clique, int far)
{
    if (clique->far[far].peer && !clique->far[far].gone)
        return true;
    sg_clique_fail_locked(clique, ncclRemoteError, "ranks of another process have left the communicator");
    return false;
}

bool sg_far_goes(const struct sg_exchange *exchange, enum sg_phase phase, int rank, int far)
{
    return exchange->clique->at[rank] < 0 && !sg_exchange_is_small(exchange) &&
           (phase == SG_REDUCED ? sg_far_is_shared(exchange)
                                : sg_exchange_gives(exchange, rank) && sg_far_parts(exchange, far) > 0);
}

void sg_far_send(struct sg_exchange *exchange)
{
    const struct sg_clique *clique = exchange->clique;
    const uint64_t here[] = {[SG_GIVEN] = exchange->given, [SG_REDUCED] = exchange->done};
    for (int far = 0; far < clique->n_far; far++) {
        if (!(exchange->far_ready >> far & 1))
            continue;
        for (int rank = 0; rank < clique->n; rank++)
            for (int phase = SG_GIVEN; phase <= SG_REDUCED; phase++)
                if ((here[phase] >> rank & 1) && !(exchange->told[phase][rank] >> far & 1) &&
                    clique->error == ncclSuccess && sg_far_goes(exchange, (enum sg_phase)phase, rank, far))
                    queue(exchange, (enum sg_phase)phase, rank, far);
    }
}

int sg_far_tell_come(const struct sg_exchange *exchange, int rank, struct sg_peer *told[SG_NCCL_RANKS_MAX])
{
    struct sg_clique *clique = exchange->clique;
    struct sg_wire wire = wire_of(exchange, SG_WIRE_COME, rank);
    const bool small = sg_exchange_is_small(exchange);
    int n = 0;
    if (small)
        memcpy(wire.scalar, exchange->scalars + (size_t)rank * 8, sizeof wire.scalar);
    for (int far = 0; far < clique->n_far && clique->error == ncclSuccess; far++)
        if (concerns(exchange, far) && is_there(clique, far))
            sg_peer_post(told[n++] = clique->far[far].peer, &wire,
                         small ? sg_exchange_place(exchange, rank) : NULL,
                         small ? sg_exchange_given_bytes(exchange) : 0);
    return n;
}
