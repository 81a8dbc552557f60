/*
 * communicator.c - communicators and memory; and the table of NCCL's functions. See nccl.h. What is asked about communicators is in
 * questions.c, calls of groups in group.c, operators in operators.c, errors in errors.c. Any thread.
 */
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/modules.h"
#include "client/nccl/nccl.h"
#include "client/nccl/rendezvous.h"
#include "common/base/log.h"
#include "common/cuda/nccl_config.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Guards what follows. A leaf. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool numbers[RG_NCCL_COMMS_MAX]; /* that are taken */
static struct rg_nccl_clique *cliques;

/* --- communicators -------------------------------------------------------------------------------------- */

/* Sees to it that there is a session; else the error, which has been told. */
static ncclResult_t start(void)
{
    const CUresult status = cuInit(0);
    return status == CUDA_SUCCESS
               ? ncclSuccess
               : rg_nccl_fail(ncclUnhandledCudaError, "there is no device (CUDA error %d)", (int)status);
}

/* A clique of that key, of the session or (NULL) of any; NULL: there is none. The lock is held. */
static struct rg_nccl_clique *find_clique(const struct rg_session *session, const uint64_t key[16])
{
    struct rg_nccl_clique *clique = cliques;
    while (clique &&
           ((session && clique->session != session) || memcmp(clique->key, key, sizeof clique->key) != 0))
        clique = clique->next;
    return clique;
}

/* The clique of that key, with one rank more; NULL: out of memory. The lock is held. */
static struct rg_nccl_clique *enter_clique(const struct rg_session *session, const uint64_t key[16])
{
    static uint64_t wholes;
    struct rg_nccl_clique *clique = find_clique(session, key);
    if (!clique && (clique = calloc(1, sizeof *clique)) != NULL) {
        const struct rg_nccl_clique *other = find_clique(NULL, key);
        clique->session = session;
        clique->whole = other ? other->whole : ++wholes;
        memcpy(clique->key, key, sizeof clique->key);
        clique->next = cliques;
        cliques = clique;
    }
    if (clique)
        clique->here++;
    return clique;
}

static void leave_clique(struct rg_nccl_clique *clique)
{
    if (--clique->here)
        return;
    struct rg_nccl_clique **at = &cliques;
    while (*at != clique)
        at = &(*at)->next;
    *at = clique->next;
    free(clique);
}

ncclComm_t rg_nccl_comm_make(const struct rg_session *session, const uint64_t key[16])
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    RG_SCOPED_LOCK(&lock);
    uint32_t number = 0;
    while (number < RG_NCCL_COMMS_MAX && numbers[number])
        number++;
    if (!comm || number == RG_NCCL_COMMS_MAX || !(comm->clique = enter_clique(session, key))) {
        free(comm);
        return NULL;
    }
    numbers[number] = true;
    comm->number = number;
    comm->session = session;
    rg_nccl_comm_hold(comm);
    return comm;
}

bool rg_nccl_comms_complete(const ncclComm_t *comms, size_t n)
{
    static uint64_t looks;
    bool complete = true;
    RG_SCOPED_LOCK(&lock);
    looks++;
    for (size_t i = 0; i < n; i++)
        comms[i]->clique->named = 0;
    for (size_t i = 0; i < n; i++)
        if (comms[i]->named_by != looks) {
            comms[i]->named_by = looks;
            comms[i]->clique->named++;
        }
    for (size_t i = 0; i < n; i++)
        complete = complete && comms[i]->clique->named == comms[i]->clique->here;
    return complete;
}

size_t rg_nccl_comm_ranks_here(const struct ncclComm *comm)
{
    RG_SCOPED_LOCK(&lock);
    return comm->clique->here;
}

void rg_nccl_comm_hold(ncclComm_t comm)
{
    atomic_fetch_add(&comm->held, 1);
}

