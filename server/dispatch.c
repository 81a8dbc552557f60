/*
 * dispatch.c - one record: checks its header, runs its operation, replies.
 *
 * The happy path of rg_execute_next: take the record off the feed, fill in the thread's job, serve. What is wrong with
 * the bytes ends the session; a failure of a call goes into its reply, or, if nobody waits, is kept (the first one)
 * for the next record that somebody waits for, or for a notice when the input runs dry.
 */
#include "common/base/clock.h"
#include "server/ahead.h"
#include "server/aside.h"
#include "server/direct.h"
#include "server/roles.h"
#include "server/room.h"
#include "server/staging.h"
#include "server/times.h"
#include "server/watch.h"

#include <stdlib.h>
#include <string.h>

static void violation(struct rg_worker *worker, const char *what)
{
    rg_worker_end(worker, 1, "protocol violation: %s", what);
}

static struct rg_lane *lane_of(struct rg_worker *worker, uint32_t number)
{
    struct rg_lane *lane = worker->lanes[number];
    if (!lane) {
        lane = calloc(1, sizeof *lane);
        if (!lane) {
            rg_worker_end(worker, 1, "the worker is out of memory");
            return NULL;
        }
        lane->number = number;
        worker->lanes[number] = lane;
    }
    return lane;
}

/* Takes the next record's header off the feed; NULL: malformed, the session has been ended. */
static const struct rg_operation *take_header(struct rg_worker *worker, struct rg_record *record)
{
    struct rg_feed *feed = &worker->feed;
    const size_t left = (size_t)(feed->end - feed->at);
    if (left < sizeof *record) {
        violation(worker, "a batch with fewer records than it says");
        return NULL;
    }
    memcpy(record, feed->at, sizeof *record);
    const char *wrong = NULL;
    if (record->size < sizeof *record || record->size % 8 != 0 || record->size > left)
        wrong = "a record of impossible size";
    else if (record->flags & ~RG_RECORD_AWAITED)
        wrong = "a record with unknown flags";
    else if ((record->flags & RG_RECORD_AWAITED) && !record->token)
        wrong = "a record that is awaited and has no answer";
    else if (record->op == 0 || record->op >= RG_OP_COUNT || !worker->operations[record->op].serve)
        wrong = "a record of an unknown operation";
    else if (record->thread >= RG_CLIENT_THREADS_MAX)
        wrong = "a record of a lane beyond the limit";
    else if (feed->left == 1 && record->size != left)
        wrong = "a batch with bytes behind its last record";
    if (wrong) {
        violation(worker, wrong);
        return NULL;
    }
    const struct rg_operation *operation = &worker->operations[record->op];
    if (feed->left == 1 && feed->bulk_left && !(operation->flags & RG_OPERATION_BULK)) {
        rg_worker_end(worker, 1, "protocol violation: %s with bulk data", operation->name);
        return NULL;
    }
    return operation;
}

/* Operations that leave the GPU as it was. */
static bool is_work(unsigned op)
{
    switch (op) {
    case RG_OP_cuCtxSynchronize:
    case RG_OP_cuCtxSynchronize_v2:
    case RG_OP_cuStreamSynchronize:
    case RG_OP_cuEventSynchronize:
    case RG_OP_rgEventWait:
    case RG_OP_cuStreamQuery:
    case RG_OP_cuEventQuery:
    case RG_OP_rgEventAsk:
    case RG_OP_rgEventWatch:
    case RG_OP_rgEventWatchTimed:
    case RG_OP_rgStreamAsk:
    case RG_OP_rgStreamWatch:
    case RG_OP_rgDefaultStreamAsk:
    case RG_OP_rgMemReturn:
    case RG_OP_rgRoomAsk:
    case RG_OP_rgRoomTell:
    case RG_OP_rgMemMayRecall:
    case RG_OP_rgLaneSetContext:
        return false;
    default:
        return true;
    }
}

/* Whose data takes room, which the client has counted. */
static bool takes_room(unsigned op)
{
    return op == RG_OP_rgCopyIn || op == RG_OP_rgBoxIn;
}

static void keep_failure(struct rg_worker *worker, const struct rg_job *job)
{
    if (worker->failed != CUDA_SUCCESS)
        return;
    worker->failed = job->result;
    worker->failed_op = job->op;
}

static void reply(struct rg_worker *worker, struct rg_thread *thread)
{
    struct rg_job *job = &thread->job;
    struct rg_reply head = {
        .token = job->token,
        .result = (int32_t)job->result,
        .async_result = (int32_t)thread->async_result,
        .async_op = thread->async_op,
        .size = job->out_size,
    };
    struct iovec parts[2] = {{&head, sizeof head}, {job->out, job->out_size}};
    struct iovec bulk = {(void *)(uintptr_t)job->reply_bulk, job->reply_bulk_size};
    rg_watch_before_reply(worker, job);
    (void)rg_worker_send_to(worker, job->reply_transfer, 0,
                            thread->reply_buffer ? &thread->reply_buffer->hold : NULL, RG_MESSAGE_REPLY,
                            parts, job->out_size ? 2 : 1, &bulk, job->reply_bulk_size ? 1 : 0);
}

