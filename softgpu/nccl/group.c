/* group.c - see group.h; the collective calls. */
#include "softgpu/nccl/group.h"

#include "common/base/cleanup.h"
#include "common/base/status.h"
#include "softgpu/nccl/capture.h"
#include "softgpu/nccl/deadline.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/split.h"
#include "softgpu/nccl/steps.h"

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
    struct sg_nccl_call *calls;
    size_t n_calls, calls_room;
    bool captured; /* streams of some are */
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
    if (result != ncclSuccess)
        *beginning->out = NULL;
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
    RG_TRY(sg_clique_join(id, n, rank, blocking, true, comm));
    return later_or_now(&(struct beginning){.out = comm, .comm = *comm, .blocking = blocking});
}

ncclResult_t sg_group_split(ncclComm_t comm, int color, int key, ncclComm_t *out, bool blocking)
{
    struct beginning beginning = {.out = out, .comm = comm, .blocking = blocking};
    RG_TRY(sg_clique_split(comm, color, key, blocking, out, &beginning.split));
    return later_or_now(&beginning);
}

ncclResult_t sg_group_shrink(ncclComm_t comm, uint64_t excluded, bool abort, ncclComm_t *out, bool blocking)
{
    struct beginning beginning = {.out = out, .comm = comm, .blocking = blocking};
    RG_TRY(sg_clique_shrink(comm, excluded, abort, blocking, out, &beginning.split));
    return later_or_now(&beginning);
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Elements of a part of the call, in which as much is sent whatever the call is: a sum sends all but one n-th twice. */
static size_t part_count(const struct sg_nccl_call *call)
{
    const bool blocks = call->kind == SG_NCCL_ALL_GATHER || call->kind == SG_NCCL_REDUCE_SCATTER;
    const size_t n = (size_t)call->comm->clique->n, width = rg_nccl_type_size(call->type),
                 count = blocks ? 2 * SG_NCCL_PART / width / n : SG_NCCL_PART / width;
    return count ? count : 1;
}

/* The parts of a call behind each other; how many. `parts` NULL: counts them. */
static size_t cut(const struct sg_nccl_call *call, struct sg_enqueued *parts)
{
    const size_t most = part_count(call), width = rg_nccl_type_size(call->type);
    size_t n = 0;
    for (size_t at = 0; at < call->whole; at += most, n++) {
        if (!parts)
            continue;
        parts[n] = (struct sg_enqueued){.call = *call};
        parts[n].call.count = call->whole - at < most ? call->whole - at : most;
        parts[n].call.send = call->send ? call->send + at * width : 0;
        parts[n].call.receive = call->receive ? call->receive + at * width : 0;
    }
    return n;
}

static ncclResult_t pass_over(struct sg_enqueued *parts, size_t n, int pass)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = sg_exchange_enqueue(&parts[i], pass);
    return result;
}

/*
 * All passes over the parts of a single call, each some parts behind the one before it: what has been reduced is taken while later parts are
 * on their way, and none is given long before it is needed. Not so for several calls, whose order in a stream may be another one for each
 * rank: a rank would wait in one for what another rank does behind another.
 */
static ncclResult_t run_single(struct sg_enqueued *parts, size_t n)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < n + (SG_NCCL_PASSES - 1) * SG_NCCL_BEHIND; i++)
        for (size_t pass = 0; pass < SG_NCCL_PASSES && result == ncclSuccess; pass++) {
            const size_t behind = pass * SG_NCCL_BEHIND;
            if (i >= behind && i - behind < n)
                result = sg_exchange_enqueue(&parts[i - behind], (int)pass);
        }
    return result;
}

static ncclResult_t run_cut(const struct sg_nccl_call *calls, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += cut(&calls[i], NULL);
    if (!count)
        return ncclSuccess;
    RG_CLEANUP_FREE struct sg_enqueued *parts = calloc(count, sizeof *parts);
    if (!parts)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    count = 0;
    for (size_t i = 0; i < n; i++)
        count += cut(&calls[i], parts + count);
    if (n == 1)
        return run_single(parts, count);
    ncclResult_t result = ncclSuccess;
    for (int pass = 0; pass < SG_NCCL_PASSES && result == ncclSuccess; pass++)
        result = pass_over(parts, count, pass);
    return result;
}

