/*
 * beginnings.c - how communicators begin and end; see nccl.c.
 *
 * Happy path: a number of the table is taken for each that is to begin, the library makes all of a record together on a thread that holds
 * nobody up, what they took of the devices is charged, and they are in the table. Where one fails, or is more than the session has left,
 * none has begun. One that a call still uses cannot end; where it is aborted, and the library is the software device's, such calls fail
 * first.
 */
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "proto/nccl/call.h"
#include "server/core/worker.h"
#include "server/nccl/library.h"
#include "server/nccl/network.h"
#include "server/nccl/slots.h"
#include "server/shares/worker/meter.h"

#include <string.h>
#include <time.h>

#define LOOK_NS 1000000 /* between looks whether a communicator that does not block has come to be */

struct begun {
    struct rg_nccl_beginning beginning;
    struct rg_nccl_slot *slot, *parent;
    ncclComm_t comm;
    CUcontext context; /* retained here, but of one that is made of another one */
    struct rg_meter_change change;
};

/* Whether it is made of the ranks of another one. */
static bool is_split(const struct begun *begun)
{
    return begun->beginning.parent != RG_NCCL_COMMS_MAX;
}

static bool is_shrunk(const struct begun *begun)
{
    return is_split(begun) && begun->beginning.shrink != RG_NCCL_SPLIT;
}

/* Takes the number for a new communicator; false: it is in use, or too high. */
static bool take_slot(struct rg_request *request, struct begun *begun)
{
    struct rg_nccl_state *state = rg_nccl_state_of(request);
    bool taken = false;
    pthread_mutex_lock(&state->lock);
    struct rg_nccl_slot *slot =
        begun->beginning.comm < RG_NCCL_COMMS_MAX ? &state->slots[begun->beginning.comm] : NULL;
    if (slot && !slot->taken) {
        *slot = (struct rg_nccl_slot){.taken = true};
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
        begun->parent = rg_nccl_use(request, begun->beginning.parent);
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
 * client connects this one meanwhile (rgNcclAwait). One that is shrunk blocks: its parent, which may have failed, cannot tell when it has
 * come to be.
 */
static ncclConfig_t config_of(const struct begun *begun)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = is_shrunk(begun) ||
                      (begun->beginning.blocking != 0 && (is_split(begun) || !rg_nccl_library_extension()));
    return config;
}

static ncclResult_t shrink(const struct rg_nccl_library *nccl, struct begun *begun, ncclConfig_t *config)
{
    int excluded[sizeof begun->beginning.id * 8], n = 0;
    for (int rank = 0; rank < (int)(sizeof excluded / sizeof excluded[0]); rank++)
        if (begun->beginning.id[rank / 64] >> rank % 64 & 1) {
            if (rank >= begun->parent->ranks || rank == begun->parent->rank)
                return ncclInvalidArgument;
            excluded[n++] = rank;
        }
    if (!nccl->ncclCommShrink) {
        rg_nccl_say("ncclCommShrink: the server's NCCL is older than 2.27, which brought it");
        return ncclInvalidUsage;
    }
    return nccl->ncclCommShrink(begun->parent->comm, excluded, n, &begun->comm, config,
                                begun->beginning.shrink == RG_NCCL_SHRINK_ABORT ? NCCL_SHRINK_ABORT
                                                                                : NCCL_SHRINK_DEFAULT);
}

static ncclResult_t begin_one(const struct rg_nccl_library *nccl, struct begun *begun)
{
    ncclConfig_t config = config_of(begun);
    if (is_shrunk(begun))
        return shrink(nccl, begun, &config);
    if (is_split(begun))
        return nccl->ncclCommSplit(begun->parent->comm, (int)(uint32_t)begun->beginning.ranks,
                                   (int)(uint32_t)begun->beginning.rank, &begun->comm, &config);
    ncclUniqueId id;
    _Static_assert(sizeof id == sizeof begun->beginning.id, "an id is as long as NCCL's");
    memcpy(&id, begun->beginning.id, sizeof id);
    if (rg_nccl_id_is_ours(&id) && !rg_nccl_library_extension()) {
        rg_nccl_say("the id was made by the NCCL of a software device, and this server has another one");
        return ncclInvalidUsage;
    }
    if (rg_driver.cuCtxSetCurrent(begun->context) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    return nccl->ncclCommInitRankConfig(&begun->comm, (int)(uint32_t)begun->beginning.ranks, id,
                                        (int)(uint32_t)begun->beginning.rank, &config);
}

/* Until it is at rest, or has failed: how. */
static ncclResult_t await(const struct rg_nccl_library *nccl, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    while (nccl->ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress)
        nanosleep(&pause, NULL);
    return state;
}

/* A split that does not block: which rank it has been given it does not say before it has come to be. */
static ncclResult_t await_split(const struct rg_nccl_library *nccl, const struct begun *begun)
{
    const ncclResult_t result = await(nccl, begun->parent->comm);
    return result == ncclSuccess && begun->comm ? await(nccl, begun->comm) : result;
}

static ncclResult_t begin_all(const struct rg_nccl_library *nccl, struct begun *all, size_t n)
{
    ncclResult_t result = nccl->ncclGroupStart();
    for (size_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++)
        result = begin_one(nccl, &all[i]);
    const ncclResult_t ended = nccl->ncclGroupEnd();
    if (result == ncclSuccess || result == ncclInProgress)
        result = ended;
    for (size_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++) {
        const bool waits = is_split(&all[i]) && !config_of(&all[i]).blocking;
        const ncclResult_t state = waits ? await_split(nccl, &all[i]) : ncclSuccess;
        result = state == ncclSuccess ? result : state;
    }
    rg_context_unknown();
    return result;
}

/* Waits where the client's communicator blocks, also if the library's does not. */
static ncclResult_t finalize(const struct rg_nccl_library *nccl, ncclComm_t comm, bool blocking)
{
    const ncclResult_t result = nccl->ncclCommFinalize(comm);
    return result == ncclInProgress && blocking ? await(nccl, comm) : result;
}

static ncclResult_t end_it(const struct rg_nccl_library *nccl, ncclComm_t comm, unsigned how)
{
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

/* How many ranks there are, and which is the session's: by these its buffers are checked. False: the library does not say. */
static bool find_ranks(const struct rg_nccl_library *nccl, const struct begun *begun, int *ranks, int *rank)
{
    *ranks = (int)begun->beginning.ranks;
    *rank = (int)begun->beginning.rank;
    return !is_split(begun) || (nccl->ncclCommCount(begun->comm, ranks) == ncclSuccess &&
                                nccl->ncclCommUserRank(begun->comm, rank) == ncclSuccess && *ranks > 0);
}

/* Puts what has begun into the table, or ends all of it again. */
static void settle(struct rg_request *request, const struct rg_nccl_library *nccl, struct begun *begun,
                   bool good, unsigned *told)
{
    struct rg_nccl_state *state = rg_nccl_state_of(request);
    int ranks = 0, rank = 0;
    if (begun->comm && (!good || !find_ranks(nccl, begun, &ranks, &rank))) {
        (void)end_it(nccl, begun->comm, RG_NCCL_ABORT);
        begun->comm = NULL;
        ranks = rank = 0;
    }
    pthread_mutex_lock(&state->lock);
    if (begun->slot)
        *begun->slot = (struct rg_nccl_slot){
            .comm = begun->comm,
            .taken = begun->comm != NULL,
            .blocking = begun->beginning.blocking != 0,
            .ranks = ranks,
            .rank = rank,
            .device = begun->parent ? begun->parent->device : (CUdevice)begun->beginning.device,
            .context = begun->parent ? begun->parent->context : begun->context};
    if (begun->parent)
        rg_nccl_leave(begun->parent);
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
    atomic_store(&rg_nccl_used, true);
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
            rg_nccl_say("the communicator's buffers are more device memory than is left to the session");
            *result = ncclUnhandledCudaError;
            good = false;
        }
    }
    for (size_t i = 0; i < prepared; i++)
        settle(request, nccl, &all[i], good, &told[2 * i]);
    return request->result;
}

/* Whether a call but this one uses it. */
static bool is_shared(struct rg_nccl_state *state, const struct rg_nccl_slot *slot)
{
    RG_SCOPED_LOCK(&state->lock);
    return slot->users > 1;
}

/* Other threads are inside of calls of a communicator that is aborted: they go on, with an error, and have left it when this returns. */
static void send_away(struct rg_nccl_state *state, const struct rg_nccl_slot *slot)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    rg_nccl_library_extension()->give_up(slot->comm);
    while (is_shared(state, slot))
        nanosleep(&pause, NULL);
}

