/* clique.c - see clique.h: what a clique is, how it fails and ends. How ranks come to it: join.c. */
#include "softgpu/nccl/clique.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/far.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/meeting.h"
#include "softgpu/nccl/peer.h"
#include "softgpu/nccl/split.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STUCK_NS 2000000000ull /* that a message, once begun, may go on when the clique has failed */
#define LOOK_NS  50000000 /* between looks whether the device has failed, for who waits for its streams */

/* --- failures ------------------------------------------------------------------------------------------- */

void sg_clique_tell_all(const struct sg_clique *clique, const struct sg_wire *wire, const void *behind,
                        size_t size)
{
    if (!clique->placed && clique->root_peer)
        sg_peer_tell(clique->root_peer, wire, behind, size);
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].peer && !clique->far[i].gone)
            sg_peer_tell(clique->far[i].peer, wire, behind, size);
}

void sg_clique_fail_locked(struct sg_clique *clique, ncclResult_t error, const char *format, ...)
{
    if (clique->error != ncclSuccess)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(clique->why, sizeof clique->why, format, arguments);
    va_end(arguments);
    clique->error = error;
    clique->failed_ns = rg_now_ns();
    sg_exchange_release(clique);
    pthread_cond_broadcast(&clique->changed);
    sg_clique_tell_all(clique,
                       &(struct sg_wire){.type = SG_WIRE_FAIL, .clique = clique->key, .rank = (int)error},
                       clique->why, strlen(clique->why) + 1);
    (void)sg_nccl_fail(error, "%s", clique->why);
    rg_warn("NCCL: %s", clique->why);
}

void sg_clique_told_failure(struct sg_clique *clique, int error, const void *text, size_t size)
{
    char why[SG_NCCL_WHY] = "";
    memcpy(why, text, size < sizeof why ? size : sizeof why - 1);
    rg_printable_clean(why);
    /* an error of CUDA's would say that this process's streams have stopped */
    const bool known = error > ncclUnhandledCudaError && error < ncclInProgress;
    sg_clique_fail_locked(clique, known ? (ncclResult_t)error : ncclRemoteError, "%s", why);
}

void sg_clique_end_stuck(const struct sg_clique *clique)
{
    if (!sg_exchange_is_stuck(clique) || rg_now_ns() - clique->failed_ns < STUCK_NS)
        return;
    for (int i = 0; i < clique->n_far; i++)
        if (clique->far[i].peer)
            sg_peer_interrupt(clique->far[i].peer);
}

ncclResult_t sg_clique_failed(struct sg_clique *clique)
{
    pthread_mutex_lock(&clique->lock);
    const ncclResult_t error = clique->error;
    pthread_mutex_unlock(&clique->lock);
    return error;
}

bool sg_clique_has_begun(const struct sg_clique *clique)
{
    bool begun = clique->placed && clique->joined == clique->here;
    for (int i = 0; i < clique->n_far && begun; i++)
        begun = clique->far[i].ready;
    return begun;
}

ncclResult_t sg_clique_state(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    const ncclResult_t state = clique->error != ncclSuccess   ? clique->error
                               : !sg_clique_has_begun(clique) ? ncclInProgress
                               : comm->ended && comm->pending ? ncclInProgress
                                                              : ncclSuccess;
    pthread_mutex_unlock(&clique->lock);
    return state;
}

ncclResult_t sg_clique_usable(ncclComm_t comm, const char *function)
{
    const ncclResult_t state = sg_clique_state(comm);
    return state == ncclInProgress
               ? sg_nccl_fail(ncclInvalidArgument,
                              "%s: the communicator is still beginning: not all ranks have come", function)
               : state;
}

/* --- the end of a clique -------------------------------------------------------------------------------- */

static void drop_from_list(const struct sg_clique *clique)
{
    for (struct sg_clique **at = sg_cliques(); *at; at = &(*at)->next)
        if (*at == clique) {
            *at = clique->next;
            return;
        }
}

/* Nobody knows it any more. */
static void end_clique(struct sg_clique *clique)
{
    sg_exchange_fini(clique);
    sg_far_fini(clique);
    sg_splits_fini(clique);
    pthread_cond_destroy(&clique->changed);
    pthread_mutex_destroy(&clique->lock);
    free(clique->far);
    free(clique);
}

void sg_clique_drop(struct sg_clique *clique)
{
    drop_from_list(clique);
    end_clique(clique);
}

static __thread bool in_stream; /* this thread runs a host function, which may free no page-locked memory */
static struct sg_clique *_Atomic over; /* cliques that somebody else is to end */

void sg_clique_enter_stream(bool enters)
{
    in_stream = enters;
}

void sg_cliques_end_left(void)
{
    for (struct sg_clique *clique = atomic_exchange(&over, NULL), *next; clique; clique = next) {
        next = clique->next;
        end_clique(clique);
    }
}

void sg_clique_unuse(struct sg_clique *clique)
{
    const bool last = --clique->users == 0 && clique->over;
    pthread_cond_broadcast(&clique->changed);
    pthread_mutex_unlock(&clique->lock);
    if (!last)
        return;
    if (!in_stream) {
        end_clique(clique);
        return;
    }
    clique->next = over;
    while (!atomic_compare_exchange_weak(&over, &clique->next, clique))
        ;
}

/*
 * The last member has left: what other processes are still to get of it is sent, and they are told. The list's lock is held, and given
 * up meanwhile. Whether the clique is the caller's to end; else who is still at work for it does that, or (`broken`) nobody can.
 */
