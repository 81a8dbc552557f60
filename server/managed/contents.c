/*
 * contents.c - contents of memory that host and device share, as the client writes and asks for them.
 *
 * Contents travel outside the sequence of records, by answers that the reader handles at once (proto/wire.h,
 * RG_ANSWER_MANAGED_IN and _OUT): the client's host can then read and write such memory while kernels run,
 * and while the dispatcher waits for one. The data goes through a stream and a buffer that each context has
 * for it. A request says up to which record it comes after; the reply says whether the device may still have
 * been at work.
 *
 * The reader, or where that would have had to wait for the device gate, the thread that opens it (postponed.h). Wrong bytes end the
 * session; a context that has ended meanwhile is told to who asks.
 */
#include "generated/server/driver.h"
#include "server/core/worker.h"
#include "server/managed/managed.h"
#include "server/modules.h"
#include "server/shares/worker/count.h"
#include "server/timeline/completion.h"

#include <stdlib.h>
#include <string.h>

#define PAGE         4096u
#define STEADY_TRIES 8

/* Bulk data: on the connection, or what was received from it. */
struct contents {
    struct rg_conn *conn; /* NULL: it is at `at` */
    const unsigned char *at;
    size_t left;
};

/* Whether the device may still work on records up to `seq`. The lock is held. */
static bool device_busy(struct rg_worker *worker, uint64_t seq)
{
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    if (atomic_load(&worker->submitted) < seq)
        return true;
    for (const struct rg_managed_context *context = managed->contexts; context; context = context->next)
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
static CUresult write_device(struct contents *from, const struct rg_managed_context *context,
                             uint64_t address, size_t size, bool *broken)
{
    CUresult result = rg_is_device_memory(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    while (size) {
        const size_t part = size < RG_MANAGED_STAGING ? size : RG_MANAGED_STAGING;
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
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    CUresult worst = CUDA_SUCCESS;
    bool broken = false;
    pthread_mutex_lock(&managed->lock);
    struct rg_managed_context *context = rg_managed_find_context(managed, handle);
    if (context && rg_driver.cuCtxSetCurrent(context->object) != CUDA_SUCCESS)
        context = NULL;
    while (from->left && !broken) {
        uint64_t run[2];
        broken = !take_bytes(from, run, sizeof run) || run[1] > from->left;
        if (broken)
            break;
        unsigned char *host = rg_managed_host_memory(managed, run[0], run[1]);
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
static CUresult read_memory(struct rg_worker *worker, const struct rg_managed_context *context,
                            uint64_t address, size_t size, unsigned char *to)
{
    const unsigned char *host = rg_managed_host_memory(worker->state[RG_MODULE_MANAGED], address, size);
    if (host) {
        memcpy(to, host, size);
        return CUDA_SUCCESS;
    }
    if (!rg_is_device_memory(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = rg_driver.cuMemcpyDtoHAsync_v2(to, address, size, context->stream);
    return result == CUDA_SUCCESS ? rg_driver.cuStreamSynchronize(context->stream) : result;
}

/* Reads until two readings agree: then no kernel has changed one part of it after another was read. */
static CUresult read_steady(struct rg_worker *worker, struct rg_managed_context *context, uint64_t address,
                            size_t size, bool *steady)
{
    unsigned char *halves[2] = {context->staging, context->staging + RG_MANAGED_STAGING};
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
    struct rg_managed *managed = worker->state[RG_MODULE_MANAGED];
    const uint64_t address = answer->arg[0], size = answer->arg[1];
    struct rg_notice notice = {.type = RG_NOTICE_MANAGED, .id = answer->id};
    const void *data = NULL;
    pthread_mutex_lock(&managed->lock);
    struct rg_managed_context *context = rg_managed_find_context(managed, answer->arg[2]);
    CUresult result = context ? rg_driver.cuCtxSetCurrent(context->object) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (device_busy(worker, seq))
        notice.arg[2] = 1;
    if (!(notice.arg[2] && (answer->reserved & RG_MANAGED_IF_IDLE))) {
        bool steady = true;
        data = rg_managed_host_memory(managed, address, size);
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
    return !bulk_size && answer->arg[1] && answer->arg[1] <= RG_MANAGED_STAGING &&
           !(answer->reserved & ~(uint32_t)(RG_MANAGED_IF_IDLE | RG_MANAGED_STEADY));
}

/* Waits for nobody: see postponed.h. False: it is wrong, or the session is over. */
static bool answer_now_or_later(struct rg_worker *worker, const struct rg_answer *answer, uint64_t seq,
                                size_t bulk_size)
{
    struct rg_postponed *postponed = &((struct rg_managed *)worker->state[RG_MODULE_MANAGED])->postponed;
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
    rg_device_leave(&worker->device_gate);
    free(received);
    return good;
}

enum rg_answered rg_managed_answer(struct rg_worker *worker, const struct rg_message_header *header,
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

void rg_managed_reopened(struct rg_worker *worker)
{
    struct rg_postponed *postponed = &((struct rg_managed *)worker->state[RG_MODULE_MANAGED])->postponed;
    struct rg_postponed_answer *next;
    while ((next = rg_postponed_take(postponed, worker)) != NULL) {
        struct contents contents = {.at = next->data, .left = next->size};
        if (!rg_worker_over(worker) && !take_answer(worker, &next->answer, next->seq, &contents))
            rg_worker_end(worker, 1, "protocol violation: contents of shared memory that are none");
        free(next);
    }
}
