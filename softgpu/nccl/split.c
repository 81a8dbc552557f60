/* split.c - see split.h. */
#include "softgpu/nccl/split.h"

#include "common/base/clock.h"
#include "common/base/hash_table.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/peer.h"

#include <stdio.h>
#include <stdlib.h>

#define SHRINK (1ull << 63) /* in the numbers of those that some ranks do not enter */

/* How a rank takes part. */
struct part {
    bool entered, here;
    int color, key;
    bool blocking;
    ncclComm_t comm; /* the new one */
    ncclComm_t *out;
};

struct sg_split {
    struct sg_split *next;
    uint64_t number; /* of the clique's splits */
    int entered, here, waited;
    bool despite;          /* that the clique has failed does not matter */
    bool being_made, done; /* all have entered, from then on it is; and it has been made */
    bool given_up;         /* not done, and nobody waits for it any more: who comes now is too late */
    uint64_t began_ns;
    ncclResult_t result;
    struct part of[SG_NCCL_RANKS_MAX];
};

static const char *function_of(const struct sg_split *split)
{
    return split->number & SHRINK ? "ncclCommShrink" : "ncclCommSplit";
}

/* How often a communicator was shrunk by the same ranks. */
struct sg_shrinks {
    struct sg_shrinks *next;
    uint64_t excluded, times;
};

/* The ranks of a colour in the order of their keys, those of equal keys in that of their ranks. */
static int ranks_of(const struct sg_split *split, int n, int color, int *ranks)
{
    int count = 0;
    for (int rank = 0; rank < n; rank++) {
        if (split->of[rank].color != color)
            continue;
        int at = count++;
        for (; at > 0 && split->of[ranks[at - 1]].key > split->of[rank].key; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = rank;
    }
    return count;
}

/* The same in every process. */
static uint64_t key_of(const struct sg_clique *clique, const struct sg_split *split, int color)
{
    const uint64_t parts[] = {clique->key, split->number, (uint64_t)(unsigned)color};
    return rg_hash_bytes(RG_HASH_EMPTY, parts, sizeof parts);
}

/* A rank of another process, which is in the parent's table. */
static void add_far(struct sg_clique *part, int rank, const struct sg_far *parents)
{
    int at = 0;
    while (at < part->n_far && part->far[at].place.process != parents->place.process)
        at++;
    if (at == part->n_far)
        part->far[part->n_far++] =
            (struct sg_far){.place = parents->place, .peer = parents->peer, .asked = true};
    part->far[at].n_ranks++;
    part->at[rank] = (int8_t)at;
}

static bool add_here(const struct sg_clique *clique, struct sg_split *split, struct sg_clique *part, int rank,
                     int of)
{
    const ncclComm_t parent = clique->members[of];
    ncclComm_t comm = sg_comm_new(rank, split->of[of].blocking);
    if (!comm)
        return false;
    comm->context = parent->context;
    comm->device = parent->device;
    comm->retained = parent->retained && sg_nccl_driver()->p_cuDevicePrimaryCtxRetain(
                                             &comm->context, comm->device) == CUDA_SUCCESS;
    split->of[of].comm = comm;
    part->at[rank] = -1;
    part->here++;
    sg_clique_add_member(part, comm);
    return true;
}

/* Makes the clique of one colour. False: out of memory. */
static bool make_part(const struct sg_clique *clique, struct sg_split *split, int color)
{
    int ranks[SG_NCCL_RANKS_MAX];
    const int n = ranks_of(split, clique->n, color, ranks);
    struct sg_clique *part = sg_clique_new(key_of(clique, split, color), n);
    if (!part)
        return false;
    part->far = calloc((size_t)clique->n_far + 1, sizeof *part->far);
    bool whole = part->far != NULL;
    for (int rank = 0; whole && rank < n; rank++) {
        const int at = clique->at[ranks[rank]];
        if (at >= 0)
            add_far(part, rank, &clique->far[at]);
        else
            whole = add_here(clique, split, part, rank, ranks[rank]);
    }
    part->placed = true;
    sg_clique_enter(part);
    return whole;
}

/* All ranks have entered. The list's lock is held: nobody else touches the split until it is done. */
static ncclResult_t make_parts(const struct sg_clique *clique, struct sg_split *split)
{
    for (int rank = 0; rank < clique->n; rank++)
        if (split->of[rank].here && split->of[rank].color != NCCL_SPLIT_NOCOLOR && !split->of[rank].comm &&
            !make_part(clique, split, split->of[rank].color))
            return sg_nccl_fail(ncclSystemError, "out of memory");
    return ncclSuccess;
}

/* The list's lock is held, the clique's is not. */
static void complete(struct sg_clique *clique, struct sg_split *split)
{
    const ncclResult_t result = make_parts(clique, split);
    pthread_mutex_lock(&clique->lock);
    split->result = result;
    split->done = true;
    pthread_cond_broadcast(&clique->changed);
    pthread_mutex_unlock(&clique->lock);
}

/* The split of that number; NULL: out of memory, or there are too many. */
static struct sg_split *find(struct sg_clique *clique, uint64_t number)
{
    struct sg_split *split = clique->splits;
    while (split && split->number != number)
        split = split->next;
    if (!split && clique->n_splits < RG_NCCL_SPLITS_MAX && (split = calloc(1, sizeof *split)) != NULL) {
        split->number = number;
        split->began_ns = rg_now_ns();
        split->next = clique->splits;
        clique->splits = split;
        clique->n_splits++;
    }
    return split;
}

static void drop(struct sg_clique *clique, struct sg_split *split)
{
    struct sg_split **at = &clique->splits;
    while (*at != split)
        at = &(*at)->next;
    *at = split->next;
    clique->n_splits--;
    free(split);
}

/* Those who stay away are not told: they would wait for the others. */
static bool takes_part(const struct sg_clique *clique, int far, uint64_t excluded)
{
    for (int rank = 0; rank < clique->n; rank++)
        if (clique->at[rank] == far && !(excluded >> rank & 1))
            return true;
    return false;
}

static void tell_others(const struct sg_clique *clique, const struct sg_split *split, int rank,
                        uint64_t excluded)
{
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].peer && takes_part(clique, i, excluded))
            sg_peer_tell(clique->far[i].peer,
                         &(struct sg_wire){.type = SG_WIRE_SPLIT,
                                           .clique = clique->key,
                                           .number = split->number,
                                           .rank = rank,
                                           .source = split->of[rank].color,
                                           .peer = split->of[rank].key},
                         NULL, 0);
}

