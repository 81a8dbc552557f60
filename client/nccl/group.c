/* group.c - groups, and the calls that they are made of. See nccl.h. */
#include "client/core/call.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"
#include "client/managed/pinned.h"
#include "client/nccl/nccl.h"
#include "client/timeline/pace.h"
#include "common/base/cleanup.h"
#include "common/cuda/nccl_network.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

static __thread struct group {
    unsigned depth;
    ncclResult_t failed;
    struct rg_nccl_submitted *calls;
    size_t n_calls;
    bool captured; /* streams of some are */
    struct used_operator {
        ncclComm_t comm;
        int op;
    } * operators; /* of `calls`, made by the program, which may destroy them before the group ends */
    size_t n_operators;
    struct rg_nccl_begun *beginnings;
    size_t n_beginnings;
} group;

ncclResult_t rg_nccl_group_failed(ncclResult_t result)
{
    if (group.depth && result != ncclSuccess && result != ncclInProgress && group.failed == ncclSuccess)
        group.failed = result;
    return result;
}

/* A place for one more of at most `limit`; NULL: there are that many, or there is no memory. Both were told. */
static void *more(void **items, size_t *n, size_t limit, size_t size)
{
    if (*n == limit) {
        (void)rg_nccl_fail(ncclInvalidUsage, "a group has more than %zu calls of one kind", limit);
        return NULL;
    }
    if ((*n & (*n - 1)) == 0) {
        void *larger = realloc(*items, (*n ? *n * 2 : 1) * size);
        if (!larger) {
            (void)rg_nccl_fail(ncclSystemError, "out of memory");
            return NULL;
        }
        *items = larger;
    }
    return (char *)*items + size * (*n)++;
}

/* --- sending -------------------------------------------------------------------------------------------- */

/*
 * Counts what the calls put into their streams, so that nobody runs further ahead than there is room for (client/timeline/pace.h): with the
 * software device's library some steps for each part of a buffer, of which its launches go ahead.
 */
static void count_steps(const struct rg_nccl_submitted *calls, size_t n)
{
    enum { STEPS = 8, PARTS_MOST = 100 };
    struct rg_thread *thread = rg_thread_current();
    for (size_t i = 0; i < n && thread; i++) {
        const CUstream stream = rg_effective_stream((CUstream)(uintptr_t)calls[i].wire.stream);
        const uint64_t parts =
            1 + calls[i].wire.count * rg_nccl_type_size((unsigned)calls[i].wire.type) / RG_NCCL_PART;
        CUcontext context;
        if (cuStreamGetCtx(stream, &context) == CUDA_SUCCESS)
            rg_pace_count(thread, stream, (uint64_t)context,
                          STEPS * (int)(parts < PARTS_MOST ? parts : PARTS_MOST));
    }
}

/*
 * The calls of one session, in their order. Nobody waits for them where they wait for no rank of this process: what fails then is told
 * by ncclCommGetAsyncError.
 */