static void free_job(struct rg_job *job, struct rg_thread *thread)
{
    if (job->out != thread->output)
        free(job->out);
    rg_pinned_give(job->worker, thread->reply_buffer);
    thread->reply_buffer = NULL;
    rg_direct_let_go(job->worker, thread->reply_area);
    thread->reply_area = NULL;
    for (void **block = job->arena; block;) {
        void **next = *block;
        free(block);
        block = next;
    }
}

/*
 * A record ran out of memory while some is ready that nobody uses: it is done once more without that. Its parameters are
 * copied, as the message that they are in may be gone when the client has answered.
 */
static void serve_again(struct rg_thread *thread, const struct rg_operation *operation,
                        const unsigned char *parameters, size_t size)
{
    struct rg_job *job = &thread->job;
    unsigned char *copy = malloc(size + 1);
    if (!copy)
        return;
    memcpy(copy, parameters, size);
    if (rg_ahead_recall(job)) {
        job->result = CUDA_SUCCESS;
        job->out_size = 0;
        job->in = rg_reader_of(copy, size);
        thread->scratch_used = 0;
        operation->serve(job);
    }
    free(copy);
}

void rg_execute_next(struct rg_worker *worker, struct rg_thread *thread)
{
    struct rg_feed *feed = &worker->feed;
    struct rg_record record;
    const struct rg_operation *operation = take_header(worker, &record);
    struct rg_lane *lane = operation ? lane_of(worker, record.thread) : NULL;
    if (!lane)
        return;
    if (atomic_load_explicit(&lane->waits, memory_order_acquire)) {
        rg_worker_end(worker, 1, "protocol violation: %s of a thread that is still in another call",
                      operation->name);
        return;
    }
    struct rg_job *job = &thread->job;
    *job = (struct rg_job){
        .worker = worker,
        .lane = lane,
        .in = rg_reader_of(feed->at + sizeof record, record.size - sizeof record),
        .op = record.op,
        .token = record.token,
        .awaited = record.flags & RG_RECORD_AWAITED,
        .bulk_left = feed->left == 1 ? feed->bulk_left : 0,
        .out = thread->output,
        .out_capacity = sizeof thread->output,
    };
    const unsigned char *parameters = feed->at + sizeof record;
    thread->seq = feed->seq;
    thread->stream = NULL;
    thread->named_stream = thread->named_event = 0;
    thread->scratch_used = 0;
    thread->async_result = CUDA_SUCCESS;
    if (record.token) {
        thread->async_result = worker->failed;
        thread->async_op = worker->failed_op;
        worker->failed = CUDA_SUCCESS;
    }
    feed->at += record.size;
    feed->left--;
    feed->seq++;
    atomic_store_explicit(&worker->executed, thread->seq, memory_order_relaxed);

    if (is_work(record.op))
        worker->last_work = thread->seq;
    if (rg_aside_any(&worker->aside))
        rg_aside_enter(job);

    const uint64_t taken = worker->room.taken;
    const size_t bulk = job->bulk_left;
    rg_times_begin(thread, operation->flags);
    operation->serve(job);
    if (job->result == CUDA_ERROR_OUT_OF_MEMORY && !bulk && !job->violated && !job->told && thread->roles)
        serve_again(thread, operation, parameters, record.size - sizeof record);
    rg_times_served(thread, operation->flags);

    /* The roles may be another thread's by now; then nothing of the dispatcher's may be touched any more. */
    const bool mine = thread->roles != 0;
    rg_aside_done(thread);
    if (takes_room(record.op))
        rg_room_executed(worker, taken, bulk);
    if (mine && job->bulk_left && !job->violated && rg_job_recv_bulk(job, NULL, job->bulk_left) != RG_OK)
        rg_worker_end(worker, 0, NULL);
    const uint64_t replied = worker->times && record.token ? rg_now_ns() : 0;
    if (!job->violated) {
        if (!mine)
            atomic_store_explicit(&lane->waits, false, memory_order_release);
        if (record.token)
            reply(worker, thread);
        else if (job->result != CUDA_SUCCESS && mine)
            keep_failure(worker, job);
    }
    if (mine)
        atomic_store(&worker->served, thread->seq);
    rg_times_finish(thread, replied);
    free_job(job, thread);
    if (!mine)
        atomic_fetch_sub(&worker->apart, 1);
}

bool rg_next_blocks(const struct rg_worker *worker)
{
    const struct rg_feed *feed = &worker->feed;
    struct rg_record record;
    if (!feed->left || (size_t)(feed->end - feed->at) < sizeof record)
        return false;
    memcpy(&record, feed->at, sizeof record);
    return record.op < RG_OP_COUNT && (worker->operations[record.op].flags & RG_OPERATION_BLOCKS);
}

void rg_report_failure(struct rg_worker *worker)
{
    /* A client that only sends reads nothing: what it has not read must never fill the connection, which it waits for. */
    enum { UNREAD_MAX = 64 };
    const uint64_t read = atomic_load_explicit(&worker->read, memory_order_relaxed);
    if (worker->failed == CUDA_SUCCESS ||
        atomic_load_explicit(&worker->sent, memory_order_relaxed) > read + UNREAD_MAX)
        return; /* the next reply tells of it */
    struct rg_notice notice = {.type = RG_NOTICE_ERROR, .arg = {(uint64_t)worker->failed, worker->failed_op}};
    worker->failed = CUDA_SUCCESS;
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}