CUresult rg_execute_rgNcclEnd(struct rg_request *request, unsigned long long number, unsigned int how,
                              int *result)
{
    const struct rg_nccl_library *nccl = rg_nccl_library(NULL);
    struct rg_nccl_state *state = rg_nccl_state_of(request);
    *result = ncclSystemError;
    struct rg_nccl_slot *slot = rg_nccl_use(request, number);
    if (!slot || !nccl)
        return request->result;
    pthread_mutex_lock(&state->lock);
    const ncclComm_t comm = slot->comm;
    const bool alone = slot->users == 1,
               may = alone || (how == RG_NCCL_ABORT && rg_nccl_library_extension() && !slot->ending),
               ends = may && how != RG_NCCL_FINALIZE;
    slot->ending = slot->ending || ends; /* nobody finds it any more; the number is still taken */
    pthread_mutex_unlock(&state->lock);
    if (!may) {
        *result = ncclInvalidUsage; /* another thread is inside of a call */
    } else if (rg_request_detach(request)) {
        if (!alone)
            send_away(state, slot);
        *result = how == RG_NCCL_FINALIZE ? finalize(nccl, comm, slot->blocking) : end_it(nccl, comm, how);
        rg_context_unknown();
    } else if (!alone) { /* there is no thread to wait on: who leaves it last frees the number */
        rg_nccl_library_extension()->give_up(comm);
    }
    pthread_mutex_lock(&state->lock);
    rg_nccl_leave(slot);
    pthread_mutex_unlock(&state->lock);
    return request->result;
}
