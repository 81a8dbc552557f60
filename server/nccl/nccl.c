/*
 * nccl.c - NCCL's calls, which the worker's own library executes (library.h).
 *
 * The client names communicators by numbers; a table here has the library's objects. Streams, addresses and numbers of a record are
 * looked up and checked while the dispatcher has it. The library is then called on a thread that holds nobody up, as a rank may have
 * to wait for others, which come by records of other threads or in other sessions.
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
#include "server/shares/worker/meter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 1000000 /* between looks whether a communicator that does not block has come to be */

static atomic_bool used; /* some communicator has begun */

struct slot {
    ncclComm_t comm; /* NULL: free, or about to begin (`taken`) */
    bool taken;
    unsigned users;
    int ranks, rank;
    CUdevice device;
    CUcontext context; /* of the device, in which it began */
    int posted;        /* how a call failed that nobody waited for; ncclSuccess: none has */
};

struct nccl_state {
    pthread_mutex_t lock;
    struct slot slots[RG_NCCL_COMMS_MAX];
};

/* The session is over: its ranks are missing from now on, and nobody waits for others'. */
static void wake(struct rg_worker *worker)
{
    const struct rg_nccl_extension *extension = used ? rg_nccl_library_extension() : NULL;
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
    struct nccl_state *state = worker->state[RG_MODULE_NCCL];
    bool alive = false;
    if (!used || rg_nccl_library_extension())
        return NULL;
    RG_SCOPED_LOCK(&state->lock);
    for (unsigned i = 0; i < RG_NCCL_COMMS_MAX && !alive; i++)
        alive = state->slots[i].taken;
    return alive ? "it has communicators of NCCL, whose library shares memory with other processes" : NULL;
}

const struct rg_server_module rg_nccl_module = {
    .size = sizeof(struct nccl_state), .locked = true, .wake = wake, .unsuspendable = unsuspendable};

/* A sentence of the worker's own about what failed last; else the library's is told. */
static _Atomic(const char *) said;

static void say(const char *why)
{
    said = why;
}

static struct nccl_state *state_of(struct rg_request *request)
{
    return request->worker->state[RG_MODULE_NCCL];
}

