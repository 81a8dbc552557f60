/* messages.c - collectives that are messages between ranks (common/cuda/nccl_messages.h). See nccl.h. Any thread. */
#include "client/nccl/nccl.h"
#include "common/cuda/nccl_messages.h"

static const struct rg_nccl_messages functions = {ncclGroupStart, ncclGroupEnd, ncclSend, ncclRecv};

static ncclResult_t no_communicator(const char *name)
{
    return rg_nccl_group_failed(rg_nccl_fail(ncclInvalidArgument, "%s: there is no communicator", name));
}

ncclResult_t ncclAlltoAll(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                          CUstream stream)
{
    if (!comm)
        return no_communicator("ncclAlltoAll");
    const struct rg_nccl_exchanged all =
        rg_nccl_all_to_all(send, receive, count, type, comm->rank, comm->ranks);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}

ncclResult_t ncclGather(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, CUstream stream)
{
    if (!comm)
        return no_communicator("ncclGather");
    const struct rg_nccl_exchanged all =
        rg_nccl_gather(send, receive, count, type, root, comm->rank, comm->ranks);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}

ncclResult_t ncclScatter(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, CUstream stream)
{
    if (!comm)
        return no_communicator("ncclScatter");
    const struct rg_nccl_exchanged all =
        rg_nccl_scatter(send, receive, count, type, root, comm->rank, comm->ranks);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}