/* What goes on in other streams of the thread is no business of a capture that it has begun. */
ncclResult_t sg_group_run(const struct sg_nccl_call *calls, size_t n)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!n)
        return ncclSuccess;
    sg_deadline_watch();
    (void)sg_nccl_driver()->p_cuThreadExchangeStreamCaptureMode(&mode);
    const ncclResult_t result = run_cut(calls, n);
    (void)sg_nccl_driver()->p_cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* The calls of a group: those of captured streams become nodes, which leaves the others. */
static ncclResult_t run(struct sg_nccl_call *calls, size_t n, bool captured)
{
    const ncclResult_t result = captured ? sg_capture_calls(calls, &n) : ncclSuccess;
    return result == ncclSuccess ? sg_group_run(calls, n) : result;
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
    RG_TRY(sg_clique_usable(call->comm, name));
    return check_operator(call);
}

static ncclResult_t submit(struct sg_nccl_call call)
{
    ncclResult_t result = check(&call);
    if (result == ncclSuccess && call.count)
        result = sg_capture_check(&call, group.calls, group.n_calls, group.captured);
    if (result != ncclSuccess || !call.count)
        return sg_group_failed(result);
    call.whole = call.count;
    if (!group.depth)
        return run(&call, 1, call.capture != 0);
    struct sg_nccl_call *kept = more((void **)&group.calls, &group.n_calls, &group.calls_room, sizeof *kept);
    if (!kept)
        return sg_group_failed(sg_nccl_fail(ncclSystemError, "out of memory"));
    *kept = call;
    group.captured = group.captured || call.capture;
    return ncclSuccess;
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
/* With the parameters that all of the functions below have, and what else there is of the call. */
#define SUBMIT(what, ...)                                                                                    \
    submit((struct sg_nccl_call){                                                                            \
        .kind = (what), .comm = comm, .count = count, .type = type, .stream = stream, __VA_ARGS__})

ncclResult_t sg_ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t comm, CUstream stream)
{
    return SUBMIT(SG_NCCL_REDUCE, .send = ADDRESS(send), .receive = ADDRESS(receive), .op = (int)op,
                  .peer = root);
}

ncclResult_t sg_ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream)
{
    return SUBMIT(SG_NCCL_BROADCAST, .send = ADDRESS(send), .receive = ADDRESS(receive), .peer = root);
}

ncclResult_t sg_ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          CUstream stream)
{
    return sg_ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t sg_ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return SUBMIT(SG_NCCL_ALL_REDUCE, .send = ADDRESS(send), .receive = ADDRESS(receive), .op = (int)op);
}

ncclResult_t sg_ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return SUBMIT(SG_NCCL_REDUCE_SCATTER, .send = ADDRESS(send), .receive = ADDRESS(receive), .op = (int)op);
}

ncclResult_t sg_ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                              ncclComm_t comm, CUstream stream)
{
    return SUBMIT(SG_NCCL_ALL_GATHER, .send = ADDRESS(send), .receive = ADDRESS(receive));
}

ncclResult_t sg_ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream)
{
    return SUBMIT(SG_NCCL_SEND, .send = ADDRESS(send), .peer = peer);
}

ncclResult_t sg_ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         CUstream stream)
{
    return SUBMIT(SG_NCCL_RECEIVE, .receive = ADDRESS(receive), .peer = peer);
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
    RG_CLEANUP_FREE struct sg_nccl_call *calls = group.calls;
    const size_t n_beginnings = group.n_beginnings, n_calls = group.n_calls;
    const bool captured = group.captured;
    ncclResult_t result = group.failed;
    memset(&group, 0, sizeof group);
    for (size_t i = 0; i < n_beginnings; i++) {
        const ncclResult_t begun =
            result == ncclSuccess || result == ncclInProgress ? begin(&beginnings[i]) : result;
        result = begun != ncclSuccess ? begun : result;
    }
    if (result != ncclSuccess && result != ncclInProgress)
        return result;
    const ncclResult_t ran = run(calls, n_calls, captured); /* of communicators that have begun before */
    return ran == ncclSuccess ? result : ran;
}