/* The slot of a communicator that is there, which is used from now on; NULL: there is none of that number. */
static struct slot *use(struct rg_request *request, uint64_t number)
{
    struct nccl_state *state = state_of(request);
    RG_SCOPED_LOCK(&state->lock);
    struct slot *slot = number < RG_NCCL_COMMS_MAX ? &state->slots[number] : NULL;
    if (!slot || !slot->comm) {
        if (request->result == CUDA_SUCCESS)
            request->result = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    slot->users++;
    return slot;
}

/* `posted`: how a call failed that nobody waits for, or ncclSuccess. */
static void unuse(struct rg_request *request, struct slot *slot, int posted)
{
    struct nccl_state *state = state_of(request);
    RG_SCOPED_LOCK(&state->lock);
    slot->users--;
    if (posted != ncclSuccess)
        slot->posted = posted;
}

/* --- groups of calls ------------------------------------------------------------------------------------ */

struct ready {
    struct rg_nccl_call call;
    struct slot *slot;
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

/* Looks up and checks what a call names. */
static bool prepare(struct rg_request *request, const unsigned long long *words, struct ready *ready)
{
    memcpy(&ready->call, words, sizeof ready->call);
    ready->slot = use(request, ready->call.comm);
    if (!ready->slot)
        return false;
    ready->stream = rg_request_stream(request, ready->call.stream);
    return request->result == CUDA_SUCCESS && !request->violated && buffers_are_own(request, ready);
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

/* --- beginnings and ends -------------------------------------------------------------------------------- */

struct begun {
    struct rg_nccl_beginning beginning;
    struct slot *slot, *parent;
    ncclComm_t comm;
    CUcontext context; /* retained here, but of a split */
    struct rg_meter_change change;
};

static bool is_split(const struct begun *begun)
{
    return begun->beginning.parent != RG_NCCL_COMMS_MAX;
}

/* Takes the number for a new communicator; false: it is in use, or too high. */
static bool take_slot(struct rg_request *request, struct begun *begun)
{
    struct nccl_state *state = state_of(request);
    bool taken = false;
    pthread_mutex_lock(&state->lock);
    struct slot *slot =
        begun->beginning.comm < RG_NCCL_COMMS_MAX ? &state->slots[begun->beginning.comm] : NULL;
    if (slot && !slot->taken) {
        *slot = (struct slot){.taken = true};
        begun->slot = slot;
        taken = true;
    }
    pthread_mutex_unlock(&state->lock);
    if (!taken)
        rg_request_violation(request, "communicator %llu is in use, or there can be none",
                             (unsigned long long)begun->beginning.comm);
    return taken;
}

/*
 * A library takes buffers of the device for each communicator, by a driver of its own that nothing stands in front of: what they take
 * shows in what is free, and is charged as long as the communicator lives.
 */
static void watch(struct begun *begun, CUcontext context, CUdevice device)
{
    if (rg_driver.cuCtxSetCurrent(context) == CUDA_SUCCESS)
        rg_meter_watch(&begun->change, device);
    rg_context_unknown();
}

/* False: it is more than is left to the session. */
static bool charge(const struct begun *begun, CUcontext context)
{
    const bool fits =
        !begun->comm || rg_driver.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        rg_meter_watched(&begun->change, CUDA_SUCCESS, RG_METER_COMMUNICATOR, (uintptr_t)begun->comm);
    rg_context_unknown();
    return fits;
}

static bool prepare_beginning(struct rg_request *request, const unsigned long long *words,
                              struct begun *begun)
{
    memcpy(&begun->beginning, words, sizeof begun->beginning);
    if (!take_slot(request, begun))
        return false;
    if (is_split(begun)) {
        begun->parent = use(request, begun->beginning.parent);
        if (begun->parent)
            watch(begun, begun->parent->context, begun->parent->device);
        return begun->parent != NULL;
    }
    CUdevice device;
    if (begun->beginning.device > INT32_MAX ||
        rg_driver.cuDeviceGet(&device, (int)begun->beginning.device) != CUDA_SUCCESS) {
        request->result = CUDA_ERROR_INVALID_DEVICE;
        return false;
    }
    const CUresult result = rg_driver.cuDevicePrimaryCtxRetain(&begun->context, device);
    if (result == CUDA_SUCCESS)
        watch(begun, begun->context, device);
    else
        request->result = result;
    return result == CUDA_SUCCESS;
}

/*
 * Of members that are not set NCCL chooses. The software device's is not to block: its ranks may be in other processes, to which the
 * client connects this one meanwhile (rgNcclAwait).
 */
static ncclConfig_t config_of(const struct begun *begun)
{
    return (ncclConfig_t){
        .size = sizeof(ncclConfig_t),
        .magic = NCCL_CONFIG_MAGIC,
        .version = NCCL_VERSION_CODE,
        .blocking = begun->beginning.blocking != 0 && (is_split(begun) || !rg_nccl_library_extension()),
        .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
        .minCTAs = NCCL_CONFIG_UNDEF_INT,
        .maxCTAs = NCCL_CONFIG_UNDEF_INT,
        .splitShare = NCCL_CONFIG_UNDEF_INT,
        .trafficClass = NCCL_CONFIG_UNDEF_INT,
        .collnetEnable = NCCL_CONFIG_UNDEF_INT,
        .CTAPolicy = NCCL_CONFIG_UNDEF_INT,
        .shrinkShare = NCCL_CONFIG_UNDEF_INT,
        .nvlsCTAs = NCCL_CONFIG_UNDEF_INT,
    };
}

static ncclResult_t begin_one(const struct rg_nccl_library *nccl, struct begun *begun)
{
    ncclConfig_t config = config_of(begun);
    if (is_split(begun))
        return nccl->ncclCommSplit(begun->parent->comm, (int)(uint32_t)begun->beginning.ranks,
                                   (int)(uint32_t)begun->beginning.rank, &begun->comm, &config);
    ncclUniqueId id;
    _Static_assert(sizeof id == sizeof begun->beginning.id, "an id is as long as NCCL's");
    memcpy(&id, begun->beginning.id, sizeof id);
    if (rg_nccl_id_is_ours(&id) && !rg_nccl_library_extension()) {
        say("the id was made by the NCCL of a software device, and this server has another one");
        return ncclInvalidUsage;
    }
    if (rg_driver.cuCtxSetCurrent(begun->context) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    return nccl->ncclCommInitRankConfig(&begun->comm, (int)(uint32_t)begun->beginning.ranks, id,
                                        (int)(uint32_t)begun->beginning.rank, &config);
}

/* A split that does not block: which rank it has been given is not known before it has come to be. */
static ncclResult_t await_split(const struct rg_nccl_library *nccl, const struct begun *begun)
{
    ncclResult_t state = ncclInProgress;
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    while (nccl->ncclCommGetAsyncError(begun->parent->comm, &state) == ncclSuccess && state == ncclInProgress)
        nanosleep(&pause, NULL);
    return state;
}

static ncclResult_t begin_all(const struct rg_nccl_library *nccl, struct begun *all, size_t n)
{
    ncclResult_t result = nccl->ncclGroupStart();
    for (size_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++)
        result = begin_one(nccl, &all[i]);
    const ncclResult_t ended = nccl->ncclGroupEnd();
    if (result == ncclSuccess || result == ncclInProgress)
        result = ended;
    for (size_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++)
        if (is_split(&all[i]) && result == ncclInProgress)
            result = await_split(nccl, &all[i]);
    rg_context_unknown();
    return result;
}

static ncclResult_t end_it(const struct rg_nccl_library *nccl, ncclComm_t comm, unsigned how)
{
    if (how == RG_NCCL_FINALIZE)
        return nccl->ncclCommFinalize(comm);
    struct rg_meter_freed freed = rg_meter_free_begin(RG_METER_COMMUNICATOR, (uintptr_t)comm);
    const ncclResult_t result =
        how == RG_NCCL_DESTROY ? nccl->ncclCommDestroy(comm) : nccl->ncclCommAbort(comm);
    rg_meter_free_end(&freed, CUDA_SUCCESS); /* it is gone, whatever it says */
    return result;
}

static bool charge_all(const struct begun *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!charge(&all[i], is_split(&all[i]) ? all[i].parent->context : all[i].context))
            return false;
    return true;
}

/* Puts what has begun into the table, or ends all of it again. */
static void settle(struct rg_request *request, const struct rg_nccl_library *nccl, struct begun *begun,
                   bool good, unsigned *told)
{
    struct nccl_state *state = state_of(request);
    int ranks = 0, rank = 0;
    if (good && begun->comm && is_split(begun)) {
        (void)nccl->ncclCommCount(begun->comm, &ranks);
        (void)nccl->ncclCommUserRank(begun->comm, &rank);
    } else if (good && begun->comm) {
        ranks = (int)begun->beginning.ranks;
        rank = (int)begun->beginning.rank;
    } else if (begun->comm) {
        (void)end_it(nccl, begun->comm, RG_NCCL_ABORT);
        begun->comm = NULL;
    }
    pthread_mutex_lock(&state->lock);
    if (begun->slot)
        *begun->slot =
            (struct slot){.comm = begun->comm,
                          .taken = begun->comm != NULL,
                          .ranks = ranks,
                          .rank = rank,
                          .device = begun->parent ? begun->parent->device : (CUdevice)begun->beginning.device,
                          .context = begun->parent ? begun->parent->context : begun->context};
    if (begun->parent)
        begun->parent->users--;
    pthread_mutex_unlock(&state->lock);
    if (begun->context)
        (void)rg_driver.cuDevicePrimaryCtxRelease_v2((CUdevice)begun->beginning.device);
    told[0] = (unsigned)ranks;
    told[1] = (unsigned)rank;
}

CUresult rg_execute_rgNcclBegin(struct rg_request *request, unsigned int count, unsigned int places,
                                const unsigned long long *words, int *result, unsigned int *told)
{
    const size_t n = count / RG_NCCL_BEGINNING_WORDS;
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    rg_nccl_network_start();
    atomic_store(&used, true);
    if (n > RG_NCCL_BEGINNINGS_MAX || count % RG_NCCL_BEGINNING_WORDS || places != 2 * n) {
        rg_request_violation(request, "%u words are no beginnings of communicators", count);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct begun *all = rg_request_memory(request, n * sizeof *all);
    *result = ncclSystemError;
    if (!all || !nccl)
        return request->result;
    size_t prepared = 0;
    bool good = true;
    while (prepared < n && good) {
        good = prepare_beginning(request, words + prepared * RG_NCCL_BEGINNING_WORDS, &all[prepared]);
        prepared++;
    }
    good = good && rg_request_detach(request);
    if (good) {
        *result = begin_all(nccl, all, n);
        good = *result == ncclSuccess || *result == ncclInProgress;
        if (good && !charge_all(all, n)) {
            say("the communicator's buffers are more device memory than is left to the session");
            *result = ncclUnhandledCudaError;
            good = false;
        }
    }
    for (size_t i = 0; i < prepared; i++)
        settle(request, nccl, &all[i], good, &told[2 * i]);
    return request->result;
}

CUresult rg_execute_rgNcclEnd(struct rg_request *request, unsigned long long number, unsigned int how,
                              int *result)
{
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    struct nccl_state *state = state_of(request);
    *result = ncclSystemError;
    struct slot *slot = use(request, number);
    if (!slot || !nccl)
        return request->result;
    pthread_mutex_lock(&state->lock);
    const bool alone = slot->users == 1;
    ncclComm_t comm = slot->comm;
    if (alone && how != RG_NCCL_FINALIZE)
        slot->comm = NULL; /* nobody finds it any more; the number is still taken */
    pthread_mutex_unlock(&state->lock);
    if (!alone) {
        *result = ncclInvalidUsage; /* another thread is inside of a call */
    } else if (rg_request_detach(request)) {
        *result = end_it(nccl, comm, how);
        rg_context_unknown();
    }
    pthread_mutex_lock(&state->lock);
    slot->users--;
    if (alone && how != RG_NCCL_FINALIZE)
        slot->taken = false;
    pthread_mutex_unlock(&state->lock);
    return request->result;
}

/* --- ranks in several processes --------------------------------------------------------------------------- */

CUresult rg_execute_rgNcclAwait(struct rg_request *request, unsigned long long number, unsigned int waits,
                                unsigned int *n, unsigned char *places, int *result)
{
    const struct rg_nccl_extension *extension = rg_nccl_library_extension();
    struct slot *slot = use(request, number);
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
    struct slot *slot = use(request, number);
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
    struct slot *slot = use(request, number);
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
    struct slot *slot = use(request, number);
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
    struct slot *slot = use(request, number);
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
