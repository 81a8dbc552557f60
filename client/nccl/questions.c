/*
 * questions.c - what is asked about communicators. See nccl.h. Any thread.
 *
 * What one is, is known here; whether it has begun, and how it has failed, its worker knows. One that does not block is asked about until it
 * has been told to be at rest.
 */
#include "client/core/home.h"
#include "client/nccl/nccl.h"
#include "client/nccl/rendezvous.h"
#include "generated/client/operations.h"

static ncclResult_t ask(ncclComm_t comm)
{
    int state = ncclSystemError;
    const CUresult status = rg_op_rgNcclState(comm->number, &state, rg_home_of_session(comm->session));
    const ncclResult_t error = rg_nccl_answered(comm->session, "ncclCommGetAsyncError", status, state);
    if (error != ncclInProgress)
        atomic_store(&comm->failed, error);
    return error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm || !error)
        return ncclInvalidArgument;
    rg_nccl_comm_hold(comm);
    if (atomic_load(&comm->begun)) {
        *error = ask(comm);
    } else {
        *error = rg_nccl_rendezvous(comm, false);
        atomic_store(&comm->begun, *error == ncclSuccess);
    }
    atomic_store(&comm->ready, *error == ncclSuccess);
    rg_nccl_comm_let_go(comm);
    return ncclSuccess;
}

ncclResult_t rg_nccl_ready(const char *function, ncclComm_t comm)
{
    ncclResult_t state = atomic_load(&comm->failed);
    if (state == ncclSuccess && !comm->blocking && !atomic_load(&comm->ready))
        (void)ncclCommGetAsyncError(comm, &state);
    return state == ncclInProgress
               ? rg_nccl_fail(ncclInvalidArgument,
                              "%s: the communicator is still beginning: not all ranks have come", function)
               : state;
}

static ncclResult_t tell(const char *function, ncclComm_t comm, int *to, int value)
{
    if (!comm || !to)
        return ncclInvalidArgument;
    const ncclResult_t ready = rg_nccl_ready(function, comm);
    if (ready == ncclSuccess)
        *to = value;
    return ready;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return tell("ncclCommCount", comm, count, comm ? comm->ranks : 0);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return tell("ncclCommCuDevice", comm, device, comm ? comm->device : 0);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return tell("ncclCommUserRank", comm, rank, comm ? comm->rank : 0);
}