void rg_nccl_comm_let_go(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->held, 1) > 1)
        return;
    pthread_mutex_lock(&lock);
    numbers[comm->number] = false; /* none of its calls can be sent to another one that has it then */
    leave_clique(comm->clique);
    pthread_mutex_unlock(&lock);
    free(comm->operators);
    free(comm);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (!id)
        return rg_nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: there is no place for the id");
    const ncclResult_t started = start();
    if (started != ncclSuccess)
        return started;
    const struct rg_session *session = rg_session_current();
    int result = ncclSystemError;
    rg_nccl_tell_place(session);
    const CUresult status =
        rg_op_rgNcclId((unsigned char *)id->internal, &result, rg_home_of_session(session));
    return rg_nccl_answered(session, "ncclGetUniqueId", status, result);
}

ncclResult_t rg_nccl_check_config(const ncclConfig_t *config, bool *blocking)
{
    char why[RG_NCCL_CONFIG_WHY];
    return rg_nccl_config_read(config, blocking, why) ? ncclSuccess
                                                      : rg_nccl_fail(ncclInvalidArgument, "%s", why);
}

static ncclResult_t join(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank, CUdevice device,
                         bool blocking)
{
    const struct rg_session *session = rg_device_session(device);
    uint64_t key[16];
    memcpy(key, id, sizeof key);
    ncclComm_t comm = session ? rg_nccl_comm_make(session, key) : NULL;
    if (!comm)
        return rg_nccl_fail(ncclSystemError, "there are %u communicators already, or there is no memory",
                            RG_NCCL_COMMS_MAX);
    comm->ranks = ranks;
    comm->rank = rank;
    comm->device = device;
    comm->blocking = blocking;
    struct rg_nccl_beginning wire = {.parent = RG_NCCL_COMMS_MAX,
                                     .ranks = (uint64_t)ranks,
                                     .rank = (uint64_t)rank,
                                     .device = (uint64_t)rg_device_there(session, device),
                                     .blocking = blocking};
    memcpy(wire.id, key, sizeof wire.id);
    return rg_nccl_group_begin(out, comm, &wire);
}

static ncclResult_t init_rank(const char *function, ncclComm_t *out, int ranks, const ncclUniqueId *id,
                              int rank, const ncclConfig_t *config)
{
    bool blocking = true;
    CUdevice device = 0;
    if (!out || !id)
        return rg_nccl_fail(ncclInvalidArgument, "%s: there is no place for the communicator, or no id",
                            function);
    *out = NULL;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return rg_nccl_fail(ncclInvalidArgument, "%s: there is no rank %d of %d", function, rank, ranks);
    ncclResult_t result = rg_nccl_check_config(config, &blocking);
    if (result == ncclSuccess)
        result = start();
    if (result != ncclSuccess)
        return result;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = 0; /* the runtime's, before the program has chosen one */
    return join(out, ranks, id, rank, device, blocking);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return rg_nccl_group_failed(init_rank("ncclCommInitRank", comm, ranks, &id, rank, NULL));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    return rg_nccl_group_failed(init_rank("ncclCommInitRankConfig", comm, ranks, &id, rank, config));
}