static bool finish(struct sg_clique *clique, bool broken)
{
    const struct sg_peer *told[SG_NCCL_RANKS_MAX];
    sg_cliques_unlock();
    pthread_mutex_lock(&clique->lock);
    while (clique->n_far && clique->exchanges && clique->error == ncclSuccess && !broken)
        pthread_cond_wait(&clique->changed, &clique->lock);
    pthread_mutex_unlock(&clique->lock);
    sg_cliques_lock();
    drop_from_list(clique);
    pthread_mutex_lock(&clique->lock);
    sg_clique_tell_all(clique, &(struct sg_wire){.type = SG_WIRE_LEAVE, .clique = clique->key}, NULL, 0);
    for (int i = 0; i < clique->n_far; i++) {
        told[i] = clique->far[i].peer;
        clique->far[i].peer = NULL; /* who is not in the list is not told when one is lost */
    }
    const bool failed = clique->error != ncclSuccess;
    pthread_mutex_unlock(&clique->lock);
    for (int i = 0; i < clique->n_far; i++)
        sg_peer_flush(told[i]);
    if (clique->root.process == sg_process() && failed)
        sg_meeting_failed(clique->key, clique->error, clique->why);
    pthread_mutex_lock(&clique->lock);
    clique->over = !broken;
    const bool free_now = !broken && !clique->users;
    pthread_mutex_unlock(&clique->lock);
    return free_now;
}

/* --- what a clique is made of ---------------------------------------------------------------------------- */

ncclComm_t sg_comm_new(int rank, bool blocking)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm) {
        comm->rank = rank;
        comm->blocking = blocking;
    }
    return comm;
}

struct sg_clique *sg_clique_new(uint64_t key, int n)
{
    struct sg_clique *clique = calloc(1, sizeof *clique);
    if (!clique)
        return NULL;
    pthread_mutex_init(&clique->lock, NULL);
    rg_cond_init(&clique->changed);
    clique->exchanges_end = &clique->exchanges;
    clique->key = key;
    clique->root.process = sg_process();
    memset(clique->at, -1, sizeof clique->at);
    clique->n = n;
    clique->began_ns = rg_now_ns();
    return clique;
}

void sg_clique_add_member(struct sg_clique *clique, ncclComm_t comm)
{
    comm->clique = clique;
    clique->members[comm->rank] = comm;
    clique->joined++;
    pthread_cond_broadcast(&clique->changed);
}

void sg_comm_free(ncclComm_t comm)
{
    if (comm->retained)
        (void)sg_nccl_driver()->p_cuDevicePrimaryCtxRelease(comm->device);
    sg_shrinks_fini(comm);
    free(comm->operators);
    free(comm);
}

struct sg_clique *sg_clique_by_key(uint64_t key)
{
    struct sg_clique *clique = *sg_cliques();
    while (clique && clique->key != key)
        clique = clique->next;
    return clique;
}

void sg_clique_enter(struct sg_clique *clique)
{
    clique->next = *sg_cliques();
    *sg_cliques() = clique;
    pthread_mutex_lock(&clique->lock);
    sg_clique_take_early(clique);
    for (int i = 0; i < clique->n_far; i++)
        if (!clique->far[i].peer)
            sg_clique_fail_locked(clique, ncclRemoteError, "the connection to another process has ended");
    sg_clique_say_ready(clique);
    pthread_mutex_unlock(&clique->lock);
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
    sg_comm_enter(comm);
    while (comm->pending && !failed) {
        const struct timespec until = rg_timespec(rg_now_ns() + LOOK_NS);
        if (pthread_cond_timedwait(&clique->changed, &clique->lock, &until) == 0)
            continue;
        sg_clique_end_stuck(clique);
        pthread_mutex_unlock(&clique->lock);
        failed = context_failed(comm);
        pthread_mutex_lock(&clique->lock);
    }
    const ncclResult_t result = failed ? ncclUnhandledCudaError : clique->error;
    sg_comm_exit(comm);
    pthread_mutex_unlock(&clique->lock);
    return result;
}

static void abort_locked(ncclComm_t comm)
{
    sg_clique_fail_locked(comm->clique, ncclRemoteError, "rank %d has aborted the communicator", comm->rank);
}

void sg_clique_abort(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->clique->lock);
    abort_locked(comm);
    pthread_mutex_unlock(&comm->clique->lock);
}

/* Nothing goes on for those who wait for something of it; they leave it to the caller. */
static void take_from_others(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    abort_locked(comm);
    comm->aborted = true;
    pthread_cond_broadcast(&clique->changed);
    while (comm->inside)
        pthread_cond_wait(&clique->changed, &clique->lock);
    pthread_mutex_unlock(&clique->lock);
}

ncclResult_t sg_clique_leave(ncclComm_t comm, bool abort)
{
    struct sg_clique *clique = comm->clique;
    if (abort)
        take_from_others(comm);
    const ncclResult_t idle = sg_clique_wait_idle(comm);
    const bool broken =
        idle == ncclUnhandledCudaError; /* steps that will never run name the communicator and its clique */
    sg_cliques_lock();
    pthread_mutex_lock(&clique->lock);
    if (!sg_clique_has_begun(clique)) /* nobody else will come to it */
        sg_clique_fail_locked(clique, ncclRemoteError, "rank %d left before all had come", comm->rank);
    const bool last = ++clique->left == clique->joined;
    pthread_mutex_unlock(&clique->lock);
    if (last) {
        const bool ended = finish(clique, broken);
        sg_cliques_unlock();
        if (ended)
            end_clique(clique);
    } else {
        sg_cliques_unlock();
    }
    sg_cliques_end_left();
    if (!broken)
        sg_comm_free(comm);
    return abort || idle == ncclRemoteError ? ncclSuccess : idle;
}
