/* messages.c - collectives that are messages between ranks (common/cuda/nccl_messages.h). Any thread. */
#include "common/cuda/nccl_messages.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/group.h"

static const struct rg_nccl_messages functions = {sg_ncclGroupStart, sg_ncclGroupEnd, sg_ncclSend,
                                                  sg_ncclRecv};

static ncclResult_t no_communicator(const char *name)
{
    return sg_group_failed(sg_nccl_fail(ncclInvalidArgument, "%s: there is no communicator", name));
}

ncclResult_t sg_ncclAlltoAll(const void *send, void *receive, size_t count, ncclDataType_t type,
                             ncclComm_t comm, CUstream stream)
{
    if (!comm)
        return no_communicator("ncclAlltoAll");
    const struct rg_nccl_exchanged all =
        rg_nccl_all_to_all(send, receive, count, type, comm->rank, comm->clique->n);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}

ncclResult_t sg_ncclGather(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream)
{
    if (!comm)
        return no_communicator("ncclGather");
    const struct rg_nccl_exchanged all =
        rg_nccl_gather(send, receive, count, type, root, comm->rank, comm->clique->n);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}

ncclResult_t sg_ncclScatter(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, CUstream stream)
{
    if (!comm)
        return no_communicator("ncclScatter");
    const struct rg_nccl_exchanged all =
        rg_nccl_scatter(send, receive, count, type, root, comm->rank, comm->clique->n);
    return rg_nccl_exchange(&functions, &all, comm, stream);
}
