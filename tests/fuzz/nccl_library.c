/*
 * nccl_library.c - NCCL for the fuzzer of the worker, in the place of server/nccl/library.c: what it is given as a rank's buffer is memory
 * of the session (driver.h), as much as a rank of a real one would read or write. It waits for nobody. Any thread.
 */
#include "server/nccl/library.h"
#include "tests/check.h"
#include "tests/fuzz/driver.h"

#include <stdatomic.h>
#include <stdint.h>

enum { RANKS_MAX = 1024 };

/* --- communicators, which are numbers ------------------------------------------------------------------------------- */

static ncclComm_t make(int ranks, int rank)
{
    static atomic_uint made;
    return (ncclComm_t)(uintptr_t)((uint64_t)(atomic_fetch_add(&made, 1) + 1) << 32 | (uint64_t)ranks << 16 |
                                   (uint64_t)rank);
}

static int ranks_of(ncclComm_t comm)
{
    return (int)((uintptr_t)comm >> 16 & 0xffff);
}

static int rank_of(ncclComm_t comm)
{
    return (int)((uintptr_t)comm & 0xffff);
}

static ncclResult_t answer(void)
{
    return fuzz_refuses() ? ncclInvalidUsage : ncclSuccess;
}

static ncclResult_t begin_rank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)id, (void)config;
    if (ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks || fuzz_refuses())
        return ncclInvalidArgument;
    *comm = make(ranks, rank);
    return ncclSuccess;
}

/* Whose colour is odd is the last of half of the ranks. */
static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    const int ranks = color & 1 ? (ranks_of(comm) + 1) / 2 : ranks_of(comm);
    (void)key, (void)config;
    *out = color == NCCL_SPLIT_NOCOLOR ? NULL : make(ranks, color & 1 ? ranks - 1 : rank_of(comm));
    return answer();
}

static ncclResult_t shrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *out, ncclConfig_t *config,
                           int how)
{
    (void)config, (void)how;
    for (int i = 0; i < n; i++)
        CHECK(excluded[i] >= 0 && excluded[i] < ranks_of(comm) && excluded[i] != rank_of(comm));
    *out = make(ranks_of(comm) - n, 0);
    return answer();
}

static ncclResult_t count_ranks(const ncclComm_t comm, int *ranks)
{
    *ranks = ranks_of(comm);
    return answer();
}

static ncclResult_t say_rank(const ncclComm_t comm, int *rank)
{
    *rank = rank_of(comm);
    return answer();
}

static ncclResult_t say_state(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    *state = answer();
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm)
{
    CHECK(comm);
    return answer();
}

static ncclResult_t make_id(ncclUniqueId *id)
{
    fuzz_write(id, sizeof *id);
    return answer();
}

static const char *last_error(ncclComm_t comm)
{
    (void)comm;
    return "the fuzzer's";
}

static ncclResult_t group(void)
{
    return answer();
}

/* --- buffers -------------------------------------------------------------------------------------------------------- */

static void look(const void *buffer, size_t count, size_t times, ncclDataType_t type)
{
    const uint64_t from = (uintptr_t)buffer;
    uint64_t size, to;
    CHECK(type < ncclNumTypes);
    if (!count)
        return;
    CHECK(!__builtin_mul_overflow(count, rg_nccl_type_size(type), &size) &&
          !__builtin_mul_overflow(size, times, &size) && !__builtin_add_overflow(from, size, &to));
    CHECK(to <= FUZZ_DRIVER_HOLE || from >= FUZZ_DRIVER_HOLE_END);
}

static ncclResult_t make_operator(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                  ncclScalarResidence_t residence, ncclComm_t comm)
{
    (void)comm;
    if (residence == ncclScalarDevice)
        look(scalar, 1, 1, type);
    else
        fuzz_read(scalar, rg_nccl_type_size(type));
    *op = ncclNumOps;
    return answer();
}

static ncclResult_t end_operator(ncclRedOp_t op, ncclComm_t comm)
{
    (void)op, (void)comm;
    return answer();
}

static ncclResult_t reduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t comm, CUstream stream)
{
    (void)op, (void)stream;
    look(send, count, 1, type);
    if (root == rank_of(comm))
        look(receive, count, 1, type);
    return answer();
}

static ncclResult_t broadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream)
{
    (void)stream;
    if (root == rank_of(comm))
        look(send, count, 1, type);
    look(receive, count, 1, type);
    return answer();
}

static ncclResult_t reduce_all(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    (void)op, (void)comm, (void)stream;
    look(send, count, 1, type);
    look(receive, count, 1, type);
    return answer();
}

static ncclResult_t reduce_scatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    (void)op, (void)stream;
    look(send, count, (size_t)ranks_of(comm), type);
    look(receive, count, 1, type);
    return answer();
}

static ncclResult_t gather_all(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclComm_t comm, CUstream stream)
{
    (void)stream;
    look(send, count, 1, type);
    look(receive, count, (size_t)ranks_of(comm), type);
    return answer();
}

static ncclResult_t send_to(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            CUstream stream)
{
    (void)peer, (void)comm, (void)stream;
    look(send, count, 1, type);
    return answer();
}

static ncclResult_t receive_from(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 CUstream stream)
{
    (void)peer, (void)comm, (void)stream;
    look(receive, count, 1, type);
    return answer();
}

/* --- in the place of library.c ---------------------------------------------------------------------------------------- */

const struct rg_nccl_library *rg_nccl_library(const char **why)
{
    static const struct rg_nccl_library library = {.ncclGetUniqueId = make_id,
                                                   .ncclGetLastError = last_error,
                                                   .ncclCommInitRankConfig = begin_rank,
                                                   .ncclCommSplit = split,
                                                   .ncclCommShrink = shrink,
                                                   .ncclCommFinalize = end,
                                                   .ncclCommDestroy = end,
                                                   .ncclCommAbort = end,
                                                   .ncclCommGetAsyncError = say_state,
                                                   .ncclCommCount = count_ranks,
                                                   .ncclCommUserRank = say_rank,
                                                   .ncclRedOpCreatePreMulSum = make_operator,
                                                   .ncclRedOpDestroy = end_operator,
                                                   .ncclReduce = reduce,
                                                   .ncclBroadcast = broadcast,
                                                   .ncclAllReduce = reduce_all,
                                                   .ncclReduceScatter = reduce_scatter,
                                                   .ncclAllGather = gather_all,
                                                   .ncclSend = send_to,
                                                   .ncclRecv = receive_from,
                                                   .ncclGroupStart = group,
                                                   .ncclGroupEnd = group};
    if (why)
        *why = "";
    return &library;
}

const struct rg_nccl_extension *rg_nccl_library_extension(void)
{
    return NULL;
}

void rg_nccl_set_driver(const char *driver)
{
    (void)driver;
}
