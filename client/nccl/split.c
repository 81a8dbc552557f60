/* split.c - communicators that are made of the ranks of another one. See nccl.h. Any thread. */
#include "client/nccl/nccl.h"

static ncclResult_t fail(const char *function, ncclResult_t result, const char *why)
{
    return rg_nccl_fail(result, "%s: %s", function, why);
}

/* Begins one of comm's session: `wire` says how it is made, and `own` what all ranks of this process that make the same one name it by. */
static ncclResult_t begin(const char *function, ncclComm_t comm, const uint64_t own[16], bool blocking,
                          struct rg_nccl_beginning wire, ncclComm_t *out)
{
    ncclComm_t part = rg_nccl_comm_make(comm->session, own);
    if (!part)
        return rg_nccl_group_failed(fail(function, ncclSystemError,
                                         "there are too many communicators already, or there is no memory"));
    part->device = comm->device;
    part->blocking = blocking;
    wire.parent = comm->number;
    wire.blocking = blocking;
    return rg_nccl_group_failed(rg_nccl_group_begin(out, part, &wire));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    if (!comm || !out)
        return rg_nccl_group_failed(
            fail("ncclCommSplit", ncclInvalidArgument, "there is no communicator, or no place for one"));
    *out = NULL;
    bool blocking = config || comm->blocking; /* who says something takes nothing over */
    ncclResult_t result = rg_nccl_check_config(config, &blocking);
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = rg_nccl_fail(ncclInvalidArgument,
                              "ncclCommSplit: color %d: it is 0 or more, or NCCL_SPLIT_NOCOLOR", color);
    if (result != ncclSuccess)
        return rg_nccl_group_failed(result);
    const uint64_t own[16] = {comm->clique->whole, comm->splits++, (uint64_t)(unsigned)color};
    const struct rg_nccl_beginning wire = {.ranks = (uint32_t)color, .rank = (uint32_t)key};
    return begin("ncclCommSplit", comm, own, blocking, wire, out);
}

/* Two that are made of the same ranks are taken for one, which only means that calls of all of them are waited for. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n_excluded, ncclComm_t *out,
                            ncclConfig_t *config, int flags)
{
    struct rg_nccl_beginning wire = {.shrink =
                                         flags == NCCL_SHRINK_ABORT ? RG_NCCL_SHRINK_ABORT : RG_NCCL_SHRINK};
    enum { WORDS = sizeof wire.id / sizeof wire.id[0] };
    if (!comm || !out)
        return rg_nccl_group_failed(
            fail("ncclCommShrink", ncclInvalidArgument, "there is no communicator, or no place for one"));
    *out = NULL;
    bool blocking = config || comm->blocking; /* who says something takes nothing over */
    ncclResult_t result = rg_nccl_check_config(config, &blocking);
    const char *why = rg_nccl_exclude(excluded, n_excluded, comm->rank, comm->ranks, wire.id, WORDS);
    if (result == ncclSuccess && (why || flags & ~NCCL_SHRINK_ABORT))
        result = fail("ncclCommShrink", ncclInvalidArgument, why ? why : "unknown flags");
    if (result != ncclSuccess)
        return rg_nccl_group_failed(result);
    uint64_t own[16] = {comm->clique->whole, UINT64_MAX};
    for (int i = 0; i < WORDS; i++)
        own[2 + i % 14] ^= wire.id[i];
    return begin("ncclCommShrink", comm, own, blocking, wire, out);
}
