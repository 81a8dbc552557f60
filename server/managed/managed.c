/* managed.c - what memory there is, and the module's beginning and end. See managed.h. */
#include "server/managed/managed.h"

#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "generated/server/execute.h"
#include "server/core/worker.h"
#include "server/handshake/address_space.h"
#include "server/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

static void add_stream(struct rg_worker *worker, const struct rg_worker_stream *stream)
{
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    pthread_mutex_lock(&managed->lock);
    if (managed->n_streams == managed->capacity) {
        const size_t more = managed->capacity ? managed->capacity * 2 : 64;
        void *bigger = realloc(managed->streams, more * sizeof *managed->streams);
        if (!bigger) {
            pthread_mutex_unlock(&managed->lock);
            rg_worker_end(worker, 1, "the worker is out of memory");
            return;
        }
        managed->streams = bigger;
        managed->capacity = more;
    }
    managed->streams[managed->n_streams].context = stream->context;
    managed->streams[managed->n_streams++].stream = stream->object;
    pthread_mutex_unlock(&managed->lock);
}

static void drop_stream(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    RG_SCOPED_LOCK(&managed->lock);
    for (size_t i = 0; i < managed->n_streams; i++)
        if (managed->streams[i].stream == stream->object) {
            managed->streams[i] = managed->streams[--managed->n_streams];
            break;
        }
}

struct rg_managed_context *rg_managed_find_context(struct rg_managed *managed, uint64_t handle)
{
    struct rg_managed_context *context = managed->contexts;
    while (context && context->handle != handle)
        context = context->next;
    return context;
}

static bool holds(const struct rg_host_mapping *host, uint64_t address, uint64_t size)
{
    return address - host->start < host->size && size <= host->size - (address - host->start);
}

unsigned char *rg_managed_host_memory(const struct rg_managed *managed, uint64_t address, uint64_t size)
{
    for (const struct rg_host_mapping *host = managed->hosts; host; host = host->next)
        if (holds(host, address, size))
            return (unsigned char *)(uintptr_t)address;
    return NULL;
}

static void unmap_host(struct rg_host_mapping *host)
{
    (void)rg_driver.cuMemHostUnregister((void *)(uintptr_t)host->start);
    rg_address_space_unmap(host->start, host->size);
    free(host);
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *state)
{
    const uint64_t handle = state->handle;
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    RG_SCOPED_LOCK(&managed->lock);
    for (size_t i = 0; i < managed->n_streams;)
        if (managed->streams[i].context == handle)
            managed->streams[i] = managed->streams[--managed->n_streams];
        else
            i++;
    for (struct rg_host_mapping **at = &managed->hosts; *at;) {
        struct rg_host_mapping *host = *at;
        if (host->context != handle) {
            at = &host->next;
            continue;
        }
        *at = host->next;
        unmap_host(host);
    }
    for (struct rg_managed_context **at = &managed->contexts; *at; at = &(*at)->next)
        if ((*at)->handle == handle) {
            struct rg_managed_context *context = *at;
            *at = context->next;
            (void)rg_driver.cuStreamDestroy_v2(context->stream);
            (void)rg_driver.cuMemFreeHost(context->staging);
            free(context);
            break;
        }
    atomic_store(&worker->answers_unasked, managed->contexts != NULL);
}

