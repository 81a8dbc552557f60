/*
 * gpudirect.c - the way of each GPU, allocations that are registered, and copies into them (gpudirect.h).
 *
 * A copy pins the allocation that it is about; the first one registers it. It stays registered until it is freed, its context ends, or
 * other memory is found in its place (find_area). To the device a copy goes directly only where its stream has nothing left to do that
 * must come before; else the caller takes staging. Who ends an allocation waits for its pins, but for those of a context that has
 * failed: such allocations linger, unregistered, until the worker ends.
 */
#include "server/transfer/gpudirect.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/modules.h"
#include "server/transfer/gpudirect_choice.h"
#include "transport/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEVICES = 64,
    DIRECT_MIN = 64 << 10, /* bytes of a copy that are worth it */
};

struct rg_gpudirect_area {
    struct rg_gpudirect_area *next;
    uintptr_t base; /* of the allocation */
    size_t size;
    uint64_t id;      /* the driver's number of it, never used again; 0: it has none */
    void *registered; /* where the registration begins; NULL: it failed and is not tried again */
    struct rg_worker_context *context;
    unsigned pins;
};

struct gpudirect {
    pthread_mutex_t lock;     /* of `pins` and the list of those that are pinned beyond their end */
    bool tells;               /* the client wants to know: RG_NOTICE_GPU_PATH */
    _Atomic uint64_t in, out; /* bytes */
    pthread_cond_t let_go;
    struct rg_gpudirect_area *areas, *lingering;
    CUevent idle; /* of `idle_in` */
    struct rg_worker_context *idle_in;
    struct device {
        enum rg_gpu_path path;
        bool proven; /* memory was registered so */
        bool flush;  /* what the network device wrote must be made visible */
    } devices[DEVICES];
};

static struct gpudirect *gpudirect_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_GPUDIRECT];
}

/* --- the path -------------------------------------------------------------------------------------------- */

/* Chooses, and tells the client, if it wants to know. */
static void settle(struct rg_worker *worker, struct device *device, CUdevice number, int above)
{
    device->path = rg_gpudirect_choose(worker, number, above);
    const struct rg_notice notice = {.type = RG_NOTICE_GPU_PATH,
                                     .arg = {(uint64_t)number, (uint64_t)device->path, 0}};
    if (gpudirect_of(worker)->tells &&
        rg_conn_device_paths(worker->conn))                         /* else staging goes without saying */
        (void)!rg_worker_notice(worker, &notice, NULL, 0, NULL, 0); /* if that fails, the session ends */
}

/* The device of the current context; NULL: there is none. */
static struct device *current_device(struct rg_worker *worker, CUdevice *number)
{
    struct gpudirect *direct = gpudirect_of(worker);
    if (rg_driver.cuCtxGetDevice(number) != CUDA_SUCCESS || *number < 0 || *number >= DEVICES)
        return NULL;
    struct device *device = &direct->devices[*number];
    if (device->path == RG_GPU_PATH_UNKNOWN) {
        settle(worker, device, *number, RG_GPU_PATH_DMABUF + 1);
        device->flush = rg_gpudirect_flushes(*number);
    }
    return device;
}

enum rg_gpu_path rg_gpudirect_path(struct rg_worker *worker)
{
    CUdevice number;
    const struct device *device = current_device(worker, &number);
    return device ? device->path : RG_GPU_PATH_STAGING;
}

/* --- registering ---------------------------------------------------------------------------------------- */

/* Whether nobody frees or moves this memory but a call that names it. */
static bool is_plain(CUdeviceptr base)
{
    unsigned type = 0, managed = 1;
    CUmemoryPool pool = NULL;
    CUmemGenericAllocationHandle allocation;
    if (rg_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        rg_driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, base) != CUDA_SUCCESS ||
        managed)
        return false;
    if (rg_driver.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, base) == CUDA_SUCCESS &&
        pool)
        return false;
    if (rg_driver.cuMemRetainAllocationHandle(&allocation, (void *)(uintptr_t)base) == CUDA_SUCCESS) {
        (void)rg_driver.cuMemRelease(allocation);
        return false;
    }
    return true;
}

/* Registers by a dma-buf, which covers whole pages of the host's. Returns where the registration begins. */
static void *register_dmabuf(struct rg_worker *worker, uintptr_t base, size_t size, const char **what)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = base & ~(page - 1);
    const size_t whole = (base + size - first + page - 1) & ~(size_t)(page - 1);
    int fd = -1;
    const CUresult exported = rg_driver.cuMemGetHandleForAddressRange(&fd, (CUdeviceptr)first, whole,
                                                                      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (exported != CUDA_SUCCESS) {
        *what = "the GPU's driver exports no dma-buf of it";
        errno = exported == CUDA_ERROR_NOT_SUPPORTED ? EOPNOTSUPP : EINVAL;
        return NULL;
    }
    const enum rg_status status = rg_conn_register_device(worker->conn, (void *)first, whole, fd, 0);
    const int error = errno;
    close(fd); /* the registration holds the memory by itself */
    *what = "the network device does not take its dma-buf";
    errno = error;
    return status == RG_OK ? (void *)first : NULL;
}

