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

void sg_clique_take_early(struct sg_clique *clique)
{
    bool ready;
    for (struct sg_peer *peer; clique->placed && (peer = sg_peer_take_early(clique->key, &ready));)
        (void)sg_clique_meets(clique, peer, ready);
}

/* Of each pair of processes, the one with the lower number sees to the link, and says then that it is the clique's (MEET). */
static bool is_made_here(const struct sg_wire_place *place)
{
    return sg_process() < place->process;
}

/* The process that says it has made the link for the clique; NULL: none is to, or it has one already. */
static struct sg_far *find_maker(const struct sg_clique *clique, const struct sg_peer *peer)
{
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].place.process == sg_peer_process(peer) && !clique->far[i].peer &&
            !is_made_here(&clique->far[i].place))
            return &clique->far[i];
    return NULL;
}

/* Links may come when the clique has failed already. */
static void tell_failure(const struct sg_clique *clique, struct sg_peer *peer)
{
    if (clique->error != ncclSuccess)
        sg_peer_tell(
            peer, &(struct sg_wire){.type = SG_WIRE_FAIL, .clique = clique->key, .rank = (int)clique->error},
            clique->why, strlen(clique->why) + 1);
}

bool sg_clique_meets(struct sg_clique *clique, struct sg_peer *peer, bool ready)
{
    if (!clique->placed) {
        sg_peer_note_early(peer, clique->key, ready);
        return true;
    }
    const int at = sg_clique_far_of(clique, peer);
    struct sg_far *far = at >= 0 ? &clique->far[at] : ready ? NULL : find_maker(clique, peer);
    if (!far)
        return clique->error != ncclSuccess; /* who has lost its link may still speak */
    if (at < 0) {
        far->peer = peer;
        tell_failure(clique, peer);
    }
    far->ready |= ready;
    sg_clique_say_ready(clique);
    pthread_cond_broadcast(&clique->changed);
    return true;
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
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].peer == peer)
            return i;
    return -1;
}

/* A link that was made to the process's place is the clique's from now on, of which the other end is told. */
static void take_made(const struct sg_clique *clique, struct sg_far *far, struct sg_peer *peer)
{
    far->peer = peer;
    if (peer)
        sg_peer_tell(peer, &(struct sg_wire){.type = SG_WIRE_MEET, .clique = clique->key}, NULL, 0);
}

/* `joined`: by which link the process has joined here; NULL: it has not. */
static void add_far(struct sg_clique *clique, int rank, const struct sg_wire_place *place,
                    struct sg_peer *joined)
{
    int at = 0;
    while (at < clique->n_far && clique->far[at].place.process != place->process)
        at++;
    struct sg_far *far = &clique->far[at];
    if (at == clique->n_far) {
        clique->n_far++;
        *far = (struct sg_far){.place = *place, .peer = joined, .asked = !is_made_here(place)};
        if (place->process == clique->root.process)
            far->peer = clique->root_peer;
        else if (!joined && is_made_here(place))
            take_made(clique, far, sg_peer_at(place));
    }
    far->n_ranks++;
    clique->at[rank] = (int8_t)at;
}

bool sg_clique_place(struct sg_clique *clique, const struct sg_peer *peer, struct sg_peer *const *joined,
                     const struct sg_wire *wire, const void *places, size_t size)
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
            add_far(clique, rank, &of[rank], joined ? joined[rank] : NULL);
    clique->placed = true;
    sg_clique_take_early(clique);
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

/* Whether the clique waits for a link to that place, and this is one. */
static bool is_awaited(const struct sg_wire_place *place, const struct sg_peer *link, uint64_t process,
                       const struct sg_peer *peer)
{
    return !link && place->process == process && sg_peer_leads_to(peer, place);
}

static bool is_root_awaited(const struct sg_clique *clique, uint64_t process, const struct sg_peer *peer)
{
    return !clique->placed && is_awaited(&clique->root, clique->root_peer, process, peer);
}

/* Of the table. */
static struct sg_far *find_awaited(const struct sg_clique *clique, uint64_t process,
                                   const struct sg_peer *peer)
{
    for (int i = 0; i < clique->n_far; i++)
        if (is_made_here(&clique->far[i].place) &&
            is_awaited(&clique->far[i].place, clique->far[i].peer, process, peer))
            return &clique->far[i];
    return NULL;
}

static void meet(struct sg_clique *clique, struct sg_peer *peer, struct sg_far *far)
{
    if (far) {
        take_made(clique, far, peer);
        sg_clique_say_ready(clique);
        return;
    }
    clique->root_peer = peer;
    for (int rank = 0; rank < clique->n; rank++)
        if (clique->members[rank])
            sg_clique_join_far(clique, rank);
}

void sg_cliques_met(struct sg_peer *peer, uint64_t process, unsigned version, unsigned protocol)
{
    for (struct sg_clique *clique = *sg_cliques(); clique; clique = clique->next) {
        pthread_mutex_lock(&clique->lock);
        struct sg_far *far = find_awaited(clique, process, peer);
        const bool needed = far || is_root_awaited(clique, process, peer);
        if (needed && version)
            sg_clique_fail_locked(clique, ncclInvalidUsage,
                                  "servers have different versions of NCCL: %d.%d.%d here (protocol %u), "
                                  "%u.%u.%u there (protocol %u)",
                                  NCCL_VERSION_CODE / 10000, NCCL_VERSION_CODE / 100 % 100,
                                  NCCL_VERSION_CODE % 100, SG_WIRE_PROTOCOL, version / 10000,
                                  version / 100 % 100, version % 100, protocol);
        else if (needed)
            meet(clique, peer, far);
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
        if (at >= 0) {
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
    if (!clique->placed && clique->root.process != sg_process() && !clique->root_peer &&
        !clique->root_asked) {
        clique->root_asked = true;
        memcpy(places[n++], clique->root.place, sizeof clique->root.place);
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
