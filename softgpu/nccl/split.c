/* split.c - see split.h. */
#include "softgpu/nccl/split.h"

#include "common/base/hash_table.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/peer.h"

#include <stdlib.h>

#define SPLITS_MAX 1024 /* that others may have begun before this process does */

struct sg_split {
    struct sg_split *next;
    uint64_t number; /* of the clique's splits */
    int entered, waited;
    bool done;
    ncclResult_t result;
    struct {
        bool entered, here;
        int color, key;
        bool blocking;
        ncclComm_t comm; /* the new one */
        ncclComm_t *out;
    } of[SG_NCCL_RANKS_MAX];
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
    if (!split && clique->n_splits < SPLITS_MAX && (split = calloc(1, sizeof *split)) != NULL) {
        split->number = number;
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

static void tell_others(const struct sg_clique *clique, const struct sg_split *split, int rank)
{
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].peer)
            sg_peer_tell(clique->far[i].peer,
                         &(struct sg_wire){.type = SG_WIRE_SPLIT,
                                           .clique = clique->key,
                                           .number = split->number,
                                           .rank = rank,
                                           .source = split->of[rank].color,
                                           .peer = split->of[rank].key},
                         NULL, 0);
}

ncclResult_t sg_clique_split(ncclComm_t comm, int color, int key, bool blocking, ncclComm_t *out,
                             struct sg_split **entered)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    struct sg_split *split = find(clique, comm->splits++);
    bool last = false;
    if (split) {
        split->of[comm->rank].entered = split->of[comm->rank].here = true;
        split->of[comm->rank].color = color;
        split->of[comm->rank].key = key;
        split->of[comm->rank].blocking = blocking;
        split->of[comm->rank].out = out;
        last = ++split->entered == clique->n;
        tell_others(clique, split, comm->rank);
    }
    pthread_mutex_unlock(&clique->lock);
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
        const bool last = good && ++split->entered == clique->n;
        pthread_mutex_unlock(&clique->lock);
        if (last)
            complete(clique, split);
    }
    sg_cliques_unlock();
    return good;
}

ncclResult_t sg_clique_wait_split(ncclComm_t comm, struct sg_split *split)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    while (!split->done && clique->error == ncclSuccess)
        pthread_cond_wait(&clique->changed, &clique->lock);
    ncclResult_t result = split->done ? split->result : clique->error;
    const ncclComm_t part = split->done ? split->of[comm->rank].comm : NULL;
    const bool blocking = split->of[comm->rank].blocking;
    ncclComm_t *out = split->of[comm->rank].out;
    *out = part;
    if (++split->waited == clique->here && split->done)
        drop(clique, split);
    pthread_mutex_unlock(&clique->lock);
    if (result == ncclSuccess && part && blocking)
        result = sg_clique_wait_joined(part);
    if (result != ncclSuccess && part) {
        *out = NULL;
        (void)sg_clique_leave(part, true);
    }
    return result;
}

void sg_splits_fini(struct sg_clique *clique)
{
    while (clique->splits)
        drop(clique, clique->splits);
}