static void *register_peer(struct rg_worker *worker, uintptr_t base, size_t size, const char **what)
{
    *what = "the network device does not take its address";
    return rg_conn_register_device(worker->conn, (void *)base, size, -1, 0) == RG_OK ? (void *)base : NULL;
}

/* Registers an allocation by the device's way; where that has never worked, by the next one. */
static void *try_register(struct rg_worker *worker, struct device *device, CUdevice number, uintptr_t base,
                          size_t size)
{
    while (device->path > RG_GPU_PATH_STAGING) {
        const char *what = "";
        errno = 0;
        void *registered = device->path == RG_GPU_PATH_DMABUF ? register_dmabuf(worker, base, size, &what)
                                                              : register_peer(worker, base, size, &what);
        if (registered) {
            device->proven = true;
            return registered;
        }
        rg_warn("session %llu: GPU %d: %zu bytes of its memory cannot be registered (%s: %s, %s)",
                (unsigned long long)worker->session, (int)number, size, rg_gpu_path_name(device->path), what,
                strerror(errno));
        if (device->proven)
            return NULL; /* this one allocation goes through staging */
        settle(worker, device, number, (int)device->path);
    }
    return NULL;
}

static uint64_t id_of(CUdeviceptr address)
{
    unsigned long long id = 0;
    return rg_driver.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) == CUDA_SUCCESS ? id
                                                                                                         : 0;
}

static void end_area(struct rg_worker *worker, struct rg_gpudirect_area *area, bool waits);

/*
 * The area that holds an address. What lies there may have gone without a call that names it, as variables go
 * with their module, and other memory come in its place.
 */
static struct rg_gpudirect_area *find_area(struct rg_worker *worker, CUdeviceptr address)
{
    struct rg_gpudirect_area **link = &gpudirect_of(worker)->areas;
    while (*link && (address < (*link)->base || address - (*link)->base >= (*link)->size))
        link = &(*link)->next;
    struct rg_gpudirect_area *area = *link;
    if (!area || area->id == id_of(address))
        return area;
    *link = area->next;
    end_area(worker, area, false);
    return NULL;
}

struct rg_gpudirect_area *rg_gpudirect_pin(struct rg_worker *worker, struct rg_worker_context *context,
                                           CUdeviceptr address, size_t size)
{
    CUdevice number;
    struct device *device = size >= DIRECT_MIN ? current_device(worker, &number) : NULL;
    if (!device || device->path == RG_GPU_PATH_STAGING)
        return NULL;
    struct gpudirect *direct = gpudirect_of(worker);
    struct rg_gpudirect_area *area = find_area(worker, address);
    if (!area) {
        CUdeviceptr base = 0;
        size_t whole = 0;
        if (rg_driver.cuMemGetAddressRange_v2(&base, &whole, address) != CUDA_SUCCESS || !is_plain(base))
            return NULL;
        area = calloc(1, sizeof *area);
        if (!area)
            return NULL;
        *area = (struct rg_gpudirect_area){
            .base = (uintptr_t)base, .size = whole, .id = id_of(base), .context = context};
        area->registered = try_register(worker, device, number, area->base, whole);
        area->next = direct->areas;
        direct->areas = area;
    }
    const size_t offset = (uintptr_t)address - area->base;
    if (!area->registered || area->context != context || size > area->size - offset)
        return NULL;
    RG_SCOPED_LOCK(&direct->lock);
    area->pins++;
    return area;
}

void rg_gpudirect_unpin(struct rg_worker *worker, struct rg_gpudirect_area *area)
{
    if (!area)
        return;
    struct gpudirect *direct = gpudirect_of(worker);
    RG_SCOPED_LOCK(&direct->lock);
    if (--area->pins == 0)
        pthread_cond_broadcast(&direct->let_go);
}

void rg_gpudirect_sent(struct rg_worker *worker, size_t size)
{
    atomic_fetch_add_explicit(&gpudirect_of(worker)->out, size, memory_order_relaxed);
}

void rg_gpudirect_statistics(struct rg_worker *worker, uint64_t *in, uint64_t *out)
{
    *in = atomic_load_explicit(&gpudirect_of(worker)->in, memory_order_relaxed);
    *out = atomic_load_explicit(&gpudirect_of(worker)->out, memory_order_relaxed);
}

/* --- to the device -------------------------------------------------------------------------------------- */

