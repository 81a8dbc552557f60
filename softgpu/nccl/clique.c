/* clique.c - see clique.h. */
#include "softgpu/nccl/clique.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "softgpu/nccl/deadline.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 50000000 /* between looks whether the device has failed, for who waits for its streams */

/* --- failures ------------------------------------------------------------------------------------------- */

void sg_clique_fail_locked(struct sg_clique *clique, ncclResult_t error, const char *format, ...)
{
    if (clique->error != ncclSuccess)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(clique->why, sizeof clique->why, format, arguments);
    va_end(arguments);
    clique->error = error;
    sg_exchange_release(clique);
    pthread_cond_broadcast(&clique->changed);
    (void)sg_nccl_fail(error, "%s", clique->why);
    rg_warn("NCCL: %s", clique->why);
}

ncclResult_t sg_clique_failed(struct sg_clique *clique)
{
    pthread_mutex_lock(&clique->lock);
    const ncclResult_t error = clique->error;
    pthread_mutex_unlock(&clique->lock);
    return error;
}

ncclResult_t sg_clique_state(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    const ncclResult_t state = clique->error != ncclSuccess   ? clique->error
                               : clique->joined < clique->n   ? ncclInProgress
                               : comm->ended && comm->pending ? ncclInProgress
                                                              : ncclSuccess;
    pthread_mutex_unlock(&clique->lock);
    return state;
}

/* --- joining -------------------------------------------------------------------------------------------- */

static ncclComm_t new_comm(int rank, bool blocking)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm) {
        comm->rank = rank;
        comm->blocking = blocking;
    }
    return comm;
}

static struct sg_clique *new_clique(const ncclUniqueId *id, int n)
{
    struct sg_clique *clique = calloc(1, sizeof *clique);
    if (!clique)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&clique->lock, NULL);
    pthread_cond_init(&clique->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    clique->n = n;
    clique->began_ns = rg_now_ns();
    memcpy(clique->id, id->internal, sizeof clique->id);
    return clique;
}

static void add_member(struct sg_clique *clique, ncclComm_t comm)
{
    comm->clique = clique;
    clique->members[comm->rank] = comm;
    clique->joined++;
    pthread_cond_broadcast(&clique->changed);
}

/* The device and context that the communicator will use. */
static ncclResult_t take_context(ncclComm_t comm, bool primary)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    CUresult status = driver->p_cuCtxGetCurrent(&comm->context);
    if (status == CUDA_SUCCESS && !comm->context && !primary)
        status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) /* before the program has chosen one, the runtime's is the first */
        status =
            comm->context ? driver->p_cuCtxGetDevice(&comm->device) : driver->p_cuDeviceGet(&comm->device, 0);
    if (status == CUDA_SUCCESS && primary) {
        status = driver->p_cuDevicePrimaryCtxRetain(&comm->context, comm->device);
        comm->retained = status == CUDA_SUCCESS;
    }
    return status == CUDA_SUCCESS
               ? ncclSuccess
               : sg_nccl_fail(
                     ncclUnhandledCudaError,
                     "rank %d has no device: no context is current (CUDA error %d); call cudaSetDevice first",
                     comm->rank, status);
}

static void free_comm(ncclComm_t comm)
{
    if (comm->retained)
        (void)sg_nccl_driver()->p_cuDevicePrimaryCtxRelease(comm->device);
    free(comm->operators);
    free(comm);
}

/* The clique of the id, made if it is new; the list's lock is held. */
static ncclResult_t find_clique(const ncclUniqueId *id, int n, int rank, struct sg_clique **found)
{
    struct sg_clique *clique = *sg_cliques();
    while (clique && memcmp(clique->id, id->internal, sizeof clique->id) != 0)
        clique = clique->next;
    if (clique) {
        pthread_mutex_lock(&clique->lock);
        const bool there = clique->members[rank < clique->n ? rank : 0] != NULL,
                   full = clique->joined == clique->n;
        pthread_mutex_unlock(&clique->lock);
        if (clique->n != n)
            return sg_nccl_fail(ncclInvalidArgument, "rank %d wants %d ranks where others of its id want %d",
                                rank, n, clique->n);
        if (there || full)
            return sg_nccl_fail(ncclInvalidUsage,
                                "rank %d of this id is there already: each id is good for one communicator, "
                                "and each rank for one "
                                "of its members",
                                rank);
    } else {
        clique = new_clique(id, n);
        if (!clique)
            return sg_nccl_fail(ncclSystemError, "out of memory");
        clique->next = *sg_cliques();
        *sg_cliques() = clique;
    }
    *found = clique;
    return ncclSuccess;
}

