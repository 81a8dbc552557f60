/* join.c - see clique.h: a rank joins an id, and with it the clique that the id is of. */
#include "softgpu/nccl/clique.h"

#include "common/base/status.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/meeting.h"
#include "softgpu/nccl/peer.h"

#include <string.h>

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

/* The clique of the id, made if it is new; the list's lock is held. */
static ncclResult_t find_clique(const struct rg_nccl_id *id, int n, int rank, struct sg_clique **found)
{
    struct sg_clique *clique = sg_clique_by_key(id->key);
    if (clique) {
        pthread_mutex_lock(&clique->lock);
        const bool there = clique->members[rank < clique->n ? rank : 0] != NULL, placed = clique->placed;
        const ncclResult_t error = clique->error;
        pthread_mutex_unlock(&clique->lock);
        if (error != ncclSuccess)
            return sg_nccl_fail(error, "%s", clique->why);
        if (clique->n != n)
            return sg_nccl_fail(ncclInvalidArgument, "rank %d wants %d ranks where others of its id want %d",
                                rank, n, clique->n);
        if (there || placed)
            return sg_nccl_fail(ncclInvalidUsage,
                                "rank %d of this id is there already: each id is good for one communicator, "
                                "and each rank for one of its members",
                                rank);
    } else {
        clique = sg_clique_new(id->key, n);
        if (!clique)
            return sg_nccl_fail(ncclSystemError, "out of memory");
        clique->root.process = id->process;
        memcpy(clique->root.place, id->place, sizeof clique->root.place);
        clique->root_peer = sg_peer_at(&clique->root);
        sg_clique_enter(clique);
    }
    *found = clique;
    return ncclSuccess;
}

/* Takes a member out again, which could not join; the list's lock is held. */
static void remove_member(struct sg_clique *clique, ncclComm_t comm)
{
    pthread_mutex_lock(&clique->lock);
    clique->members[comm->rank] = NULL;
    const bool empty = --clique->joined == 0 && !clique->users;
    pthread_mutex_unlock(&clique->lock);
    if (empty) {
        sg_clique_drop(clique);
    }
}

/* The list's lock is held. */
static ncclResult_t join(const struct rg_nccl_id *id, int n, int rank, ncclComm_t comm)
{
    struct sg_clique *clique = NULL;
    char why[SG_NCCL_WHY];
    RG_TRY(find_clique(id, n, rank, &clique));
    pthread_mutex_lock(&clique->lock);
    sg_clique_add_member(clique, comm);
    if (clique->root_peer)
        sg_clique_join_far(clique, rank);
    pthread_mutex_unlock(&clique->lock);
    if (id->process != sg_process())
        return ncclSuccess; /* how that went is told later */
    const ncclResult_t result = sg_meeting_join(id->key, rank, n, why);
    if (result == ncclSuccess)
        return ncclSuccess;
    remove_member(clique, comm);
    return sg_nccl_fail(result, "%s", why);
}

ncclResult_t sg_clique_join(const ncclUniqueId *given, int n, int rank, bool blocking, bool primary,
                            ncclComm_t *out)
{
    struct rg_nccl_id id;
    memcpy(&id, given, sizeof id);
    if (!rg_nccl_id_is_ours(given))
        return sg_nccl_fail(ncclInvalidArgument,
                            "rank %d: the id was not made by the NCCL of a software device", rank);
    if (id.process != sg_process() && !sg_has_network())
        return sg_nccl_fail(
            ncclSystemError,
            "rank %d: the id was made in another process: ranks in several processes find each "
            "other as clients of remote-gpud alone",
            rank);
    ncclComm_t comm = sg_comm_new(rank, blocking);
    if (!comm)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    ncclResult_t result = take_context(comm, primary);
    if (result == ncclSuccess) {
        sg_cliques_lock();
        result = join(&id, n, rank, comm);
        sg_cliques_unlock();
    }
    if (result != ncclSuccess) {
        sg_comm_free(comm);
        return result;
    }
    *out = comm;
    return ncclSuccess;
}

ncclResult_t sg_clique_wait_joined(ncclComm_t comm)
{
    struct sg_clique *clique = comm->clique;
    pthread_mutex_lock(&clique->lock);
    sg_comm_enter(comm);
    while (!sg_clique_has_begun(clique) && clique->error == ncclSuccess)
        pthread_cond_wait(&clique->changed, &clique->lock);
    const ncclResult_t result = clique->error;
    const bool others = comm->aborted;
    sg_comm_exit(comm);
    pthread_mutex_unlock(&clique->lock);
    if (result != ncclSuccess && !others)
        (void)sg_clique_leave(comm, true);
    return result;
}
