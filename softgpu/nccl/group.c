/* group.c - see group.h; the collective calls. */
#include "softgpu/nccl/group.h"

#include "common/base/cleanup.h"
#include "softgpu/nccl/deadline.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/split.h"

#include <stdlib.h>
#include <string.h>

/* A communicator that comes to be at the end of the group. */
struct beginning {
    ncclComm_t *out, comm; /* of a split comm is the parent */
    struct sg_split *split;
    bool blocking;
};

static __thread struct {
    unsigned depth;
    ncclResult_t failed;
    struct sg_enqueued *calls;
    size_t n_calls, calls_room;
    struct beginning *beginnings;
    size_t n_beginnings, beginnings_room;
} group;

ncclResult_t sg_group_failed(ncclResult_t result)
{
    if (group.depth && result != ncclSuccess && result != ncclInProgress && group.failed == ncclSuccess)
        group.failed = result;
    return result;
}

/* A place for one more; NULL: out of memory. */
static void *more(void **items, size_t *n, size_t *room, size_t size)
{
    if (*n == *room) {
        const size_t wanted = *room ? *room * 2 : 16;
        void *larger = realloc(*items, wanted * size);
        if (!larger)
            return NULL;
        *items = larger;
        *room = wanted;
    }
    return (char *)*items + size * (*n)++;
}

/* --- communicators -------------------------------------------------------------------------------------- */

static ncclResult_t begin(const struct beginning *beginning)
{
    sg_deadline_watch();
    if (beginning->split)
        return sg_clique_wait_split(beginning->comm, beginning->split);
    if (!beginning->blocking)
        return sg_clique_state(beginning->comm);
    const ncclResult_t result = sg_clique_wait_joined(beginning->comm);
    if (result != ncclSuccess) {
        (void)sg_clique_leave(beginning->comm, true);
        *beginning->out = NULL;
    }
    return result;
}

static ncclResult_t later_or_now(const struct beginning *beginning)
{
    if (!group.depth)
        return begin(beginning);
    struct beginning *kept =
        more((void **)&group.beginnings, &group.n_beginnings, &group.beginnings_room, sizeof *kept);
    if (!kept)
        return begin(beginning);
    *kept = *beginning;
    return ncclSuccess;
}

ncclResult_t sg_group_join(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank, bool blocking)
{
    ncclResult_t result = sg_clique_join(id, n, rank, blocking, true, comm);
    return result == ncclSuccess
               ? later_or_now(&(struct beginning){.out = comm, .comm = *comm, .blocking = blocking})
               : result;
}

ncclResult_t sg_group_split(ncclComm_t comm, int color, int key, ncclComm_t *out, bool blocking)
{
    struct beginning beginning = {.out = out, .comm = comm, .blocking = blocking};
    const ncclResult_t result = sg_clique_split(comm, color, key, blocking, out, &beginning.split);
    return result == ncclSuccess ? later_or_now(&beginning) : result;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static ncclResult_t run(struct sg_enqueued *calls, size_t n)
{
    sg_deadline_watch();
    for (int pass = 0; pass < SG_NCCL_PASSES; pass++)
        for (size_t i = 0; i < n; i++) {
            const ncclResult_t result = sg_exchange_enqueue(&calls[i], pass);
            if (result != ncclSuccess)
                return result;
        }
    return ncclSuccess;
}

static ncclResult_t check_operator(struct sg_nccl_call *call)
{
    ncclComm_t comm = call->comm;
    const int index = call->op - ncclNumOps;
    if (call->op < 0)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no operator %d", sg_nccl_kind_name(call->kind),
                            call->op);
    if (index < 0)
        return ncclSuccess;
    pthread_mutex_lock(&comm->clique->lock);
    const bool known = index < comm->n_operators && comm->operators[index].used;
    if (known)
        call->operator= comm->operators[index];
    pthread_mutex_unlock(&comm->clique->lock);
    if (known && call->operator.type == call->type)
        return ncclSuccess;
    return sg_nccl_fail(ncclInvalidArgument,
                        "%s: operator %d is none of this communicator, or for another type",
                        sg_nccl_kind_name(call->kind), call->op);
}

/* Whether the rank's buffers are there which the call needs. */
static bool has_buffers(const struct sg_nccl_call *call)
{
    const bool is_peer = call->comm->rank == call->peer;
    switch (call->kind) {
    case SG_NCCL_SEND:
        return call->send;
    case SG_NCCL_RECEIVE:
        return call->receive;
    case SG_NCCL_REDUCE:
        return call->send && (!is_peer || call->receive);
    case SG_NCCL_BROADCAST:
        return call->receive && (!is_peer || call->send);
    default:
        return call->send && call->receive;
    }
}

