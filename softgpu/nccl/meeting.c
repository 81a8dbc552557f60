/* meeting.c - see meeting.h. */
#include "softgpu/nccl/meeting.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

struct meeting {
    struct meeting *next; /* the latest first */
    uint64_t key;
    int n, joined; /* n = 0: nobody has come */
    bool over;     /* the table was given, or it has failed */
    uint64_t began_ns;
    struct sg_wire_place *places; /* of each rank; process 0: it has not come */
    struct sg_peer **peers;       /* by which it has come; NULL: it is of this process */
};

static struct meeting *meetings;
static unsigned n_meetings;

static void free_ranks(struct meeting *meeting)
{
    free(meeting->places);
    free(meeting->peers);
    meeting->places = NULL;
    meeting->peers = NULL;
}

static void forget(struct meeting **at)
{
    struct meeting *meeting = *at;
    *at = meeting->next;
    free_ranks(meeting);
    free(meeting);
    n_meetings--;
}

bool sg_meeting_new(struct rg_nccl_id *id)
{
    struct meeting *meeting = calloc(1, sizeof *meeting);
    *id = (struct rg_nccl_id){.process = sg_process()};
    memcpy(id->magic, RG_NCCL_ID_MAGIC, sizeof id->magic);
    sg_own_place(id->place);
    if (!meeting || !id->process || getrandom(&id->key, sizeof id->key, 0) != sizeof id->key) {
        free(meeting);
        return false;
    }
    meeting->key = id->key;
    sg_cliques_lock();
    struct meeting **last = &meetings;
    while (n_meetings >= RG_NCCL_MEETINGS_MAX && (*last)->next)
        last = &(*last)->next;
    if (n_meetings >= RG_NCCL_MEETINGS_MAX)
        forget(last);
    meeting->next = meetings;
    meetings = meeting;
    n_meetings++;
    sg_cliques_unlock();
    return true;
}

static struct meeting *find(uint64_t key)
{
    struct meeting *meeting = meetings;
    while (meeting && meeting->key != key)
        meeting = meeting->next;
    return meeting;
}

/* --- what the ranks are told ---------------------------------------------------------------------------- */

/* `peer` NULL: this process. */
static void tell_failure(struct sg_peer *peer, uint64_t key, ncclResult_t error, const char *why)
{
    struct sg_clique *clique = peer ? NULL : sg_clique_by_key(key);
    const struct sg_wire wire = {.type = SG_WIRE_FAIL, .clique = key, .rank = (int)error};
    if (peer)
        sg_peer_tell(peer, &wire, why, strlen(why) + 1);
    if (!clique)
        return;
    pthread_mutex_lock(&clique->lock);
    sg_clique_fail_locked(clique, error, "%s", why);
    pthread_mutex_unlock(&clique->lock);
}

/* Whether no rank before this one is of its process. */
static bool is_first_of_process(const struct meeting *meeting, int rank)
{
    for (int other = 0; other < rank; other++)
        if (meeting->places[other].process == meeting->places[rank].process)
            return false;
    return meeting->places[rank].process != 0;
}

static void end(struct meeting *meeting)
{
    meeting->over = true;
    free_ranks(meeting);
}

static void fail(struct meeting *meeting, ncclResult_t error, const char *why)
{
    for (int rank = 0; rank < meeting->n; rank++)
        if (is_first_of_process(meeting, rank))
            tell_failure(meeting->peers[rank], meeting->key, error, why);
    end(meeting);
}

/* All have come. */
static void give_tables(struct meeting *meeting)
{
    const struct sg_wire wire = {.type = SG_WIRE_TABLE, .clique = meeting->key, .ranks = meeting->n};
    const size_t size = (size_t)meeting->n * sizeof *meeting->places;
    for (int rank = 0; rank < meeting->n; rank++) {
        if (!is_first_of_process(meeting, rank))
            continue;
        struct sg_peer *peer = meeting->peers[rank];
        struct sg_clique *clique = peer ? NULL : sg_clique_by_key(meeting->key);
        if (peer)
            sg_peer_tell(peer, &wire, meeting->places, size);
        if (!clique)
            continue;
        pthread_mutex_lock(&clique->lock);
        (void)sg_clique_place(clique, NULL, meeting->peers, &wire, meeting->places, size);
        pthread_mutex_unlock(&clique->lock);
    }
    end(meeting);
}

/* --- joining -------------------------------------------------------------------------------------------- */

/* Whether another rank of that process has come by another way: then somebody claims to be what it is not. */
static bool is_known_otherwise(const struct meeting *meeting, uint64_t process, const struct sg_peer *peer)
{
    for (int rank = 0; rank < meeting->n; rank++)
        if (meeting->places[rank].process == process && meeting->peers[rank] != peer)
            return true;
    return false;
}

