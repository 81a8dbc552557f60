/*
 * placing.c - a clique and the other processes that have ranks of it: who is where, which links are needed, and when calls may come. See
 * clique.h.
 */
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/extension.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/peer.h"

#include <stdio.h>
#include <stdlib.h>

/* --- when calls may come -------------------------------------------------------------------------------- */

/* Those that were ready for a clique before it was here, or placed. */
static struct early_ready {
    uint64_t key, process;
} early[1024];
static unsigned n_early; /* that were ever noted; the list is a ring */

void sg_clique_note_ready(uint64_t key, uint64_t process)
{
    early[n_early++ % (sizeof early / sizeof early[0])] = (struct early_ready){key, process};
}

void sg_clique_take_ready(struct sg_clique *clique)
{
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++)
        if (early[i].process && early[i].key == clique->key) {
            sg_clique_ready(clique, early[i].process);
            early[i].process = 0;
        }
}

void sg_clique_ready(struct sg_clique *clique, uint64_t process)
{
    if (!clique->placed)
        sg_clique_note_ready(clique->key, process);
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].place.process == process)
            clique->far[i].ready = true;
    pthread_cond_broadcast(&clique->changed);
}

void sg_clique_say_ready(struct sg_clique *clique)
{
    bool linked = clique->placed && clique->error == ncclSuccess;
    for (int i = 0; i < clique->n_far && linked; i++)
        linked = clique->far[i].peer != NULL;
    if (!linked || clique->said_ready)
        return;
    clique->said_ready = true;
    sg_clique_tell_all(clique, &(struct sg_wire){.type = SG_WIRE_READY, .clique = clique->key}, NULL, 0);
    pthread_cond_broadcast(&clique->changed);
}

int sg_clique_far_of(const struct sg_clique *clique, const struct sg_peer *peer)
{
    for (int i = 0; i < clique->n_far; i++) /* there may be two links to a process */
        if (clique->far[i].place.process == sg_peer_process(peer))
            return i;
    return -1;
}

/* Of each pair of processes, the one with the lower number sees to the link. */
static void add_far(struct sg_clique *clique, int rank, const struct sg_wire_place *place)
{
    int at = 0;
    while (at < clique->n_far && clique->far[at].place.process != place->process)
        at++;
    if (at == clique->n_far)
        clique->far[clique->n_far++] = (struct sg_far){
            .place = *place, .peer = sg_peer_find(place->process), .asked = sg_process() > place->process};
    clique->far[at].n_ranks++;
    clique->at[rank] = (int8_t)at;
}

bool sg_clique_place(struct sg_clique *clique, struct sg_peer *peer, const struct sg_wire *wire,
                     const void *places, size_t size)
{
    const struct sg_wire_place *of = places;
    if (clique->placed || clique->error != ncclSuccess)
        return true;
    if (clique->root_peer != peer || wire->ranks != clique->n || size != (size_t)clique->n * sizeof *of)
        return false;
    for (int rank = 0; rank < clique->n; rank++)
        if (!of[rank].process || (of[rank].process == sg_process()) != (clique->members[rank] != NULL))
            return false;
    clique->far = calloc((size_t)clique->n, sizeof *clique->far);
    if (!clique->far) {
        sg_clique_fail_locked(clique, ncclSystemError, "out of memory");
        return true;
    }
    for (int rank = 0; rank < clique->n; rank++)
        if (clique->members[rank])
            clique->here++;
        else
            add_far(clique, rank, &of[rank]);
    clique->placed = true;
    sg_clique_take_ready(clique);
    sg_clique_say_ready(clique);
    pthread_cond_broadcast(&clique->changed);
    return true;
}

void sg_clique_far_left(struct sg_clique *clique, const struct sg_peer *peer)
{
    const int at = sg_clique_far_of(clique, peer);
    if (at >= 0)
        clique->far[at].gone = true;
    pthread_cond_broadcast(&clique->changed);
}

bool sg_clique_has_left(const struct sg_clique *clique, const struct sg_peer *peer)
{
    const int at = sg_clique_far_of(clique, peer);
    return at >= 0 && clique->far[at].gone;
}

/* The ranks of a far process, in words. */
static void name_ranks(const struct sg_clique *clique, int far, char *text, size_t size)
{
    int length = 0;
    for (int rank = 0; rank < clique->n && (size_t)length < size; rank++)
        if (clique->at[rank] == far)
            length += snprintf(text + length, size - (size_t)length, "%s%d", length ? ", " : "", rank);
}

void sg_clique_join_far(const struct sg_clique *clique, int rank)
{
    struct sg_wire_place place = {.process = sg_process()};
    sg_own_place(place.place);
    sg_peer_tell(
        clique->root_peer,
        &(struct sg_wire){.type = SG_WIRE_JOIN, .clique = clique->key, .rank = rank, .ranks = clique->n},
        &place, sizeof place);
}

