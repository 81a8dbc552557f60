/*
 * nccl.c - NCCL's calls, which the worker's own library executes (library.h).
 *
 * The client names communicators by numbers; a table here has the library's objects. Streams, addresses and numbers of a record are
 * looked up and checked while the dispatcher has it. The library is then called on a thread that holds nobody up, as a rank may have
 * to wait for others, which come by records of other threads or in other sessions.
 *
 * How communicators begin and end is in beginnings.c.
 *
 * One lock guards the table; it is a leaf, and not held while the library is called. A communicator that a call uses meanwhile cannot
 * end (`users`).
 */
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "proto/nccl/call.h"
#include "server/core/worker.h"
#include "server/modules.h"
#include "server/nccl/library.h"
#include "server/nccl/network.h"
#include "server/nccl/slots.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

atomic_bool rg_nccl_used;

/* The session is over: its ranks are missing from now on, and nobody waits for others'. */
static void wake(struct rg_worker *worker)
{
    const struct rg_nccl_extension *extension = rg_nccl_used ? rg_nccl_library_extension() : NULL;
    (void)worker;
    if (extension)
        extension->end();
}

/*
 * The software device's library calls the driver for records alone, and keeps what comes for its ranks meanwhile. NVIDIA's has threads of
 * its own that do, and memory in common with other processes, of which the driver cannot put a part away.
 */
static const char *unsuspendable(struct rg_worker *worker)
{
    struct rg_nccl_state *state = worker->state[RG_MODULE_NCCL];
    bool alive = false;
    if (!rg_nccl_used || rg_nccl_library_extension())
        return NULL;
    RG_SCOPED_LOCK(&state->lock);
    for (unsigned i = 0; i < RG_NCCL_COMMS_MAX && !alive; i++)
        alive = state->slots[i].taken;
    return alive ? "it has communicators of NCCL, whose library shares memory with other processes" : NULL;
}

const struct rg_server_module rg_nccl_module = {
    .size = sizeof(struct rg_nccl_state), .locked = true, .wake = wake, .unsuspendable = unsuspendable};

/* A sentence of the worker's own about what failed last; else the library's is told. */
static _Atomic(const char *) said;

void rg_nccl_say(const char *why)
{
    said = why;
}

struct rg_nccl_state *rg_nccl_state_of(struct rg_request *request)
{
    return request->worker->state[RG_MODULE_NCCL];
}