CUresult rg_execute_rgUnifiedOpen(struct rg_request *request)
{
    struct rg_managed *managed = request->worker->state[RG_MODULE_MANAGED];
    struct rg_worker_context *state = rg_request_context(request);
    if (!state)
        return request->result;
    pthread_mutex_lock(&managed->lock);
    const bool known = rg_managed_find_context(managed, state->handle) != NULL;
    pthread_mutex_unlock(&managed->lock);
    if (known)
        return CUDA_SUCCESS;
    struct rg_managed_context *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *staging = NULL;
    CUresult result = rg_driver.cuMemHostAlloc(&staging, 2ull * RG_MANAGED_STAGING, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS && !staging)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = rg_driver.cuStreamCreate(&context->stream, CU_STREAM_NON_BLOCKING);
        if (result != CUDA_SUCCESS)
            (void)rg_driver.cuMemFreeHost(staging);
    }
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    context->handle = state->handle;
    context->object = state->object;
    context->staging = staging;
    pthread_mutex_lock(&managed->lock);
    context->next = managed->contexts;
    managed->contexts = context;
    atomic_store(&request->worker->answers_unasked, true);
    pthread_mutex_unlock(&managed->lock);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgHostMap(struct rg_request *request, unsigned long long address, size_t size)
{
    struct rg_managed *managed = request->worker->state[RG_MODULE_MANAGED];
    if (!address || !size || address % PAGE || size % PAGE || address + size < address) {
        rg_request_violation(request, "%zu bytes of host memory at %#llx", size, address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct rg_host_mapping *host = calloc(1, sizeof *host);
    if (!host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = rg_address_space_map(address, size);
    if (!memory) {
        rg_warn("session %llu: host memory of the client cannot be mapped at its address %#llx (%s)",
                (unsigned long long)request->worker->session, address, strerror(errno));
        free(host);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUdeviceptr device = 0;
    CUresult result = rg_driver.cuMemHostRegister_v2(
        memory, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS) {
        result = rg_driver.cuMemHostGetDevicePointer_v2(&device, memory, 0);
        if (result == CUDA_SUCCESS && device != address)
            result = CUDA_ERROR_NOT_SUPPORTED; /* the device would see it elsewhere than the program says */
        if (result != CUDA_SUCCESS)
            (void)rg_driver.cuMemHostUnregister(memory);
    }
    if (result != CUDA_SUCCESS) {
        rg_address_space_unmap(address, size);
        free(host);
        return result;
    }
    *host = (struct rg_host_mapping){.context = request->thread->context, .start = address, .size = size};
    RG_SCOPED_LOCK(&managed->lock);
    host->next = managed->hosts;
    managed->hosts = host;
    return CUDA_SUCCESS;
}

static bool shares(struct rg_worker *worker, uint64_t address, uint64_t *end)
{
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    bool found = false;
    RG_SCOPED_LOCK(&managed->lock);
    for (const struct rg_host_mapping *host = managed->hosts; host && !found; host = host->next)
        if (address >= host->start && address - host->start < host->size) {
            *end = host->start + host->size;
            found = true;
        }
    return found;
}

/* Takes a mapping out of the list: from then on nobody moves contents of it. */
static struct rg_host_mapping *take_mapping(struct rg_managed *managed, uint64_t address)
{
    RG_SCOPED_LOCK(&managed->lock);
    struct rg_host_mapping **at = &managed->hosts;
    while (*at && (*at)->start != address)
        at = &(*at)->next;
    struct rg_host_mapping *found = *at;
    if (found)
        *at = found->next;
    return found;
}

/*
 * Drivers may wait for the device before memory is no longer page-locked, and the device for contents of other such memory: so that
 * is done without the lock.
 */
CUresult rg_execute_rgHostUnmap(struct rg_request *request, unsigned long long address)
{
    struct rg_host_mapping *found = take_mapping(request->worker->state[RG_MODULE_MANAGED], address);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    unmap_host(found);
    return CUDA_SUCCESS;
}

static void init(struct rg_worker *worker)
{
    rg_postponed_init(&((struct rg_managed *)worker->state[RG_MODULE_MANAGED])->postponed);
}

static void wake(struct rg_worker *worker)
{
    rg_postponed_wake(&((struct rg_managed *)worker->state[RG_MODULE_MANAGED])->postponed);
}

static void fini(struct rg_worker *worker)
{
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    for (struct rg_host_mapping *host = managed->hosts, *next; host; host = next) {
        next = host->next;
        unmap_host(host); /* of a thread that had no context */
    }
    free(managed->streams);
    rg_postponed_fini(&managed->postponed);
}

const struct rg_server_module rg_managed_module = {
    .size = sizeof(struct rg_managed),
    .locked = true,
    .init = init,
    .wake = wake,
    .fini = fini,
    .add_stream = add_stream,
    .drop_stream = drop_stream,
    .drop_context = drop_context,
    .answer = rg_managed_answer,
    .reopened = rg_managed_reopened,
    .shares = shares,
};