/* Also one that said it entered: its process may say what it likes. */
static void keep_away(const struct sg_clique *clique, struct sg_split *split, uint64_t excluded)
{
    for (int rank = 0; rank < clique->n; rank++)
        if (excluded >> rank & 1 && !split->of[rank].here) {
            split->entered += !split->of[rank].entered;
            split->of[rank] = (struct part){.entered = true, .color = NCCL_SPLIT_NOCOLOR};
        }
}

/* The rank enters the split of that number, which the excluded ones do not. */
static ncclResult_t enter(ncclComm_t comm, uint64_t number, struct part how, uint64_t excluded, bool despite,
                          struct sg_split **entered)
{
    struct sg_clique *clique = comm->clique;
    bool last = false;
    pthread_mutex_lock(&clique->lock);
    struct sg_split *split = find(clique, number);
    const bool late = split && split->given_up;
    if (split && !late) {
        how.entered = how.here = true;
        split->of[comm->rank] = how;
        split->here++;
        split->despite = despite;
        keep_away(clique, split, excluded);
        last = split->being_made = ++split->entered == clique->n;
        tell_others(clique, split, comm->rank, excluded);
    }
    pthread_mutex_unlock(&clique->lock);
    if (late)
        return sg_nccl_fail(ncclRemoteError, "%s: rank %d comes too late: others have waited for it in vain",
                            function_of(split), comm->rank);
    if (!split)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    if (last) {
        sg_cliques_lock();
        complete(clique, split);
        sg_cliques_unlock();
    }
    *entered = split;
    return ncclSuccess;
}

ncclResult_t sg_clique_split(ncclComm_t comm, int color, int key, bool blocking, ncclComm_t *out,
                             struct sg_split **split)
{
    const struct part how = {.color = color, .key = key, .blocking = blocking, .out = out};
    return enter(comm, comm->splits++, how, 0, false, split);
}

/* The number of the communicator's next one without these ranks: the same for all others, whatever else each has taken part in. */
static bool number_shrink(ncclComm_t comm, uint64_t excluded, uint64_t *number)
{
    struct sg_shrinks *at = comm->shrinks;
    while (at && at->excluded != excluded)
        at = at->next;
    if (!at) {
        at = calloc(1, sizeof *at);
        if (!at)
            return false;
        *at = (struct sg_shrinks){.next = comm->shrinks, .excluded = excluded};
        comm->shrinks = at;
    }
    const uint64_t parts[] = {excluded, at->times++};
    *number = rg_hash_bytes(RG_HASH_EMPTY, parts, sizeof parts) | SHRINK;
    return true;
}

ncclResult_t sg_clique_shrink(ncclComm_t comm, uint64_t excluded, bool abort, bool blocking, ncclComm_t *out,
                              struct sg_split **split)
{
    const struct part how = {.key = comm->rank, .blocking = blocking, .out = out};
    uint64_t number;
    if (abort) {
        pthread_mutex_lock(&comm->clique->lock);
        sg_clique_fail_locked(comm->clique, ncclRemoteError,
                              "rank %d has ended the communicator, to go on without others", comm->rank);
        pthread_mutex_unlock(&comm->clique->lock);
        if (sg_clique_wait_idle(comm) == ncclUnhandledCudaError)
            return ncclUnhandledCudaError;
    }
    return number_shrink(comm, excluded, &number) ? enter(comm, number, how, excluded, abort, split)
                                                  : sg_nccl_fail(ncclSystemError, "out of memory");
}

