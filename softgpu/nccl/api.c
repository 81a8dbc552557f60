/* api.c - NCCL's functions but the collective calls and groups (group.c): beginning and end of communicators, operators, questions. */
#include "softgpu/nccl/capture.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/group.h"
#include "softgpu/nccl/meeting.h"

#include "common/base/status.h"
#include "common/cuda/nccl_config.h"

#include <stdlib.h>
#include <string.h>

/* --- what went wrong ------------------------------------------------------------------------------------ */

ncclResult_t sg_nccl_later(const char *name)
{
    return sg_nccl_fail(ncclInvalidUsage, "%s is of a later version than 2.27", name);
}

const char *sg_ncclGetErrorString(ncclResult_t result)
{
    return rg_nccl_error_string(result);
}

void sg_ncclResetDebugInit(void)
{
}

ncclResult_t sg_ncclGetVersion(int *version)
{
    if (!version)
        return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* --- communicators -------------------------------------------------------------------------------------- */

ncclResult_t sg_ncclGetUniqueId(ncclUniqueId *id)
{
    if (!id)
        return sg_nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: there is no place for the id");
    _Static_assert(sizeof(struct rg_nccl_id) == sizeof *id, "an id is an id of NCCL's");
    struct rg_nccl_id made;
    const bool whole = sg_meeting_new(&made);
    memcpy(id, &made, sizeof *id);
    return whole ? ncclSuccess
                 : sg_nccl_fail(ncclSystemError,
                                "ncclGetUniqueId: the system gives no random numbers, or no memory");
}

static ncclResult_t check_config(const ncclConfig_t *config, bool *blocking)
{
    char why[RG_NCCL_CONFIG_WHY];
    return rg_nccl_config_read(config, blocking, why) ? ncclSuccess
                                                      : sg_nccl_fail(ncclInvalidArgument, "%s", why);
}

static ncclResult_t init_rank(const char *function, ncclComm_t *comm, int n, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config)
{
    bool blocking = true;
    if (!comm || !id)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no place for the communicator, or no id",
                            function);
    *comm = NULL;
    if (n < 1 || n > SG_NCCL_RANKS_MAX || rank < 0 || rank >= n)
        return sg_nccl_fail(ncclInvalidArgument, "%s: rank %d of %d: there may be %d, from 0 on", function,
                            rank, n, SG_NCCL_RANKS_MAX);
    RG_TRY(check_config(config, &blocking));
    if (!sg_nccl_driver())
        return sg_nccl_fail(ncclUnhandledCudaError, "%s: there is no CUDA driver", function);
    return sg_group_join(comm, n, id, rank, blocking);
}

ncclResult_t sg_ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    return sg_group_failed(init_rank("ncclCommInitRank", comm, n, &id, rank, NULL));
}

ncclResult_t sg_ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                       ncclConfig_t *config)
{
    return sg_group_failed(init_rank("ncclCommInitRankConfig", comm, n, &id, rank, config));
}

ncclResult_t sg_ncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int n_ids, ncclUniqueId *ids,
                                         ncclConfig_t *config)
{
    if (n_ids < 1 || n_ids > n)
        return sg_group_failed(sg_nccl_fail(
            ncclInvalidArgument, "ncclCommInitRankScalable: %d ids for %d ranks: there may be one for each",
            n_ids, n));
    return sg_group_failed(
        init_rank("ncclCommInitRankScalable", comm, n, ids, rank, config)); /* one is enough here */
}

static ncclResult_t check_devices(int n, const int *devices)
{
    int there = 0;
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    if (!driver || driver->p_cuDeviceGetCount(&there) != CUDA_SUCCESS)
        return sg_nccl_fail(ncclUnhandledCudaError, "ncclCommInitAll: there is no CUDA driver");
    if (n < 1 || n > SG_NCCL_RANKS_MAX || (!devices && n > there))
        return sg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d ranks, where there are %d devices", n,
                            there);
    for (int i = 0; devices && i < n; i++) {
        if (devices[i] < 0 || devices[i] >= there)
            return sg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: device %d, where there are %d",
                                devices[i], there);
        for (int other = 0; other < i; other++)
            if (devices[other] == devices[i])
                return sg_nccl_fail(ncclInvalidUsage, "ncclCommInitAll: device %d is named twice",
                                    devices[i]);
    }
    return ncclSuccess;
}