/* Whether nothing is left that work put into the stream now would come after. */
static bool is_idle(struct gpudirect *direct, struct rg_worker_context *context, CUstream stream)
{
    if (direct->idle_in != context) {
        if (direct->idle_in)
            (void)rg_driver.cuEventDestroy_v2(direct->idle);
        direct->idle_in =
            rg_driver.cuEventCreate(&direct->idle, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? context : NULL;
    }
    return direct->idle_in && rg_driver.cuEventRecord(direct->idle, stream) == CUDA_SUCCESS &&
           rg_driver.cuEventQuery(direct->idle) == CUDA_SUCCESS;
}

bool rg_gpudirect_copy_in(struct rg_request *request, struct rg_worker_context *context, CUdeviceptr device,
                          size_t size, CUstream stream, CUresult *result)
{
    struct rg_worker *worker = request->worker;
    struct rg_gpudirect_area *area = rg_gpudirect_pin(worker, context, device, size);
    if (!area)
        return false;
    const bool now = rg_request_places(request, (void *)(uintptr_t)device, size) &&
                     is_idle(gpudirect_of(worker), context, stream);
    if (now) {
        CUdevice number;
        const struct device *of = current_device(worker, &number);
        *result = rg_request_recv_bulk(request, (void *)(uintptr_t)device, size) == RG_OK
                      ? CUDA_SUCCESS
                      : CUDA_ERROR_UNKNOWN;
        atomic_fetch_add_explicit(&gpudirect_of(worker)->in, size, memory_order_relaxed);
        if (*result == CUDA_SUCCESS && of && of->flush)
            *result = rg_driver.cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                           CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    }
    rg_gpudirect_unpin(worker, area);
    return now;
}

/* --- the end of memory ---------------------------------------------------------------------------------- */

static void give_back(struct rg_worker *worker, struct rg_gpudirect_area *area)
{
    if (area->registered)
        rg_conn_unregister(worker->conn, area->registered);
    free(area);
}

/* Ends an area that nobody finds any more once nothing holds it; `waits`: until the session is over. */
static void end_area(struct rg_worker *worker, struct rg_gpudirect_area *area, bool waits)
{
    struct gpudirect *direct = gpudirect_of(worker);
    pthread_mutex_lock(&direct->lock);
    while (waits && area->pins > 0 && !rg_worker_over(worker)) {
        const struct timespec until = rg_timespec(rg_now_ns() + 1000000000u);
        pthread_cond_timedwait(&direct->let_go, &direct->lock, &until);
    }
    const bool lingering =
        area->pins > 0; /* by what will not end any more: the context has failed, or the session */
    if (lingering) {
        area->next = direct->lingering;
        direct->lingering = area;
    }
    pthread_mutex_unlock(&direct->lock);
    if (!lingering) {
        give_back(worker, area);
    } else if (area->registered) {
        rg_conn_unregister(worker->conn, area->registered);
        area->registered = NULL; /* it is freed at the end */
    }
}

struct rg_gpudirect_area *rg_gpudirect_take(struct rg_worker *worker, CUdeviceptr address)
{
    struct rg_gpudirect_area **link = &gpudirect_of(worker)->areas, *area;
    while (*link && (*link)->base != (uintptr_t)address)
        link = &(*link)->next;
    area = *link;
    if (area)
        *link = area->next;
    return area;
}

void rg_gpudirect_end(struct rg_request *request, struct rg_gpudirect_area *area)
{
    if (!area)
        return;
    rg_request_separate_reader(request); /* what is waited for may need the client's answers */
    end_area(request->worker, area, rg_driver.cuCtxSynchronize() == CUDA_SUCCESS);
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct gpudirect *direct = gpudirect_of(worker);
    for (struct rg_gpudirect_area **link = &direct->areas, *area; (area = *link);) {
        if (area->context != context) {
            link = &area->next;
            continue;
        }
        *link = area->next;
        end_area(worker, area, true);
    }
    if (direct->idle_in == context) {
        (void)rg_driver.cuEventDestroy_v2(direct->idle);
        direct->idle_in = NULL;
    }
}

static void fini(struct rg_worker *worker)
{
    struct gpudirect *direct = gpudirect_of(worker);
    for (struct rg_gpudirect_area *area; (area = direct->areas);) {
        direct->areas = area->next;
        give_back(worker, area);
    }
    for (struct rg_gpudirect_area *area; (area = direct->lingering);) {
        direct->lingering = area->next;
        give_back(worker, area);
    }
    pthread_cond_destroy(&direct->let_go);
}

static void init(struct rg_worker *worker)
{
    rg_cond_init(&gpudirect_of(worker)->let_go);
}

static const char *unsuspendable(struct rg_worker *worker)
{
    struct gpudirect *direct = gpudirect_of(worker);
    RG_SCOPED_LOCK(&direct->lock);
    const bool any = direct->areas || direct->lingering;
    return any ? "a network adapter reads and writes its GPU memory" : NULL;
}

const struct rg_server_module rg_gpudirect_module = {
    .size = sizeof(struct gpudirect),
    .locked = true,
    .init = init,
    .fini = fini,
    .drop_context = drop_context,
    .unsuspendable = unsuspendable,
};

void rg_gpudirect_tell(struct rg_worker *worker)
{
    gpudirect_of(worker)->tells = true;
}