static bool make_ranks(struct meeting *meeting, int n)
{
    meeting->places = calloc((size_t)n, sizeof *meeting->places);
    meeting->peers = calloc((size_t)n, sizeof(struct sg_peer *));
    if (!meeting->places || !meeting->peers) {
        free_ranks(meeting);
        return false;
    }
    meeting->n = n;
    meeting->began_ns = rg_now_ns();
    return true;
}

static ncclResult_t join(uint64_t key, int rank, int n, const struct sg_wire_place *place,
                         struct sg_peer *peer, char why[SG_NCCL_WHY])
{
    struct meeting *meeting = find(key);
    if (!meeting) {
        snprintf(why, SG_NCCL_WHY,
                 "the id of rank %d is none that was made in the process that it names: get one by "
                 "ncclGetUniqueId",
                 rank);
        return ncclInvalidArgument;
    }
    if (meeting->n && meeting->n != n) {
        snprintf(why, SG_NCCL_WHY, "rank %d wants %d ranks where others of its id want %d", rank, n,
                 meeting->n);
        return ncclInvalidArgument;
    }
    if (meeting->over || (meeting->n && meeting->places[rank].process)) {
        snprintf(
            why, SG_NCCL_WHY,
            "rank %d of this id is there already: each id is good for one communicator, and each rank for "
            "one of its members",
            rank);
        return ncclInvalidUsage;
    }
    if (is_known_otherwise(meeting, place->process, peer)) {
        snprintf(why, SG_NCCL_WHY, "rank %d comes by another connection than other ranks of its process",
                 rank);
        return ncclInvalidUsage;
    }
    if (!meeting->n && !make_ranks(meeting, n)) {
        snprintf(why, SG_NCCL_WHY, "out of memory");
        return ncclSystemError;
    }
    meeting->places[rank] = *place;
    meeting->peers[rank] = peer;
    if (++meeting->joined == n)
        give_tables(meeting);
    return ncclSuccess;
}

ncclResult_t sg_meeting_join(uint64_t key, int rank, int n, char why[SG_NCCL_WHY])
{
    struct sg_wire_place place = {.process = sg_process()};
    sg_own_place(place.place);
    return join(key, rank, n, &place, NULL, why);
}

bool sg_meeting_joins(struct sg_peer *peer, const struct sg_wire *wire, const void *behind, size_t size)
{
    struct sg_wire_place place;
    char why[SG_NCCL_WHY];
    if (size != sizeof place || wire->ranks < 1 || wire->ranks > SG_NCCL_RANKS_MAX || wire->rank < 0 ||
        wire->rank >= wire->ranks)
        return false;
    memcpy(&place, behind, sizeof place);
    if (place.process != sg_peer_process(peer))
        return false;
    sg_cliques_lock();
    const ncclResult_t result = join(wire->clique, wire->rank, wire->ranks, &place, peer, why);
    if (result != ncclSuccess)
        tell_failure(peer, wire->clique, result, why);
    sg_cliques_unlock();
    return true;
}

/* --- those who do not come ------------------------------------------------------------------------------ */

void sg_meeting_failed(uint64_t key, ncclResult_t error, const char *why)
{
    struct meeting *meeting = find(key);
    if (meeting && !meeting->over)
        fail(meeting, error, why);
}

void sg_meetings_lost(struct sg_peer *peer)
{
    char why[SG_NCCL_WHY];
    for (struct meeting *meeting = meetings; meeting; meeting = meeting->next)
        for (int rank = 0; !meeting->over && rank < meeting->n; rank++)
            if (meeting->peers[rank] == peer) {
                snprintf(why, sizeof why,
                         "the process of rank %d ended, or its connection, before all had come", rank);
                fail(meeting, ncclRemoteError, why);
            }
}

/* Whether the clique of this process has failed meanwhile: then all are told. */
static bool fail_as_here(struct meeting *meeting)
{
    struct sg_clique *clique = sg_clique_by_key(meeting->key);
    const ncclResult_t error = clique ? sg_clique_failed(clique) : ncclSuccess;
    if (error != ncclSuccess)
        fail(meeting, error, clique->why);
    return error != ncclSuccess;
}

void sg_meetings_look(uint64_t since_ns, double seconds)
{
    for (struct meeting *meeting = meetings; meeting; meeting = meeting->next) {
        char missing[200] = "", why[SG_NCCL_WHY];
        int length = 0;
        if (meeting->over || !meeting->n || fail_as_here(meeting) || meeting->began_ns >= since_ns)
            continue;
        for (int rank = 0; rank < meeting->n && (size_t)length < sizeof missing; rank++)
            if (!meeting->places[rank].process)
                length += snprintf(missing + length, sizeof missing - (size_t)length, "%s%d",
                                   length ? ", " : "", rank);
        snprintf(why, sizeof why,
                 "a communicator of %d ranks did not begin within %g s: rank %s did not come", meeting->n,
                 seconds, missing);
        fail(meeting, ncclSystemError, why);
    }
}