/* One id is enough. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int n_ids, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    if (n_ids < 1 || n_ids > ranks)
        return rg_nccl_group_failed(rg_nccl_fail(
            ncclInvalidArgument, "ncclCommInitRankScalable: %d ids for %d ranks: there may be one for each",
            n_ids, ranks));
    return rg_nccl_group_failed(init_rank("ncclCommInitRankScalable", comm, ranks, ids, rank, config));
}

static ncclResult_t check_devices(int n, const int *devices)
{
    const int there = (int)rg_device_count();
    if (n < 1 || (!devices && n > there))
        return rg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d ranks, where there are %d devices", n,
                            there);
    for (int i = 0; devices && i < n; i++) {
        if (devices[i] < 0 || devices[i] >= there)
            return rg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: device %d, where there are %d",
                                devices[i], there);
        for (int other = 0; other < i; other++)
            if (devices[other] == devices[i])
                return rg_nccl_fail(ncclInvalidUsage, "ncclCommInitAll: device %d is named twice",
                                    devices[i]);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    if (!comms)
        return rg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: there is no place for the communicators");
    ncclResult_t result = start();
    if (result == ncclSuccess)
        result = check_devices(n, devices);
    if (result == ncclSuccess)
        result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return result;
    (void)ncclGroupStart();
    for (int rank = 0; rank < n; rank++)
        (void)rg_nccl_group_failed(join(&comms[rank], n, &id, rank, devices ? devices[rank] : rank, true));
    return ncclGroupEnd();
}

static ncclResult_t end(const char *function, ncclComm_t comm, enum rg_nccl_end how)
{
    int result = ncclSystemError;
    const CUresult status = rg_op_rgNcclEnd(comm->number, how, &result, rg_home_of_session(comm->session));
    return rg_nccl_answered(comm->session, function, status, result);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    if (comm->finalized)
        return rg_nccl_fail(ncclInvalidArgument, "ncclCommFinalize: the communicator has been finalised");
    rg_nccl_comm_hold(comm);
    const ncclResult_t result = end("ncclCommFinalize", comm, RG_NCCL_FINALIZE);
    comm->finalized = result == ncclSuccess || result == ncclInProgress;
    if (result == ncclInProgress)
        atomic_store(&comm->ready, false);
    rg_nccl_comm_let_go(comm);
    return result;
}

static ncclResult_t destroy(ncclComm_t comm)
{
    const ncclResult_t result = end("ncclCommDestroy", comm, RG_NCCL_DESTROY);
    if (result != ncclInvalidUsage) /* then another thread is inside of a call */
        rg_nccl_comm_let_go(comm);
    return result;
}

void rg_nccl_comm_end(ncclComm_t comm, bool over)
{
    if (over)
        rg_nccl_comm_let_go(comm);
    else
        (void)destroy(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return comm && !rg_nccl_graphs_keep(comm, false) ? destroy(comm) : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    const ncclResult_t result = end("ncclCommAbort", comm, RG_NCCL_ABORT);
    if (result != ncclInvalidUsage && !rg_nccl_graphs_keep(comm, true))
        rg_nccl_comm_let_go(comm);
    return result;
}

/* --- memory: registering it would only make it faster ---------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **memory, size_t size)
{
    CUdeviceptr address = 0;
    if (!memory)
        return rg_nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc: there is no place for the address");
    if (size && cuMemAlloc_v2(&address, size) != CUDA_SUCCESS)
        return rg_nccl_fail(ncclUnhandledCudaError,
                            "ncclMemAlloc: the device has no %zu bytes, or none is current", size);
    *memory = (void *)(uintptr_t)address;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory)
{
    return cuMemFree_v2((CUdeviceptr)(uintptr_t)memory) == CUDA_SUCCESS ? ncclSuccess
                                                                        : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    return rg_nccl_register_nothing(comm, buffer, size, handle);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    return rg_nccl_deregister_nothing(comm);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                    int flags)
{
    const ncclResult_t ready = comm ? rg_nccl_ready("ncclCommWindowRegister", comm) : ncclSuccess;
    (void)flags;
    return ready == ncclSuccess ? rg_nccl_register_nothing(comm, buffer, size, (void **)window) : ready;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)window;
    return rg_nccl_deregister_nothing(comm);
}

/* --- the table ------------------------------------------------------------------------------------------- */

__attribute__((visibility("default"))) void *const *rg_client_nccl_entry(size_t count);

void *const *rg_client_nccl_entry(size_t count)
{
    static void *const table[RG_NCCL_FUNCTION_COUNT] = {
#define ROW(name) [RG_NCCL_##name] = (void *)name,
        RG_NCCL_FUNCTIONS(ROW)
#undef ROW
    };
    rg_modules_register();
    return count == RG_NCCL_FUNCTION_COUNT ? table : NULL;
}