ncclResult_t sg_clique_join(const ncclUniqueId *id, int n, int rank, bool blocking, bool primary,
                            ncclComm_t *out)
{
    ncclComm_t comm = new_comm(rank, blocking);
    if (!comm)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    struct sg_clique *clique = NULL;
    ncclResult_t result = take_context(comm, primary);
    if (result == ncclSuccess) {
        sg_cliques_lock();
        result = find_clique(id, n, rank, &clique);
        if (result == ncclSuccess) {
            pthread_mutex_lock(&clique->lock);
            add_member(clique, comm);
            pthread_mutex_unlock(&clique->lock);
        }
        sg_cliques_unlock();
    }
    if (result != ncclSuccess) {
        free_comm(comm);
        return result;
    }
    sg_deadline_watch();
    *out = comm;
    return ncclSuccess;
}

ncclResult_t sg_clique_wait_joined(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    while (clique->joined < clique->n && clique->error == ncclSuccess)
        pthread_cond_wait(&clique->changed, &clique->lock);
    const ncclResult_t result = clique->error;
    pthread_mutex_unlock(&clique->lock);
    return result;
}

/* --- splitting ------------------------------------------------------------------------------------------ */

struct sg_split {
    struct sg_split *next;
    uint64_t number; /* of the clique's splits */
    int entered, waited;
    bool done;
    ncclResult_t result;
    struct {
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

/* Makes the clique of one colour. False: out of memory. */
static bool make_part(const struct sg_clique *clique, struct sg_split *split, int color)
{
    int ranks[SG_NCCL_RANKS_MAX];
    const int n = ranks_of(split, clique->n, color, ranks);
    ncclUniqueId id;
    struct sg_clique *part = sg_nccl_new_id(&id) ? new_clique(&id, n) : NULL; /* nobody else learns it */
    bool whole = part != NULL;
    for (int rank = 0; whole && rank < n; rank++) {
        const ncclComm_t parent = clique->members[ranks[rank]];
        ncclComm_t comm = new_comm(rank, split->of[ranks[rank]].blocking);
        whole = comm != NULL;
        if (!whole)
            break;
        comm->context = parent->context;
        comm->device = parent->device;
        comm->retained = parent->retained && sg_nccl_driver()->p_cuDevicePrimaryCtxRetain(
                                                 &comm->context, comm->device) == CUDA_SUCCESS;
        split->of[ranks[rank]].comm = comm;
        add_member(part, comm);
    }
    if (!part)
        return false;
    sg_cliques_lock();
    part->next = *sg_cliques();
    *sg_cliques() = part;
    sg_cliques_unlock();
    return whole;
}

/* All ranks have entered. No lock is held: nobody else touches the split until it is done. */
static ncclResult_t make_parts(const struct sg_clique *clique, struct sg_split *split)
{
    for (int rank = 0; rank < clique->n; rank++)
        if (split->of[rank].color != NCCL_SPLIT_NOCOLOR && !split->of[rank].comm &&
            !make_part(clique, split, split->of[rank].color))
            return sg_nccl_fail(ncclSystemError, "out of memory");
    return ncclSuccess;
}

ncclResult_t sg_clique_split(ncclComm_t comm, int color, int key, bool blocking, ncclComm_t *out,
                             struct sg_split **entered)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    const uint64_t number = comm->splits++;
    struct sg_split *split = clique->splits;
    while (split && split->number != number)
        split = split->next;
    if (!split && (split = calloc(1, sizeof *split)) != NULL) {
        split->number = number;
        split->next = clique->splits;
        clique->splits = split;
    }
    bool last = false;
    if (split) {
        split->of[comm->rank].color = color;
        split->of[comm->rank].key = key;
        split->of[comm->rank].blocking = blocking;
        split->of[comm->rank].out = out;
        last = ++split->entered == clique->n;
    }
    pthread_mutex_unlock(&clique->lock);
    if (!split)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    if (last) {
        const ncclResult_t result = make_parts(clique, split);
        pthread_mutex_lock(&clique->lock);
        split->result = result;
        split->done = true;
        pthread_cond_broadcast(&clique->changed);
        pthread_mutex_unlock(&clique->lock);
    }
    *entered = split;
    return ncclSuccess;
}

ncclResult_t sg_clique_wait_split(ncclComm_t comm, struct sg_split *split)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    while (!split->done && clique->error == ncclSuccess)
        pthread_cond_wait(&clique->changed, &clique->lock);
    const ncclResult_t result = split->done ? split->result : clique->error;
    *split->of[comm->rank].out = split->of[comm->rank].comm;
    if (++split->waited == clique->n) {
        struct sg_split **at = &clique->splits;
        while (*at != split)
            at = &(*at)->next;
        *at = split->next;
        free(split);
    }
    pthread_mutex_unlock(&clique->lock);
    return result;
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Host functions do not run in a context that has failed: nothing is to be waited for then. */
static bool context_failed(ncclComm_t comm)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    CUcontext popped;
    if (driver->p_cuCtxPushCurrent(comm->context) != CUDA_SUCCESS)
        return true;
    const CUresult status = driver->p_cuStreamQuery(CU_STREAM_PER_THREAD);
    (void)driver->p_cuCtxPopCurrent(&popped);
    return status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY;
}