static ncclResult_t send_calls(const struct rg_nccl_submitted *calls, size_t n,
                               const struct rg_session *session)
{
    RG_CLEANUP_FREE unsigned long long *words = malloc(n * sizeof calls->wire);
    RG_CLEANUP_FREE ncclComm_t *comms = malloc(n * sizeof *comms);
    size_t count = 0;
    bool blocking = true;
    int result = ncclSuccess;
    if (!words || !comms)
        return rg_nccl_fail(ncclSystemError, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (calls[i].comm->session == session) {
            memcpy(words + count * RG_NCCL_CALL_WORDS, &calls[i].wire, sizeof calls->wire);
            comms[count++] = calls[i].comm;
            blocking = blocking && calls[i].comm->blocking;
        }
    const unsigned n_words = (unsigned)(count * RG_NCCL_CALL_WORDS);
    const CUresult status = blocking && rg_optimise[RG_OPT_ASYNC] && rg_nccl_comms_complete(comms, count)
                                ? rg_op_rgNcclPost(n_words, words, rg_home_of_session(session))
                                : rg_op_rgNcclGroup(n_words, words, &result, rg_home_of_session(session));
    rg_nccl_tell_probe(calls, n, session);
    return rg_nccl_answered(session, "the call", status, result);
}

/* Of communicators that are held: another thread may abort them meanwhile. */
static ncclResult_t run_held(const struct rg_nccl_submitted *calls, size_t n)
{
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        bool any = false;
        for (size_t k = 0; k < n && !any; k++)
            any = calls[k].comm->session == &rg_sessions[i];
        const ncclResult_t result = any ? send_calls(calls, n, &rg_sessions[i]) : ncclSuccess;
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

ncclResult_t rg_nccl_run(const struct rg_nccl_submitted *calls, size_t n)
{
    count_steps(calls, n);
    for (size_t i = 0; i < n; i++)
        rg_nccl_comm_hold(calls[i].comm);
    const ncclResult_t result = run_held(calls, n);
    for (size_t i = 0; i < n; i++)
        rg_nccl_comm_let_go(calls[i].comm);
    return result;
}

/* The calls of a group: those of captured streams become nodes, which leaves the others. */
static ncclResult_t run(struct rg_nccl_submitted *calls, size_t n, bool captured)
{
    const ncclResult_t result = captured ? rg_nccl_capture(calls, &n) : ncclSuccess;
    return result == ncclSuccess ? rg_nccl_run(calls, n) : result;
}

ncclResult_t rg_nccl_group_begin(ncclComm_t *out, ncclComm_t comm, const struct rg_nccl_beginning *wire)
{
    struct rg_nccl_begun beginning = {.out = out, .comm = comm, .wire = *wire};
    beginning.wire.comm = comm->number;
    if (!group.depth)
        return rg_nccl_begin_all(&beginning, 1);
    struct rg_nccl_begun *kept =
        more((void **)&group.beginnings, &group.n_beginnings, RG_NCCL_BEGINNINGS_MAX, sizeof *kept);
    if (!kept) {
        rg_nccl_begin_none(&beginning, 1);
        return ncclSystemError;
    }
    *kept = beginning;
    return ncclSuccess;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static const char *const names[] = {
    [RG_NCCL_ALL_REDUCE] = "ncclAllReduce",
    [RG_NCCL_REDUCE] = "ncclReduce",
    [RG_NCCL_BROADCAST] = "ncclBroadcast",
    [RG_NCCL_ALL_GATHER] = "ncclAllGather",
    [RG_NCCL_REDUCE_SCATTER] = "ncclReduceScatter",
    [RG_NCCL_SEND] = "ncclSend",
    [RG_NCCL_RECEIVE] = "ncclRecv",
};

struct parameters {
    enum rg_nccl_kind kind;
    ncclComm_t comm;
    const void *send;
    void *receive;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;
    CUstream stream;
};

static bool has_buffers(const struct parameters *call)
{
    const bool is_peer = call->comm->rank == call->peer;
    const bool sends = call->kind == RG_NCCL_BROADCAST ? is_peer : call->kind != RG_NCCL_RECEIVE,
               receives = call->kind == RG_NCCL_REDUCE ? is_peer : call->kind != RG_NCCL_SEND;
    return (!sends || call->send) && (!receives || call->receive);
}

/* A default stream is that of the communicator's device, which the server chooses; the thread's own is its current context's. */
static ncclResult_t check_stream(const struct parameters *call)
{
    const char *name = names[call->kind];
    CUdevice device = -1;
    if (rg_handle_check(RG_KIND_STREAM, (uint64_t)call->stream, CUDA_ERROR_INVALID_HANDLE) != CUDA_SUCCESS)
        return rg_nccl_fail(ncclUnhandledCudaError, "%s: this is no stream", name);
    if (call->stream == CU_STREAM_PER_THREAD &&
        (cuCtxGetDevice(&device) != CUDA_SUCCESS || device != call->comm->device))
        return rg_nccl_fail(ncclInvalidUsage,
                            "%s: the thread's default stream is another device's; call cudaSetDevice first",
                            name);
    return ncclSuccess;
}

static ncclResult_t check(const struct parameters *call)
{
    const char *name = names[call->kind];
    if (!call->comm)
        return rg_nccl_fail(ncclInvalidArgument, "%s: there is no communicator", name);
    const size_t width = rg_nccl_type_size(call->type);
    if (!width)
        return rg_nccl_fail(ncclInvalidArgument, "%s: there is no type %d", name, (int)call->type);
    if (call->peer < 0 || call->peer >= call->comm->ranks)
        return rg_nccl_fail(ncclInvalidArgument, "%s: there is no rank %d among %d", name, call->peer,
                            call->comm->ranks);
    if (call->count > SIZE_MAX / 4 / width / (size_t)call->comm->ranks)
        return rg_nccl_fail(ncclInvalidArgument, "%s: %zu elements are more than there can be", name,
                            call->count);
    if (call->count && !has_buffers(call))
        return rg_nccl_fail(ncclInvalidArgument, "%s: a buffer is missing", name);
    if (call->comm->finalized)
        return rg_nccl_fail(ncclInvalidUsage, "%s: the communicator has been finalised", name);
    const ncclResult_t failed = atomic_load(&call->comm->failed);
    if (failed != ncclSuccess)
        return failed;
    if (!rg_nccl_knows_operator(call->comm, (int)call->op, call->type))
        return rg_nccl_fail(ncclInvalidArgument,
                            "%s: operator %d is none of this communicator, or for another type", name,
                            (int)call->op);
    return call->count ? check_stream(call) : ncclSuccess;
}

/* Whether the device can access the buffers; page-locked memory of the host is mapped for that, as for a kernel. */
static ncclResult_t prepare_buffers(const struct rg_nccl_submitted *call)
{
    const uint64_t send = call->wire.send, receive = call->wire.receive;
    if ((!send || rg_pinned_on_device(send, 0, 1, 1, false)) &&
        (!receive || rg_pinned_on_device(receive, 0, 1, 1, true)))
        return ncclSuccess;
    return rg_nccl_fail(ncclInvalidArgument,
                        "%s: a buffer is neither memory of a device nor managed or page-locked memory",
                        names[call->wire.kind]);
}

/* What the group's call needs of an operator stays until the group has ended: itself, and its communicator. */
static bool keep_operator(ncclComm_t comm, int op)
{
    if (op < ncclNumOps)
        return true;
    struct used_operator *kept =
        more((void **)&group.operators, &group.n_operators, RG_NCCL_GROUP_MAX, sizeof *kept);
    if (!kept)
        return false;
    *kept = (struct used_operator){comm, op};
    rg_nccl_comm_hold(comm);
    rg_nccl_operator_keep(comm, op);
    return true;
}

static void release_operators(const struct used_operator *operators, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rg_nccl_operator_release(operators[i].comm, operators[i].op);
        rg_nccl_comm_let_go(operators[i].comm);
    }
}

static ncclResult_t submit(struct parameters call)
{
    ncclResult_t result = check(&call);
    if (result != ncclSuccess || !call.count)
        return rg_nccl_group_failed(result);
    const bool is_peer = call.comm->rank == call.peer;
    struct rg_nccl_submitted one = {
        .comm = call.comm,
        .wire = {.kind = call.kind,
                 .comm = call.comm->number,
                 .send = call.kind == RG_NCCL_BROADCAST && !is_peer ? 0 : (uint64_t)(uintptr_t)call.send,
                 .receive = call.kind == RG_NCCL_REDUCE && !is_peer ? 0 : (uint64_t)(uintptr_t)call.receive,
                 .count = call.count,
                 .type = call.type,
                 .op = call.op,
                 .peer = (uint64_t)call.peer,
                 .stream = (uint64_t)(uintptr_t)call.stream}};
    result = prepare_buffers(&one);
    if (result == ncclSuccess)
        result = rg_nccl_check_capture(names[call.kind], &one, group.calls, group.n_calls, group.captured);
    if (result != ncclSuccess)
        return rg_nccl_group_failed(result);
    if (!group.depth)
        return run(&one, 1, one.capture != 0);
    struct rg_nccl_submitted *kept =
        keep_operator(call.comm, (int)call.op)
            ? more((void **)&group.calls, &group.n_calls, RG_NCCL_GROUP_MAX, sizeof *kept)
            : NULL;
    if (!kept)
        return rg_nccl_group_failed(ncclSystemError);
    *kept = one;
    group.captured = group.captured || one.capture;
    return ncclSuccess;
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, CUstream stream)
{
    return submit((struct parameters){RG_NCCL_REDUCE, comm, send, receive, count, type, op, root, stream});
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream)
{
    return submit(
        (struct parameters){RG_NCCL_BROADCAST, comm, send, receive, count, type, ncclSum, root, stream});
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       CUstream stream)
{
    return submit(
        (struct parameters){RG_NCCL_BROADCAST, comm, buffer, buffer, count, type, ncclSum, root, stream});
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, CUstream stream)
{
    return submit((struct parameters){RG_NCCL_ALL_REDUCE, comm, send, receive, count, type, op, 0, stream});
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return submit(
        (struct parameters){RG_NCCL_REDUCE_SCATTER, comm, send, receive, count, type, op, 0, stream});
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream)
{
    return submit(
        (struct parameters){RG_NCCL_ALL_GATHER, comm, send, receive, count, type, ncclSum, 0, stream});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream)
{
    return submit((struct parameters){RG_NCCL_SEND, comm, send, NULL, count, type, ncclSum, peer, stream});
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream)
{
    return submit(
        (struct parameters){RG_NCCL_RECEIVE, comm, NULL, receive, count, type, ncclSum, peer, stream});
}

/* --- groups --------------------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t run_group(const struct group *ended)
{
    if (ended->failed != ncclSuccess) {
        rg_nccl_begin_none(ended->beginnings, ended->n_beginnings);
        return ended->failed;
    }
    const ncclResult_t begun = rg_nccl_begin_all(ended->beginnings, ended->n_beginnings);
    if (begun != ncclSuccess && begun != ncclInProgress)
        return begun;
    const ncclResult_t ran =
        run(ended->calls, ended->n_calls, ended->captured); /* of communicators that have begun before */
    return ran == ncclSuccess ? begun : ran;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group.depth)
        return rg_nccl_fail(ncclInvalidUsage, "ncclGroupEnd: no group has begun");
    if (--group.depth)
        return ncclSuccess;
    const struct group ended = group;
    memset(&group, 0, sizeof group);
    const ncclResult_t result = run_group(&ended);
    release_operators(ended.operators, ended.n_operators);
    free(ended.operators);
    free(ended.calls);
    free(ended.beginnings);
    return result;
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    return rg_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: %s", RG_NCCL_WHY_ncclGroupSimulateEnd);
}