void sg_shrinks_fini(ncclComm_t comm)
{
    for (struct sg_shrinks *at = comm->shrinks, *next; at; at = next) {
        next = at->next;
        free(at);
    }
}

bool sg_split_far_enters(struct sg_peer *peer, const struct sg_wire *wire)
{
    bool good = true;
    sg_cliques_lock();
    struct sg_clique *clique = sg_clique_by_key(wire->clique);
    if (clique) {
        pthread_mutex_lock(&clique->lock);
        const int from = sg_clique_far_of(clique, peer);
        good = from >= 0 && wire->rank >= 0 && wire->rank < clique->n && clique->at[wire->rank] == from;
        struct sg_split *split = good ? find(clique, wire->number) : NULL;
        good = split && !split->of[wire->rank].entered;
        if (good) {
            split->of[wire->rank].entered = true;
            split->of[wire->rank].color = wire->source;
            split->of[wire->rank].key = wire->peer;
        }
        const bool last = good && ++split->entered == clique->n && !split->given_up;
        if (last)
            split->being_made = true;
        pthread_mutex_unlock(&clique->lock);
        if (last)
            complete(clique, split);
    }
    sg_cliques_unlock();
    return good;
}

/* It will not be made, for that reason, unless the clique has failed before, of another one. The clique's lock is held. */
static void give_up(struct sg_clique *clique, struct sg_split *split, const char *why)
{
    split->given_up = true;
    pthread_cond_broadcast(&clique->changed);
    if (split->despite && clique->error != ncclSuccess) {
        rg_warn("NCCL: %s", why);
        (void)sg_nccl_fail(ncclRemoteError, "%s", why);
    }
    sg_clique_fail_locked(clique, ncclRemoteError, "%s", why);
}

/* Whether all who have not entered may still do so. The clique's lock is held. */
static bool may_be_done(const struct sg_clique *clique, const struct sg_split *split)
{
    if ((clique->error != ncclSuccess && !split->despite) || split->given_up)
        return false;
    for (int rank = 0; rank < clique->n; rank++) {
        const int at = split->of[rank].entered ? -1 : clique->at[rank];
        if (at >= 0 && (!clique->far[at].peer || clique->far[at].gone))
            return false;
    }
    return true;
}

ncclResult_t sg_clique_wait_split(ncclComm_t comm, struct sg_split *split)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    sg_comm_enter(comm);
    while (!split->done && (split->being_made || (may_be_done(clique, split) && !comm->aborted)))
        pthread_cond_wait(&clique->changed, &clique->lock);
    if (!split->done && !split->given_up)
        give_up(clique, split, "a rank has left, with which a communicator was to be made");
    ncclResult_t result = split->done ? split->result : split->despite ? ncclRemoteError : clique->error;
    const ncclComm_t part = split->done ? split->of[comm->rank].comm : NULL;
    const bool blocking = split->of[comm->rank].blocking;
    ncclComm_t *out = split->of[comm->rank].out;
    *out = part;
    if (++split->waited == split->here && split->done)
        drop(clique, split);
    sg_comm_exit(comm);
    pthread_mutex_unlock(&clique->lock);
    if (result != ncclSuccess && part)
        (void)sg_clique_leave(part, true);
    else if (part && blocking)
        result = sg_clique_wait_joined(part);
    if (result != ncclSuccess)
        *out = NULL;
    return result;
}

/* The ranks that have not entered, in words. */
static void name_missing(const struct sg_clique *clique, const struct sg_split *split, char *text,
                         size_t size)
{
    int length = 0;
    for (int rank = 0; rank < clique->n && (size_t)length < size; rank++)
        if (!split->of[rank].entered)
            length += snprintf(text + length, size - (size_t)length, "%s%d", length ? ", " : "", rank);
}

void sg_splits_look(struct sg_clique *clique, uint64_t since_ns, double seconds)
{
    for (struct sg_split *split = clique->splits; split; split = split->next) {
        char ranks[160] = "", why[SG_NCCL_WHY];
        if (split->being_made || split->given_up || !split->here || split->began_ns >= since_ns)
            continue;
        name_missing(clique, split, ranks, sizeof ranks);
        snprintf(why, sizeof why, "%s: rank %s did not come within %g s", function_of(split), ranks, seconds);
        give_up(clique, split, why);
    }
}

void sg_splits_fini(struct sg_clique *clique)
{
    while (clique->splits)
        drop(clique, clique->splits);
}