static void meet(struct sg_clique *clique, struct sg_peer *peer, uint64_t process)
{
    if (!clique->placed && clique->root == process && !clique->root_peer) {
        clique->root_peer = peer;
        for (int rank = 0; rank < clique->n; rank++)
            if (clique->members[rank])
                sg_clique_join_far(clique, rank);
    }
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].place.process == process && !clique->far[i].peer)
            clique->far[i].peer = peer;
    sg_clique_say_ready(clique);
}

void sg_cliques_met(struct sg_peer *peer, uint64_t process, unsigned version, unsigned protocol)
{
    for (struct sg_clique *clique = *sg_cliques(); clique; clique = clique->next) {
        pthread_mutex_lock(&clique->lock);
        bool needed = !clique->placed && clique->root == process;
        for (int i = 0; i < clique->n_far && !needed; i++)
            needed = clique->far[i].place.process == process;
        if (needed && version)
            sg_clique_fail_locked(clique, ncclInvalidUsage,
                                  "servers have different versions of NCCL: %d.%d.%d here (protocol %u), "
                                  "%u.%u.%u there (protocol %u)",
                                  NCCL_VERSION_CODE / 10000, NCCL_VERSION_CODE / 100 % 100,
                                  NCCL_VERSION_CODE % 100, SG_WIRE_PROTOCOL, version / 10000,
                                  version / 100 % 100, version % 100, protocol);
        else if (needed)
            meet(clique, peer, process);
        pthread_mutex_unlock(&clique->lock);
    }
}

void sg_cliques_lost(const struct sg_peer *peer)
{
    for (struct sg_clique *clique = *sg_cliques(); clique; clique = clique->next) {
        pthread_mutex_lock(&clique->lock);
        if (clique->root_peer == peer) {
            clique->root_peer = NULL;
            if (!clique->placed)
                sg_clique_fail_locked(clique, ncclRemoteError,
                                      "the connection to the process that made the id has ended");
        }
        const int at = sg_clique_far_of(clique, peer);
        if (at >= 0 && clique->far[at].peer == peer) {
            char ranks[160] = "";
            name_ranks(clique, at, ranks, sizeof ranks);
            clique->far[at].peer = NULL;
            pthread_cond_broadcast(&clique->changed);
            if (!clique->far[at].gone)
                sg_clique_fail_locked(clique, ncclRemoteError,
                                      "the connection to the process of rank %s has ended", ranks);
        }
        pthread_mutex_unlock(&clique->lock);
    }
}

void sg_cliques_end(void)
{
    for (struct sg_clique *clique = *sg_cliques(); clique; clique = clique->next) {
        char ranks[160] = "";
        int length = 0;
        pthread_mutex_lock(&clique->lock);
        for (int rank = 0; rank < clique->n && (size_t)length < sizeof ranks; rank++)
            if (clique->members[rank])
                length +=
                    snprintf(ranks + length, sizeof ranks - (size_t)length, "%s%d", length ? ", " : "", rank);
        sg_clique_fail_locked(clique, ncclRemoteError, "the session of rank %s has ended", ranks);
        pthread_mutex_unlock(&clique->lock);
    }
}

/* --- links ---------------------------------------------------------------------------------------------- */

/* Which processes this one is to be connected to, and nobody has been asked for it. */
static unsigned wanted(struct sg_clique *clique, unsigned char (*places)[RG_NCCL_PLACE_BYTES], unsigned most)
{
    unsigned n = 0;
    if (!clique->placed && clique->root != sg_process() && !clique->root_peer && !clique->root_asked) {
        clique->root_asked = true;
        memcpy(places[n++], clique->root_place, sizeof clique->root_place);
    }
    for (int i = 0; i < clique->n_far && n < most; i++) {
        struct sg_far *far = &clique->far[i];
        if (far->asked || far->peer)
            continue;
        far->asked = true;
        memcpy(places[n++], far->place.place, sizeof far->place.place);
    }
    return n;
}

ncclResult_t sg_extension_await(ncclComm_t comm, bool waits, unsigned char (*places)[RG_NCCL_PLACE_BYTES],
                                unsigned most, unsigned *n)
{
    struct sg_clique *clique = comm->clique;
    *n = 0;
    pthread_mutex_lock(&clique->lock);
    sg_comm_enter(comm);
    while (!sg_clique_has_begun(clique) && clique->error == ncclSuccess &&
           (*n = wanted(clique, places, most)) == 0 && waits)
        pthread_cond_wait(&clique->changed, &clique->lock);
    const ncclResult_t result = clique->error != ncclSuccess  ? clique->error
                                : sg_clique_has_begun(clique) ? ncclSuccess
                                                              : ncclInProgress;
    if (clique->error != ncclSuccess)
        (void)sg_nccl_fail(clique->error, "%s", clique->why);
    sg_comm_exit(comm);
    pthread_mutex_unlock(&clique->lock);
    return result;
}

void sg_extension_unreachable(ncclComm_t comm, const char *why)
{
    pthread_mutex_lock(&comm->clique->lock);
    sg_clique_fail_locked(comm->clique, ncclSystemError, "rank %d: %s", comm->rank, why);
    pthread_mutex_unlock(&comm->clique->lock);
}