static ncclResult_t check(struct sg_nccl_call *call)
{
    const char *name = sg_nccl_kind_name(call->kind);
    if (!call->comm)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no communicator", name);
    const size_t width = rg_nccl_type_size(call->type), n = (size_t)call->comm->clique->n;
    if (!width)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no type %d", name, (int)call->type);
    if (call->peer < 0 || (size_t)call->peer >= n)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no rank %d among %zu", name, call->peer, n);
    if (call->count > SIZE_MAX / 4 / width / n)
        return sg_nccl_fail(ncclInvalidArgument, "%s: %zu elements are more than there can be", name,
                            call->count);
    if (call->count && !has_buffers(call))
        return sg_nccl_fail(ncclInvalidArgument, "%s: a buffer is missing", name);
    if (call->comm->ended)
        return sg_nccl_fail(ncclInvalidUsage, "%s: the communicator has been finalised", name);
    const ncclResult_t state = sg_clique_state(call->comm);
    if (state != ncclSuccess)
        return state == ncclInProgress
                   ? sg_nccl_fail(ncclInvalidUsage,
                                  "%s: the communicator is still beginning: not all ranks have come", name)
                   : state;
    return check_operator(call);
}

static ncclResult_t check_capture(const struct sg_nccl_call *call)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext popped;
    if (driver->p_cuCtxPushCurrent(call->comm->context) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    const CUresult status = driver->p_cuStreamIsCapturing(call->stream, &capture);
    (void)driver->p_cuCtxPopCurrent(&popped);
    if (status == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE)
        return ncclSuccess;
    return status == CUDA_SUCCESS || status == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
               ? sg_nccl_fail(ncclInvalidUsage,
                              "%s: the stream is being captured, and this library's calls cannot become "
                              "nodes of graphs",
                              sg_nccl_kind_name(call->kind))
               : sg_nccl_fail(ncclUnhandledCudaError, "%s: this is no stream (CUDA error %d)",
                              sg_nccl_kind_name(call->kind), status);
}

static ncclResult_t submit(struct sg_nccl_call call)
{
    ncclResult_t result = check(&call);
    if (result == ncclSuccess && call.count)
        result = check_capture(&call);
    if (result != ncclSuccess || !call.count)
        return sg_group_failed(result);
    struct sg_enqueued enqueued = {.call = call};
    if (!group.depth)
        return run(&enqueued, 1);
    struct sg_enqueued *kept = more((void **)&group.calls, &group.n_calls, &group.calls_room, sizeof *kept);
    if (!kept)
        return sg_group_failed(sg_nccl_fail(ncclSystemError, "out of memory"));
    *kept = enqueued;
    return ncclSuccess;
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

ncclResult_t sg_ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t comm, CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_REDUCE,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .op = (int)op,
                                        .peer = root,
                                        .stream = stream});
}

ncclResult_t sg_ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_BROADCAST,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .peer = root,
                                        .stream = stream});
}

ncclResult_t sg_ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          CUstream stream)
{
    return sg_ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t sg_ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_ALL_REDUCE,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .op = (int)op,
                                        .stream = stream});
}

ncclResult_t sg_ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_REDUCE_SCATTER,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .op = (int)op,
                                        .stream = stream});
}

ncclResult_t sg_ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                              ncclComm_t comm, CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_ALL_GATHER,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .stream = stream});
}

ncclResult_t sg_ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_SEND,
                                        .comm = comm,
                                        .send = ADDRESS(send),
                                        .count = count,
                                        .type = type,
                                        .peer = peer,
                                        .stream = stream});
}

ncclResult_t sg_ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream)
{
    return submit((struct sg_nccl_call){.kind = SG_NCCL_RECEIVE,
                                        .comm = comm,
                                        .receive = ADDRESS(receive),
                                        .count = count,
                                        .type = type,
                                        .peer = peer,
                                        .stream = stream});
}

/* --- groups --------------------------------------------------------------------------------------------- */

ncclResult_t sg_ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t sg_ncclGroupEnd(void)
{
    if (!group.depth)
        return sg_nccl_fail(ncclInvalidUsage, "ncclGroupEnd: no group has begun");
    if (--group.depth)
        return ncclSuccess;
    /* Taken out of the thread's state before anything waits. */
    RG_CLEANUP_FREE struct beginning *beginnings = group.beginnings;
    RG_CLEANUP_FREE struct sg_enqueued *calls = group.calls;
    const size_t n_beginnings = group.n_beginnings, n_calls = group.n_calls;
    ncclResult_t result = group.failed;
    memset(&group, 0, sizeof group);
    for (size_t i = 0; i < n_beginnings; i++) {
        const ncclResult_t begun =
            result == ncclSuccess || result == ncclInProgress ? begin(&beginnings[i]) : result;
        result = begun != ncclSuccess ? begun : result;
    }
    return result == ncclSuccess ? run(calls, n_calls) : result;
}