/* Joins on device `which` with its primary context. */
static ncclResult_t join_on(const ncclUniqueId *id, int n, int rank, int which, ncclComm_t *comm)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    CUdevice device;
    CUcontext context, popped;
    if (driver->p_cuDeviceGet(&device, which) != CUDA_SUCCESS ||
        driver->p_cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return sg_nccl_fail(ncclUnhandledCudaError, "ncclCommInitAll: device %d cannot be used", which);
    ncclResult_t result = ncclUnhandledCudaError;
    if (driver->p_cuCtxPushCurrent(context) == CUDA_SUCCESS) {
        result = sg_clique_join(id, n, rank, true, true, comm);
        (void)driver->p_cuCtxPopCurrent(&popped);
    }
    (void)driver->p_cuDevicePrimaryCtxRelease(device);
    return result;
}

ncclResult_t sg_ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    if (!comms)
        return sg_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: there is no place for the communicators");
    ncclResult_t result = check_devices(n, devices);
    if (result == ncclSuccess)
        result = sg_ncclGetUniqueId(&id);
    int joined = 0;
    for (; joined < n && result == ncclSuccess; joined++)
        result = join_on(&id, n, joined, devices ? devices[joined] : joined, &comms[joined]);
    if (result == ncclSuccess)
        return ncclSuccess;
    for (int rank = 0; rank < joined - 1; rank++) {
        (void)sg_clique_leave(comms[rank], true);
        comms[rank] = NULL;
    }
    return result;
}

/* What splitting and shrinking begin with. */
static ncclResult_t begin_part(const char *function, ncclComm_t comm, ncclComm_t *out,
                               const ncclConfig_t *config, bool *blocking)
{
    if (!comm || !out)
        return sg_nccl_fail(ncclInvalidArgument, "%s: there is no communicator, or no place for one",
                            function);
    *out = NULL;
    *blocking = config || comm->blocking; /* who says something takes nothing over */
    return check_config(config, blocking);
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *out, const ncclConfig_t *config)
{
    bool blocking;
    RG_TRY(begin_part("ncclCommSplit", comm, out, config, &blocking));
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return sg_nccl_fail(ncclInvalidArgument,
                            "ncclCommSplit: color %d: it is 0 or more, or NCCL_SPLIT_NOCOLOR", color);
    RG_TRY(sg_clique_usable(comm, "ncclCommSplit"));
    return sg_group_split(comm, color, key, out, blocking);
}

ncclResult_t sg_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    return sg_group_failed(split(comm, color, key, out, config));
}

static ncclResult_t shrink(ncclComm_t comm, int *excluded, int n_excluded, ncclComm_t *out,
                           const ncclConfig_t *config, int flags)
{
    uint64_t away = 0;
    bool blocking;
    RG_TRY(begin_part("ncclCommShrink", comm, out, config, &blocking));
    const char *why = rg_nccl_exclude(excluded, n_excluded, comm->rank, comm->clique->n, &away, 1);
    if (why || flags & ~NCCL_SHRINK_ABORT)
        return sg_nccl_fail(ncclInvalidArgument, "ncclCommShrink: %s", why ? why : "unknown flags");
    if (flags != NCCL_SHRINK_ABORT)
        RG_TRY(sg_clique_usable(comm, "ncclCommShrink"));
    return sg_group_shrink(comm, away, flags == NCCL_SHRINK_ABORT, out, blocking);
}

ncclResult_t sg_ncclCommShrink(ncclComm_t comm, int *excluded, int n_excluded, ncclComm_t *out,
                               ncclConfig_t *config, int flags)
{
    return sg_group_failed(shrink(comm, excluded, n_excluded, out, config, flags));
}

ncclResult_t sg_ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    return sg_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: %s", RG_NCCL_WHY_ncclGroupSimulateEnd);
}

ncclResult_t sg_ncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    if (comm->ended)
        return sg_nccl_fail(ncclInvalidArgument, "ncclCommFinalize: the communicator has been finalised");
    RG_TRY(sg_clique_usable(comm, "ncclCommFinalize"));
    comm->ended = true;
    return comm->blocking ? sg_clique_wait_idle(comm) : sg_clique_state(comm);
}

ncclResult_t sg_ncclCommDestroy(ncclComm_t comm)
{
    return comm && !sg_capture_keeps(comm) ? sg_clique_leave(comm, false) : ncclSuccess;
}

ncclResult_t sg_ncclCommAbort(ncclComm_t comm)
{
    if (comm && sg_capture_keeps(comm))
        sg_clique_abort(comm);
    else if (comm)
        return sg_clique_leave(comm, true);
    return ncclSuccess;
}

ncclResult_t sg_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm || !error)
        return ncclInvalidArgument;
    *error = sg_clique_state(comm);
    return ncclSuccess;
}