/* The slot of a communicator that is there, which is used from now on; NULL: there is none of that number. */
struct rg_nccl_slot *rg_nccl_use(struct rg_request *request, uint64_t number)
{
    struct rg_nccl_state *state = rg_nccl_state_of(request);
    RG_SCOPED_LOCK(&state->lock);
    struct rg_nccl_slot *slot = number < RG_NCCL_COMMS_MAX ? &state->slots[number] : NULL;
    if (!slot || !slot->comm || slot->ending) {
        if (request->result == CUDA_SUCCESS)
            request->result = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    slot->users++;
    return slot;
}

void rg_nccl_leave(struct rg_nccl_slot *slot)
{
    slot->users--;
    if (slot->ending && !slot->users)
        *slot = (struct rg_nccl_slot){0};
}

/* `posted`: how a call failed that nobody waits for, or ncclSuccess. */
static void unuse(struct rg_request *request, struct rg_nccl_slot *slot, int posted)
{
    struct rg_nccl_state *state = rg_nccl_state_of(request);
    RG_SCOPED_LOCK(&state->lock);
    if (posted != ncclSuccess)
        slot->posted = posted;
    rg_nccl_leave(slot);
}

/* --- groups of calls ------------------------------------------------------------------------------------ */

struct ready {
    struct rg_nccl_call call;
    struct rg_nccl_slot *slot;
    CUstream stream;
};

/* Whether what the rank sends and receives is the session's memory. */
static bool buffers_are_own(struct rg_request *request, const struct ready *ready)
{
    const struct rg_nccl_call *call = &ready->call;
    const uint64_t bytes = rg_request_bytes_of(call->count, rg_nccl_type_size((unsigned)call->type)),
                   all = rg_request_bytes_of(bytes, (uint64_t)ready->slot->ranks);
    const bool is_peer = call->peer == (uint64_t)ready->slot->rank;
    uint64_t sent = bytes, received = bytes;
    switch (call->kind) {
    case RG_NCCL_ALL_REDUCE:
        break;
    case RG_NCCL_REDUCE:
        received = is_peer ? bytes : 0;
        break;
    case RG_NCCL_BROADCAST:
        sent = is_peer ? bytes : 0;
        break;
    case RG_NCCL_ALL_GATHER:
        received = all;
        break;
    case RG_NCCL_REDUCE_SCATTER:
        sent = all;
        break;
    case RG_NCCL_SEND:
        received = 0;
        break;
    case RG_NCCL_RECEIVE:
        sent = 0;
        break;
    default:
        rg_request_violation(request, "there is no kind %llu of call", (unsigned long long)call->kind);
        return false;
    }
    return rg_request_device_memory(request, call->send, 0, sent, 1) &&
           rg_request_device_memory(request, call->receive, 0, received, 1);
}

/* Whether the library, which takes smaller numbers than a record has, is given those that are checked here. */
static bool fits(struct rg_request *request, const struct rg_nccl_call *call)
{
    if (call->type < ncclNumTypes && call->op <= INT_MAX && call->peer <= INT_MAX)
        return true;
    rg_request_violation(request, "there is no call of type %llu with operator %llu and root or peer %llu",
                         (unsigned long long)call->type, (unsigned long long)call->op,
                         (unsigned long long)call->peer);
    return false;
}

/* Looks up and checks what a call names. */
static bool prepare(struct rg_request *request, const unsigned long long *words, struct ready *ready)
{
    memcpy(&ready->call, words, sizeof ready->call);
    ready->slot = rg_nccl_use(request, ready->call.comm);
    if (!ready->slot)
        return false;
    ready->stream = rg_request_stream(request, ready->call.stream);
    return request->result == CUDA_SUCCESS && !request->violated && fits(request, &ready->call) &&
           buffers_are_own(request, ready);
}

static ncclResult_t call_library(const struct rg_nccl_library *nccl, const struct ready *ready)
{
    const struct rg_nccl_call *call = &ready->call;
    const void *send = (const void *)(uintptr_t)call->send;
    void *receive = (void *)(uintptr_t)call->receive;
    const ncclDataType_t type = (ncclDataType_t)(unsigned)call->type;
    const ncclRedOp_t op = (ncclRedOp_t)(unsigned)call->op;
    const int peer = (int)call->peer;
    const ncclComm_t comm = ready->slot->comm;
    switch (call->kind) {
    case RG_NCCL_ALL_REDUCE:
        return nccl->ncclAllReduce(send, receive, call->count, type, op, comm, ready->stream);
    case RG_NCCL_REDUCE:
        return nccl->ncclReduce(send, receive, call->count, type, op, peer, comm, ready->stream);
    case RG_NCCL_BROADCAST:
        return nccl->ncclBroadcast(send, receive, call->count, type, peer, comm, ready->stream);
    case RG_NCCL_ALL_GATHER:
        return nccl->ncclAllGather(send, receive, call->count, type, comm, ready->stream);
    case RG_NCCL_REDUCE_SCATTER:
        return nccl->ncclReduceScatter(send, receive, call->count, type, op, comm, ready->stream);
    case RG_NCCL_SEND:
        return nccl->ncclSend(send, call->count, type, peer, comm, ready->stream);
    default:
        return nccl->ncclRecv(receive, call->count, type, peer, comm, ready->stream);
    }
}

static ncclResult_t run(const struct rg_nccl_library *nccl, const struct ready *calls, size_t n)
{
    ncclResult_t result = nccl->ncclGroupStart();
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = call_library(nccl, &calls[i]);
    const ncclResult_t ended = nccl->ncclGroupEnd();
    rg_context_unknown(); /* a library may leave another context current */
    return result != ncclSuccess ? result : ended;
}

/* `waits`: others' records go on meanwhile. */
static CUresult group(struct rg_request *request, unsigned count, const unsigned long long *words, bool waits,
                      int *result)
{
    const size_t n = count / RG_NCCL_CALL_WORDS;
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    if (n > RG_NCCL_GROUP_MAX || count % RG_NCCL_CALL_WORDS) {
        rg_request_violation(request, "%u words are no group of calls", count);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct ready *calls = rg_request_memory(request, n * sizeof *calls);
    *result = ncclSystemError;
    if (!calls || !nccl)
        return request->result;
    size_t prepared = 0;
    bool good = true;
    while (prepared < n && good) {
        good = prepare(request, words + prepared * RG_NCCL_CALL_WORDS, &calls[prepared]);
        prepared += calls[prepared].slot != NULL;
    }
    if (good && (!waits || rg_request_detach(request)))
        *result = run(nccl, calls, n);
    if (!good && *result == ncclSystemError)
        *result = ncclInvalidArgument;
    for (size_t i = 0; i < prepared; i++)
        unuse(request, calls[i].slot, waits ? ncclSuccess : *result);
    const CUresult status = request->result;
    if (!waits)
        request->result = CUDA_SUCCESS;
    return status;
}

CUresult rg_execute_rgNcclGroup(struct rg_request *request, unsigned int count,
                                const unsigned long long *words, int *result)
{
    return group(request, count, words, true, result);
}

CUresult rg_execute_rgNcclPost(struct rg_request *request, unsigned int count,
                               const unsigned long long *words)
{
    int result;
    if (group(request, count, words, false, &result) == CUDA_ERROR_OUT_OF_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY; /* tried once more when there is some */
    return CUDA_SUCCESS;                 /* NCCL's calls fail no call of CUDA's */
}

/* --- ranks in several processes --------------------------------------------------------------------------- */

CUresult rg_execute_rgNcclAwait(struct rg_request *request, unsigned long long number, unsigned int waits,
                                unsigned int *n, unsigned char *places, int *result)
{
    const struct rg_nccl_extension *extension = rg_nccl_library_extension();
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    *n = 0;
    *result = ncclSuccess;
    if (!slot)
        return request->result;
    if (extension && (!waits || rg_request_detach(request)))
        *result = (int)extension->await(slot->comm, waits, (unsigned char(*)[RG_NCCL_PLACE_BYTES])places,
                                        RG_NCCL_PLACES, n);
    unuse(request, slot, ncclSuccess);
    return request->result;
}

CUresult rg_execute_rgNcclUnreachable(struct rg_request *request, unsigned long long number, const char *why)
{
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    if (!slot)
        return request->result;
    if (rg_nccl_library_extension())
        rg_nccl_library_extension()->unreachable(slot->comm, why);
    unuse(request, slot, ncclSuccess);
    return CUDA_SUCCESS;
}

/* --- questions ------------------------------------------------------------------------------------------ */

CUresult rg_execute_rgNcclState(struct rg_request *request, unsigned long long number, int *result)
{
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    ncclResult_t state = ncclSystemError;
    if (!slot)
        return request->result;
    if (nccl->ncclCommGetAsyncError(slot->comm, &state) != ncclSuccess)
        state = ncclInternalError;
    *result = state == ncclSuccess && slot->posted != ncclSuccess ? slot->posted : (int)state;
    unuse(request, slot, ncclSuccess);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgNcclId(struct rg_request *request, unsigned char *id, int *result)
{
    (void)request;
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    rg_nccl_network_start();
    ncclUniqueId made;
    *result = nccl ? (int)nccl->ncclGetUniqueId(&made) : ncclSystemError;
    if (*result == ncclSuccess)
        memcpy(id, &made, sizeof made);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgNcclOperator(struct rg_request *request, unsigned long long number, unsigned int type,
                                   unsigned int residence, unsigned long long scalar, int *operation,
                                   int *result)
{
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    const size_t width = rg_nccl_type_size(type);
    if (!width || (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
        *result =
            ncclInvalidArgument; /* the library would follow an address, or read what it takes the type for */
        return CUDA_SUCCESS;
    }
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    ncclRedOp_t op = ncclSum;
    if (!slot)
        return request->result;
    if (residence != ncclScalarDevice || rg_request_device_memory(request, scalar, 0, width, 1)) {
        void *where = residence == ncclScalarDevice ? (void *)(uintptr_t)scalar : &scalar;
        *result = (int)nccl->ncclRedOpCreatePreMulSum(&op, where, (ncclDataType_t)type,
                                                      (ncclScalarResidence_t)residence, slot->comm);
        *operation = (int)op;
    }
    unuse(request, slot, ncclSuccess);
    return request->result;
}

CUresult rg_execute_rgNcclOperatorEnd(struct rg_request *request, unsigned long long number, int operation,
                                      int *result)
{
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    if (!slot)
        return request->result;
    *result = (int)rg_nccl_library(NULL)->ncclRedOpDestroy((ncclRedOp_t)(unsigned)operation, slot->comm);
    unuse(request, slot, ncclSuccess);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgNcclError(struct rg_request *request, size_t capacity, void *text)
{
    const char *why;
    const struct rg_nccl_library *nccl = rg_nccl_library(&why);
    if (capacity == 0 || capacity > RG_NCCL_TEXT_BYTES) {
        rg_request_violation(request, "%zu bytes for NCCL's sentence", capacity);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (nccl && !said)
        why = nccl->ncclGetLastError(NULL);
    else if (nccl)
        why = said;
    said = NULL;
    snprintf(text, capacity, "%s", why ? why : "");
    return CUDA_SUCCESS;
}
