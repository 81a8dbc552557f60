/*
 * managed.c - memory that the client's host addresses as well: managed memory, and host memory of the client
 * that is mapped into the device.
 *
 * Managed memory is device memory of the driver here. Host memory is memory of this process at the client's
 * own address, page-locked and mapped into the device, so that a kernel finds it where the client's program
 * has it.
 *
 * Contents travel outside the sequence of records, by answers that the reader handles at once (proto/wire.h,
 * RG_ANSWER_MANAGED_IN and _OUT): the client's host can then read and write such memory while kernels run,
 * and while the dispatcher waits for one. The data goes through a stream and a buffer that each context has
 * for it. A request says up to which record it comes after; the reply says whether the device may still have
 * been at work.
 */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "generated/server/execute.h"
#include "server/core/worker.h"
#include "server/handshake/address_space.h"
#include "server/managed/postponed.h"
#include "server/modules.h"
#include "server/shares/worker/count.h"
#include "server/timeline/completion.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE         4096u
#define STAGING_SIZE RG_BULK_MAX
#define STEADY_TRIES 8

struct managed_context {
    struct managed_context *next;
    uint64_t handle;
    CUcontext object;
    CUstream stream; /* for contents alone */
    unsigned char *staging;
};

/* Host memory at an address of the client's. */
struct rg_host_mapping {
    struct rg_host_mapping *next;
    uint64_t context;
    uint64_t start, size;
};

struct managed_state {
    pthread_mutex_t lock;
    struct managed_context *contexts;
    struct rg_host_mapping *hosts;
    struct {
        uint64_t context;
        CUstream stream;
    } * streams; /* of all contexts, to ask whether they work */
    size_t n_streams, capacity;
    struct rg_postponed postponed; /* with a lock of its own */
};

/* Bulk data: on the connection, or what was received from it. */
struct contents {
    struct rg_conn *conn; /* NULL: it is at `at` */
    const unsigned char *at;
    size_t left;
};

/* --- what there is -------------------------------------------------------------------------------------- */

static void add_stream(struct rg_worker *worker, const struct rg_worker_stream *stream)
{
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
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
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    RG_SCOPED_LOCK(&managed->lock);
    for (size_t i = 0; i < managed->n_streams; i++)
        if (managed->streams[i].stream == stream->object) {
            managed->streams[i] = managed->streams[--managed->n_streams];
            break;
        }
}

static struct managed_context *find_context(struct managed_state *managed, uint64_t handle)
{
    struct managed_context *context = managed->contexts;
    while (context && context->handle != handle)
        context = context->next;
    return context;
}

static bool holds(const struct rg_host_mapping *host, uint64_t address, uint64_t size)
{
    return address - host->start < host->size && size <= host->size - (address - host->start);
}

/* The address of [address, address + size) if that is host memory which the client shares; else NULL. */
static unsigned char *host_memory(const struct managed_state *managed, uint64_t address, uint64_t size)
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
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
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
    for (struct managed_context **at = &managed->contexts; *at; at = &(*at)->next)
        if ((*at)->handle == handle) {
            struct managed_context *context = *at;
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
    struct managed_state *managed = request->worker->state[RG_MODULE_MANAGED];
    struct rg_worker_context *state = rg_request_context(request);
    if (!state)
        return request->result;
    pthread_mutex_lock(&managed->lock);
    const bool known = find_context(managed, state->handle) != NULL;
    pthread_mutex_unlock(&managed->lock);
    if (known)
        return CUDA_SUCCESS;
    struct managed_context *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *staging = NULL;
    CUresult result = rg_driver.cuMemHostAlloc(&staging, 2ull * STAGING_SIZE, CU_MEMHOSTALLOC_PORTABLE);
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
    struct managed_state *managed = request->worker->state[RG_MODULE_MANAGED];
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
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    bool found = false;
    RG_SCOPED_LOCK(&managed->lock);
    for (const struct rg_host_mapping *host = managed->hosts; host && !found; host = host->next)
        if (address >= host->start && address - host->start < host->size) {
            *end = host->start + host->size;
            found = true;
        }
    return found;
}