ncclResult_t sg_clique_wait_idle(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    bool failed = false;
    pthread_mutex_lock(&clique->lock);
    while (comm->pending && !failed) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&clique->changed, &clique->lock, &until) == 0)
            continue;
        pthread_mutex_unlock(&clique->lock);
        failed = context_failed(comm);
        pthread_mutex_lock(&clique->lock);
    }
    const ncclResult_t result = failed ? ncclUnhandledCudaError : clique->error;
    pthread_mutex_unlock(&clique->lock);
    return result;
}

/* The last rank has left. */
static void end_clique(struct sg_clique *clique)
{
    sg_exchange_fini(clique);
    while (clique->splits) {
        struct sg_split *split = clique->splits;
        clique->splits = split->next;
        free(split);
    }
    pthread_cond_destroy(&clique->changed);
    pthread_mutex_destroy(&clique->lock);
    free(clique);
}

ncclResult_t sg_clique_leave(ncclComm_t comm, bool abort)
{
    struct sg_clique *clique = comm->clique;
    if (abort) {
        pthread_mutex_lock(&clique->lock);
        sg_clique_fail_locked(clique, ncclRemoteError, "rank %d has aborted the communicator", comm->rank);
        pthread_mutex_unlock(&clique->lock);
    }
    const ncclResult_t idle = sg_clique_wait_idle(comm);
    const bool broken =
        idle == ncclUnhandledCudaError; /* steps that will never run name the communicator and its clique */
    sg_cliques_lock();
    pthread_mutex_lock(&clique->lock);
    const bool complete = clique->joined == clique->n;
    if (!complete) /* nobody else will come to it */
        sg_clique_fail_locked(clique, ncclRemoteError, "rank %d left before all had come", comm->rank);
    const bool last = ++clique->left == clique->joined;
    if (last)
        for (struct sg_clique **at = sg_cliques(); *at; at = &(*at)->next)
            if (*at == clique) {
                *at = clique->next;
                break;
            }
    pthread_mutex_unlock(&clique->lock);
    sg_cliques_unlock();
    if (last && !broken)
        end_clique(clique);
    if (!broken)
        free_comm(comm);
    return abort || idle == ncclRemoteError ? ncclSuccess : idle;
}