static ncclResult_t tell(const char *function, ncclComm_t comm, int *to, int value)
{
    if (!comm || !to)
        return ncclInvalidArgument;
    RG_TRY(sg_clique_usable(comm, function));
    *to = value;
    return ncclSuccess;
}

ncclResult_t sg_ncclCommCount(const ncclComm_t comm, int *count)
{
    return tell("ncclCommCount", comm, count, comm ? comm->clique->n : 0);
}

ncclResult_t sg_ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return tell("ncclCommCuDevice", comm, device, comm ? comm->device : 0);
}

ncclResult_t sg_ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return tell("ncclCommUserRank", comm, rank, comm ? comm->rank : 0);
}

/* --- memory: any will do here ---------------------------------------------------------------------------- */

ncclResult_t sg_ncclMemAlloc(void **memory, size_t size)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    CUdeviceptr address = 0;
    if (!memory)
        return sg_nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc: there is no place for the address");
    if (!driver || (size && driver->p_cuMemAlloc(&address, size) != CUDA_SUCCESS))
        return sg_nccl_fail(ncclUnhandledCudaError,
                            "ncclMemAlloc: the device has no %zu bytes, or none is current", size);
    *memory = (void *)(uintptr_t)address;
    return ncclSuccess;
}

ncclResult_t sg_ncclMemFree(void *memory)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    return driver && driver->p_cuMemFree((CUdeviceptr)(uintptr_t)memory) == CUDA_SUCCESS
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

ncclResult_t sg_ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    return rg_nccl_register_nothing(comm, buffer, size, handle);
}

ncclResult_t sg_ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    return rg_nccl_deregister_nothing(comm);
}

ncclResult_t sg_ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                       int flags)
{
    (void)flags;
    if (comm)
        RG_TRY(sg_clique_usable(comm, "ncclCommWindowRegister"));
    return rg_nccl_register_nothing(comm, buffer, size, (void **)window);
}

ncclResult_t sg_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)window;
    return rg_nccl_deregister_nothing(comm);
}

/* --- operators ------------------------------------------------------------------------------------------ */

static struct sg_operator *free_operator(ncclComm_t comm)
{
    for (int i = 0; i < comm->n_operators; i++)
        if (!comm->operators[i].used)
            return &comm->operators[i];
    if (comm->n_operators == SG_NCCL_OPERATORS_MAX)
        return NULL;
    const int more = comm->n_operators ? comm->n_operators * 2 : 8;
    struct sg_operator *operators = realloc(comm->operators, (size_t)more * sizeof *operators);
    if (!operators)
        return NULL;
    memset(operators + comm->n_operators, 0, (size_t)(more - comm->n_operators) * sizeof *operators);
    struct sg_operator *first = &operators[comm->n_operators];
    comm->operators = operators;
    comm->n_operators = more;
    return first;
}

ncclResult_t sg_ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                         ncclScalarResidence_t residence, ncclComm_t comm)
{
    const size_t size = rg_nccl_type_size(type);
    if (!op || !scalar || !comm || !size ||
        (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
        return sg_nccl_fail(ncclInvalidArgument,
                            "ncclRedOpCreatePreMulSum: a value is missing or not one of NCCL's");
    RG_TRY(sg_clique_usable(comm, "ncclRedOpCreatePreMulSum"));
    pthread_mutex_lock(&comm->clique->lock);
    struct sg_operator *operator= free_operator(comm);
    if (operator) {
        *operator=(struct sg_operator){.used = true, .type = type, .residence = residence};
        if (residence == ncclScalarDevice)
            operator->device =(CUdeviceptr)(uintptr_t) scalar;
        else
            memcpy(operator->scalar, scalar, size);
        *op = (ncclRedOp_t)(ncclNumOps + (operator- comm->operators));
    }
    pthread_mutex_unlock(&comm->clique->lock);
    return operator
               ? ncclSuccess
               : sg_nccl_fail(ncclSystemError, "ncclRedOpCreatePreMulSum: there are %d already, or no memory",
                              SG_NCCL_OPERATORS_MAX);
}

ncclResult_t sg_ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    const int index = (int)op - ncclNumOps;
    if (!comm || index < 0)
        return sg_nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: operator %d was made by nobody", (int)op);
    pthread_mutex_lock(&comm->clique->lock);
    const bool known = index < comm->n_operators && comm->operators[index].used;
    if (known)
        comm->operators[index].used = false;
    pthread_mutex_unlock(&comm->clique->lock);
    return known ? ncclSuccess
                 : sg_nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: the communicator has no operator %d",
                                (int)op);
}