CUresult rg_execute_rgHostUnmap(struct rg_request *request, unsigned long long address)
{
    struct managed_state *managed = request->worker->state[RG_MODULE_MANAGED];
    struct rg_host_mapping *found = NULL;
    RG_SCOPED_LOCK(&managed->lock);
    for (struct rg_host_mapping **at = &managed->hosts; *at; at = &(*at)->next)
        if ((*at)->start == address) {
            found = *at;
            *at = found->next;
            break;
        }
    if (found)
        unmap_host(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- contents ------------------------------------------------------------------------------------------- */

/* Whether the device may still work on records up to `seq`. The lock is held. */
static bool device_busy(struct rg_worker *worker, uint64_t seq)
{
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    if (atomic_load(&worker->submitted) < seq)
        return true;
    for (const struct managed_context *context = managed->contexts; context; context = context->next)
        if (rg_driver.cuCtxSetCurrent(context->object) == CUDA_SUCCESS &&
            rg_driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY)
            return true;
    for (size_t i = 0; i < managed->n_streams; i++)
        if (rg_driver.cuStreamQuery(managed->streams[i].stream) == CUDA_ERROR_NOT_READY)
            return true;
    return false;
}

/* Words that a kernel may be looking at are written as a whole. */
static void store(unsigned char *to, const unsigned char *from, size_t size)
{
    for (; size > 8 && (uintptr_t)to % 8 == 0; to += 8, from += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
    }
    const uintptr_t at = (uintptr_t)to;
    uint64_t word = 0;
    memcpy(&word, from, size < 8 ? size : 8);
    if (size == 8 && at % 8 == 0)
        __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
    else if (size == 4 && at % 4 == 0)
        __atomic_store_n((uint32_t *)(void *)to, (uint32_t)word, __ATOMIC_RELEASE);
    else if (size == 2 && at % 2 == 0)
        __atomic_store_n((uint16_t *)(void *)to, (uint16_t)word, __ATOMIC_RELEASE);
    else
        memcpy(to, from, size);
}

/* `to` NULL: they are dropped. False: there are not so many, or the connection failed. */
static bool take_bytes(struct contents *from, void *to, size_t size)
{
    if (size > from->left)
        return false;
    from->left -= size;
    if (from->conn)
        return rg_conn_recv_bulk(from->conn, to, size) == RG_OK;
    if (to)
        memcpy(to, from->at, size);
    from->at += size;
    return true;
}

/* One run of bytes, through the context's buffer. The lock is held. */
static CUresult write_device(struct contents *from, const struct managed_context *context, uint64_t address,
                             size_t size, bool *broken)
{
    CUresult result = CUDA_SUCCESS;
    while (size) {
        const size_t part = size < STAGING_SIZE ? size : STAGING_SIZE;
        if (!take_bytes(from, context->staging, part)) {
            *broken = true;
            return CUDA_ERROR_UNKNOWN;
        }
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuMemcpyHtoDAsync_v2(address, context->staging, part, context->stream);
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuStreamSynchronize(context->stream);
        rg_count_in(part);
        address += part;
        size -= part;
    }
    return result;
}

static CUresult write_host(struct contents *from, unsigned char *to, size_t size, bool *broken)
{
    unsigned char page[PAGE];
    void *where = size <= sizeof page ? page : to;
    *broken = !take_bytes(from, where, size);
    if (!*broken)
        rg_count_in(size);
    if (!*broken && where == page)
        store(to, page, size);
    return CUDA_SUCCESS;
}

/* Runs of bytes, each behind its address and size. False: bad bytes, or the connection failed. */
static bool share_in(struct rg_worker *worker, uint64_t handle, struct contents *from)
{
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    CUresult worst = CUDA_SUCCESS;
    bool broken = false;
    pthread_mutex_lock(&managed->lock);
    struct managed_context *context = find_context(managed, handle);
    if (context && rg_driver.cuCtxSetCurrent(context->object) != CUDA_SUCCESS)
        context = NULL;
    while (from->left && !broken) {
        uint64_t run[2];
        broken = !take_bytes(from, run, sizeof run) || run[1] > from->left;
        if (broken)
            break;
        unsigned char *host = host_memory(managed, run[0], run[1]);
        CUresult result = CUDA_ERROR_INVALID_VALUE;
        if (host)
            result = write_host(from, host, run[1], &broken);
        else if (context)
            result = write_device(from, context, run[0], run[1], &broken);
        else /* its context has ended meanwhile */
            broken = !take_bytes(from, NULL, run[1]);
        if (result != CUDA_SUCCESS && context)
            worst = result;
    }
    const bool good = !broken;
    pthread_mutex_unlock(&managed->lock);
    rg_context_unknown();
    if (worst != CUDA_SUCCESS && good) {
        struct rg_notice notice = {.type = RG_NOTICE_ERROR, .arg = {(uint64_t)worst, RG_OP_rgUnifiedOpen}};
        (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
    }
    return good;
}

/* Reads shared memory into the context's buffer. The lock is held, the context is current. */
static CUresult read_memory(struct rg_worker *worker, const struct managed_context *context, uint64_t address,
                            size_t size, unsigned char *to)
{
    const unsigned char *host = host_memory(worker->state[RG_MODULE_MANAGED], address, size);
    if (host) {
        memcpy(to, host, size);
        return CUDA_SUCCESS;
    }
    CUresult result = rg_driver.cuMemcpyDtoHAsync_v2(to, address, size, context->stream);
    return result == CUDA_SUCCESS ? rg_driver.cuStreamSynchronize(context->stream) : result;
}

/* Reads until two readings agree: then no kernel has changed one part of it after another was read. */
static CUresult read_steady(struct rg_worker *worker, struct managed_context *context, uint64_t address,
                            size_t size, bool *steady)
{
    unsigned char *halves[2] = {context->staging, context->staging + STAGING_SIZE};
    CUresult result = read_memory(worker, context, address, size, halves[1]);
    *steady = false;
    for (int i = 0; i < STEADY_TRIES && !*steady && result == CUDA_SUCCESS; i++) {
        result = read_memory(worker, context, address, size, halves[i % 2]);
        *steady = result == CUDA_SUCCESS && memcmp(halves[0], halves[1], size) == 0;
    }
    return result;
}

static void share_out(struct rg_worker *worker, const struct rg_answer *answer, uint64_t seq)
{
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    const uint64_t address = answer->arg[0], size = answer->arg[1];
    struct rg_notice notice = {.type = RG_NOTICE_MANAGED, .id = answer->id};
    const void *data = NULL;
    pthread_mutex_lock(&managed->lock);
    struct managed_context *context = find_context(managed, answer->arg[2]);
    CUresult result = context ? rg_driver.cuCtxSetCurrent(context->object) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (device_busy(worker, seq))
        notice.arg[2] = 1;
    if (!(notice.arg[2] && (answer->reserved & RG_MANAGED_IF_IDLE))) {
        bool steady = true;
        data = host_memory(managed, address, size);
        if (context)
            (void)rg_driver.cuCtxSetCurrent(context->object);
        if (context && (answer->reserved & RG_MANAGED_STEADY))
            result = read_steady(worker, context, address, size, &steady);
        else if (data)
            result = CUDA_SUCCESS;
        else if (result == CUDA_SUCCESS)
            result = read_memory(worker, context, address, size, context->staging);
        if (context && (!data || (answer->reserved & RG_MANAGED_STEADY)))
            data = context->staging;
        if (!steady)
            notice.arg[2] |= 2;
    }
    notice.arg[0] = (uint64_t)result;
    notice.arg[1] = result == CUDA_SUCCESS && data ? size : 0;
    rg_completion_before_notice(worker);
    rg_count_out(notice.arg[1]);
    (void)rg_worker_notice(worker, &notice, NULL, 0, data, notice.arg[1]);
    pthread_mutex_unlock(&managed->lock);
    rg_context_unknown();
}

/* Inside the device gate, or the thread that opens it. */
static bool take_answer(struct rg_worker *worker, const struct rg_answer *answer, uint64_t seq,
                        struct contents *contents)
{
    if (answer->type == RG_ANSWER_MANAGED_IN)
        return share_in(worker, answer->id, contents);
    share_out(worker, answer, seq);
    return true;
}

static bool is_good(const struct rg_answer *answer, size_t bulk_size)
{
    if (answer->type == RG_ANSWER_MANAGED_IN)
        return answer->reserved == 0;
    return !bulk_size && answer->arg[1] && answer->arg[1] <= STAGING_SIZE &&
           !(answer->reserved & ~(uint32_t)(RG_MANAGED_IF_IDLE | RG_MANAGED_STEADY));
}

/* Waits for nobody: see postponed.h. False: it is wrong, or the session is over. */
static bool answer_now_or_later(struct rg_worker *worker, const struct rg_answer *answer, uint64_t seq,
                                size_t bulk_size)
{
    struct rg_postponed *postponed = &((struct managed_state *)worker->state[RG_MODULE_MANAGED])->postponed;
    struct contents contents = {.conn = worker->conn, .left = bulk_size};
    struct rg_postponed_answer *received = NULL;
    if (!rg_postponed_enter(postponed, worker)) {
        if (!rg_postponed_put(postponed, worker, answer, seq, bulk_size, &received))
            return false;
        if (!received)
            return true;
        contents = (struct contents){.at = received->data, .left = bulk_size};
    }
    const bool good = take_answer(worker, answer, seq, &contents);
    rg_device_leave(&worker->device);
    free(received);
    return good;
}

static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *request, size_t bulk_size)
{
    if (request->type != RG_ANSWER_MANAGED_IN && request->type != RG_ANSWER_MANAGED_OUT)
        return RG_ANSWERED_NOT_MINE;
    if (!atomic_load(&worker->answers_unasked) && request->type == RG_ANSWER_MANAGED_IN)
        return bulk_size == 0 || rg_conn_recv_bulk(worker->conn, NULL, bulk_size) == RG_OK
                   ? RG_ANSWERED_GOOD
                   : RG_ANSWERED_WRONG;
    return is_good(request, bulk_size) && answer_now_or_later(worker, request, header->seq, bulk_size)
               ? RG_ANSWERED_GOOD
               : RG_ANSWERED_WRONG;
}

static void reopened(struct rg_worker *worker)
{
    struct rg_postponed *postponed = &((struct managed_state *)worker->state[RG_MODULE_MANAGED])->postponed;
    struct rg_postponed_answer *next;
    while ((next = rg_postponed_take(postponed, worker)) != NULL) {
        struct contents contents = {.at = next->data, .left = next->size};
        if (!rg_worker_over(worker) && !take_answer(worker, &next->answer, next->seq, &contents))
            rg_worker_end(worker, 1, "protocol violation: contents of shared memory that are none");
        free(next);
    }
}

static void init(struct rg_worker *worker)
{
    rg_postponed_init(&((struct managed_state *)worker->state[RG_MODULE_MANAGED])->postponed);
}

static void wake(struct rg_worker *worker)
{
    rg_postponed_wake(&((struct managed_state *)worker->state[RG_MODULE_MANAGED])->postponed);
}

static void fini(struct rg_worker *worker)
{
    struct managed_state *managed = worker->state[RG_MODULE_MANAGED];
    free(managed->streams);
    rg_postponed_fini(&managed->postponed);
}

const struct rg_server_module rg_managed_module = {
    .size = sizeof(struct managed_state),
    .locked = true,
    .init = init,
    .wake = wake,
    .fini = fini,
    .add_stream = add_stream,
    .drop_stream = drop_stream,
    .drop_context = drop_context,
    .answer = answer,
    .reopened = reopened,
    .shares = shares,
};
