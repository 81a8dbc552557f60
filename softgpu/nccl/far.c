/* far.c - see far.h. */
#include "softgpu/nccl/far.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/nccl/list.h"

#include <stdlib.h>

#define CHUNK          ((size_t)1 << 20)  /* bytes of data in one message */
#define COMES_MAX      65536              /* that others may have said before a member calls */
#define COME_BYTES_MAX ((size_t)64 << 20) /* and the data with it */
#define READ_NS        1000000            /* how long a stream reads for itself */

_Static_assert(CHUNK <= RG_BULK_MAX, "a chunk is the data of one message");
_Static_assert(SG_NCCL_RANKS_MAX <= 64, "far processes are bits of a word");

/* A far rank has come to an operation that no member has called. */
struct sg_come {
    struct sg_come *next;
    int far;
    struct sg_wire wire;
    size_t size;
    unsigned char data[]; /* of a small operation */
};

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

/* Whether what is reduced goes to all. */
static bool is_shared(const struct sg_exchange *exchange)
{
    return !sg_exchange_is_small(exchange) && exchange->kind == SG_NCCL_ALL_REDUCE;
}

/* How many parts of what a rank gives ranks of a process need: one block each where they reduce, else all at once. -1: this process. */
static int parts_for(const struct sg_exchange *exchange, int far)
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
    lost = lost || sg_clique_failed(clique) != ncclSuccess;
    struct sg_wire wire = wire_of(exchange, SG_WIRE_DATA, rank);
    wire.phase = (int)shipment->phase;
    memcpy(wire.scalar, exchange->scalars + (size_t)rank * 8, sizeof wire.scalar);
    if (shipment->phase == SG_REDUCED) {
        part_of(exchange, rank, &offset, &size);
        wire.offset = offset;
        lost = lost || !send_part(peer, &wire, exchange->reduced + offset, size);
    }
    for (int of = 0; shipment->phase == SG_GIVEN && of < clique->n && !lost; of++) {
        if (is_scattered(exchange) && clique->at[of] != shipment->far)
            continue;
        part_of(exchange, of, &offset, &size);
        wire.offset = offset;
        lost = !send_part(peer, &wire, sg_exchange_place(exchange, rank) + offset, size);
        if (!is_scattered(exchange))
            break;
    }
    free(job);
    pthread_mutex_lock(&clique->lock);
    exchange->outgoing--;
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

/* Whether a member sends what it gives, or has reduced, to that process at all. */
static bool goes_to(const struct sg_exchange *exchange, enum sg_phase phase, int rank, int far)
{
    return exchange->clique->at[rank] < 0 && !sg_exchange_is_small(exchange) &&
           (phase == SG_REDUCED ? is_shared(exchange)
                                : sg_exchange_gives(exchange, rank) && parts_for(exchange, far) > 0);
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
                    clique->error == ncclSuccess && goes_to(exchange, (enum sg_phase)phase, rank, far))
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

/* --- what others say ------------------------------------------------------------------------------------ */

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
        wire->kind > SG_NCCL_RECEIVE || size > SG_NCCL_SMALL)
        return false;
    struct sg_exchange *exchange = sg_exchange_find(clique, wire->source, wire->peer, wire->number);
    if (exchange) {
        take_come(exchange, far, wire, data, size);
        return true;
    }
    struct sg_come *come = clique->n_comes < COMES_MAX && clique->come_bytes + size <= COME_BYTES_MAX
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
                    goes_to(exchange, SG_GIVEN, rank, far) + goes_to(exchange, SG_REDUCED, rank, far);
        } else {
            exchange->parts[rank] = sg_exchange_gives(exchange, rank) ? parts_for(exchange, -1) : 0;
            exchange->parts[rank] += is_shared(exchange);
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
        if (exchange->parts[rank] > 0)
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
        waits = waits || exchange->parts[rank] > 0;
    return waits;
}

/* Where data belongs; NULL: nowhere, or its memory is still another operation's, and nobody has been told anything else. */
static unsigned char *where(const struct sg_exchange *exchange, int far, const struct sg_wire *wire,
                            size_t size)
{
    const struct sg_clique *clique = exchange->clique;
    const size_t all = sg_exchange_given_bytes(exchange);
    if (wire->rank < 0 || wire->rank >= clique->n || clique->at[wire->rank] != far || wire->offset > all ||
        size > all - wire->offset || exchange->parts[wire->rank] < 1 || exchange->before)
        return NULL;
    if (wire->phase == SG_REDUCED)
        return is_shared(exchange) ? exchange->reduced + wire->offset : NULL;
    return wire->phase == SG_GIVEN && sg_exchange_gives(exchange, wire->rank)
               ? sg_exchange_place(exchange, wire->rank) + wire->offset
               : NULL;
}

/* A part is all here. */
static void take_part(struct sg_exchange *exchange, const struct sg_wire *wire)
{
    const int rank = wire->rank, reduced = is_shared(exchange); /* the last part, of these */
    exchange->parts[rank]--;
    if (wire->phase == SG_REDUCED) {
        sg_exchange_count(exchange, SG_WORD_REDUCED);
        return;
    }
    memcpy(exchange->scalars + (size_t)rank * 8, wire->scalar, sizeof wire->scalar);
    if (exchange->parts[rank] == reduced)
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
    unsigned char *memory = exchange && far >= 0 ? where(exchange, far, wire, size) : NULL;
    const bool good = memory || clique->error != ncclSuccess;
    if (memory)
        exchange->incoming++; /* whatever another link of that process says meanwhile */
    pthread_mutex_unlock(&clique->lock);
    const bool came = good && (!size || sg_peer_receive(peer, memory, size));
    pthread_mutex_lock(&clique->lock);
    if (memory) {
        exchange->incoming--;
        if (came && wire->last && exchange->parts[wire->rank] > 0)
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
