/*
 * dispatch.c - one record: checks its header, runs its operation, replies.
 *
 * The happy path of rg_dispatch_next: take the record off the cursor, fill in the thread's request, serve.
 * What is wrong with the bytes ends the session; a failure of a call goes into its reply, or, if nobody
 * waits, is kept (the first one) for the next record that somebody waits for, or for a notice when the input
 * runs dry.
 */
#include "server/core/dispatch.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/core/leader_followers.h"

#include <stdlib.h>
#include <string.h>

static void violation(struct rg_worker *worker, const char *what)
{
    rg_worker_end(worker, 1, "protocol violation: %s", what);
}

static struct rg_client_thread *thread_of(struct rg_worker *worker, uint32_t number)
{
    struct rg_client_thread *thread = worker->threads[number];
    if (!thread) {
        thread = calloc(1, sizeof *thread);
        if (!thread) {
            rg_worker_end(worker, 1, "the worker is out of memory");
            return NULL;
        }
        thread->number = number;
        worker->threads[number] = thread;
        worker->n_threads = number >= worker->n_threads ? number + 1 : worker->n_threads;
    }
    return thread;
}

/* Takes the next record's header off the cursor; NULL: malformed, the session has been ended. */
static rg_operation *take_header(struct rg_worker *worker, struct rg_record *record)
{
    struct rg_batch_cursor *cursor = &worker->cursor;
    const size_t left = (size_t)(cursor->end - cursor->at);
    if (left < sizeof *record) {
        violation(worker, "a batch with fewer records than it says");
        return NULL;
    }
    memcpy(record, cursor->at, sizeof *record);
    const char *wrong = NULL;
    if (record->size < sizeof *record || record->size % 8 != 0 || record->size > left)
        wrong = "a record of impossible size";
    else if (record->flags & ~RG_RECORD_AWAITED)
        wrong = "a record with unknown flags";
    else if ((record->flags & RG_RECORD_AWAITED) && !record->token)
        wrong = "a record that is awaited and has no answer";
    else if (record->op == 0 || record->op >= RG_OP_COUNT || !worker->operations[record->op])
        wrong = "a record of an unknown operation";
    else if (record->thread >= RG_CLIENT_THREADS_MAX)
        wrong = "a record of a thread beyond the limit";
    else if (cursor->left == 1 && record->size != left)
        wrong = "a batch with bytes behind its last record";
    if (wrong) {
        violation(worker, wrong);
        return NULL;
    }
    if (cursor->left == 1 && cursor->bulk_left && !(rg_op_traits[record->op] & RG_TRAIT_BULK)) {
        rg_worker_end(worker, 1, "protocol violation: %s with bulk data", rg_op_names[record->op]);
        return NULL;
    }
    return worker->operations[record->op];
}

static void keep_failure(struct rg_worker *worker, const struct rg_request *request)
{
    if (worker->failed != CUDA_SUCCESS)
        return;
    worker->failed = request->result;
    worker->failed_op = request->op;
}

static void reply(struct rg_worker *worker, struct rg_executor *executor)
{
    struct rg_request *request = &executor->request;
    struct rg_reply head = {
        .token = request->token,
        .result = (int32_t)request->result,
        .async_result = (int32_t)executor->async_result,
        .async_op = executor->async_op,
        .memory = RG_REPLY_MEMORY(rg_worker_memory_left(worker), request->memory_taken),
        .size = request->out_size,
    };
    struct iovec parts[2] = {{&head, sizeof head}, {request->out, request->out_size}};
    struct iovec bulk = {(void *)(uintptr_t)request->reply_bulk, request->reply_bulk_size};
    RG_MODULES_CALL(worker, before_reply, worker, request);
    (void)rg_worker_send(worker, request->reply_transfer, 0, request->reply_lease, RG_MESSAGE_REPLY, parts,
                         request->out_size ? 2 : 1, &bulk, request->reply_bulk_size ? 1 : 0);
}

static void free_request(struct rg_request *request, struct rg_executor *executor)
{
    if (request->out != executor->output)
        free(request->out);
    if (request->reply_sent)
        request->reply_sent(request->worker, request->reply_owner);
    for (void **block = request->arena; block;) {
        void **next = *block;
        free(block);
        block = next;
    }
}

/*
 * A record ran out of memory while some is ready that nobody uses: it is done once more without that. Its
 * parameters are copied, as the message that they are in may be gone when the client has answered.
 */
static void execute_again(struct rg_executor *executor, rg_operation *operation,
                          const unsigned char *parameters, size_t size)
{
    struct rg_request *request = &executor->request;
    unsigned char *copy = malloc(size + 1);
    if (!copy)
        return;
    memcpy(copy, parameters, size);
    if (rg_worker_reclaim(request)) {
        request->result = CUDA_SUCCESS;
        request->out_size = 0;
        request->in = rg_reader_of(copy, size);
        executor->scratch_used = 0;
        operation(request);
    }
    free(copy);
}

#define AWAITS (RG_TRAIT_AWAITS_STREAM | RG_TRAIT_AWAITS_EVENT | RG_TRAIT_AWAITS_ALL)

static bool ends_memory(struct rg_worker *worker, unsigned traits)
{
    const unsigned uses = RG_TRAIT_ACCESSES | RG_TRAIT_RECORDS | RG_TRAIT_FOLLOWS | RG_TRAIT_IDLE;
    const bool mere_use = (traits & uses) && !(traits & RG_TRAIT_WAITS);
    return (traits & RG_TRAIT_ENDS) ||
           (!mere_use && atomic_load_explicit(&worker->pooled, memory_order_relaxed));
}

/* --- the device's time, where it is shared -------------------------------------------------------------- */

/* Whether records of such an operation take the device's time. */
static bool takes_time(uint16_t op)
{
    return op < RG_OP_COUNT && (rg_op_traits[op] & (RG_TRAIT_ACCESSES | RG_TRAIT_KERNELS));
}

/* Waits for the session's turn if the next record gives the device work. False: the session is over. */
static bool take_turn(struct rg_worker *worker, struct rg_executor *executor)
{
    const struct rg_batch_cursor *cursor = &worker->cursor;
    struct rg_record record;
    executor->admitted = NULL;
    if ((size_t)(cursor->end - cursor->at) < sizeof record)
        return true; /* which take_header says */
    memcpy(&record, cursor->at, sizeof record);
    if (!takes_time(record.op) || record.size < sizeof record ||
        record.size > (size_t)(cursor->end - cursor->at))
        return true;
    bool waited = false;
    while (!worker->turns->admit(executor, &record, cursor->at + sizeof record)) {
        /* What the device has to do meanwhile may need the client's answers. */
        if (rg_worker_over(worker) || !rg_leader_separate_reader(executor))
            return false;
        atomic_store(&worker->gated, true);
        waited = true;
        worker->turns->wait(executor);
    }
    if (waited)
        atomic_store(&worker->gated, false);
    return true;
}

/* Fills in the executor's request for the record at the cursor, and takes that off. */
static void begin_request(struct rg_worker *worker, struct rg_executor *executor,
                          const struct rg_record *record, struct rg_client_thread *thread)
{
    struct rg_batch_cursor *cursor = &worker->cursor;
    executor->request = (struct rg_request){
        .worker = worker,
        .thread = thread,
        .in = rg_reader_of(cursor->at + sizeof *record, record->size - sizeof *record),
        .op = record->op,
        .token = record->token,
        .awaited = record->flags & RG_RECORD_AWAITED,
        .bulk_left = cursor->left == 1 ? cursor->bulk_left : 0,
        .out = executor->output,
        .out_capacity = sizeof executor->output,
    };
    executor->seq = cursor->seq;
    executor->stream = NULL;
    executor->named_stream = executor->named_event = 0;
    executor->scratch_used = 0;
    executor->async_result = CUDA_SUCCESS;
    if (record->token) {
        executor->async_result = worker->failed;
        executor->async_op = worker->failed_op;
        worker->failed = CUDA_SUCCESS;
    }
    cursor->at += record->size;
    cursor->left--;
    cursor->seq++;
    atomic_store_explicit(&worker->executed, executor->seq, memory_order_relaxed);
}

/* Runs the operation, and tells those who want to know of memory and of the device's time. */
static void execute(struct rg_worker *worker, struct rg_executor *executor, rg_operation *operation,
                    const unsigned char *parameters, size_t size)
{
    struct rg_request *request = &executor->request;
    const unsigned traits = rg_op_traits[request->op];
    const bool bulk = request->bulk_left;
    operation(request);
    if (request->result == CUDA_ERROR_OUT_OF_MEMORY && !bulk && !request->violated && !request->told &&
        executor->roles)
        execute_again(executor, operation, parameters, size);
    if (ends_memory(worker, traits))
        rg_worker_memory_ended(worker);
    if (executor->admitted)
        worker->turns->executed(executor, executor->roles != 0);
    else if (worker->turns && (traits & AWAITS))
        worker->turns->awaited(worker);
}

/* `mine`: the roles are this thread's still. Else nothing of the dispatcher's may be touched any more. */
static void tell_result(struct rg_worker *worker, struct rg_executor *executor, bool mine)
{
    struct rg_request *request = &executor->request;
    if (mine && request->bulk_left && !request->violated &&
        rg_request_recv_bulk(request, NULL, request->bulk_left) != RG_OK)
        rg_worker_end(worker, 0, NULL);
    const struct rg_observer *observer = worker->observer;
    const uint64_t replied = observer && request->token ? rg_now_ns() : 0;
    if (!request->violated) {
        if (!mine)
            atomic_store_explicit(&request->thread->waits, false, memory_order_release);
        if (request->token)
            reply(worker, executor);
        else if (request->result != CUDA_SUCCESS && mine)
            keep_failure(worker, request);
    }
    if (mine)
        atomic_store(&worker->submitted, executor->seq);
    if (observer)
        observer->finish(executor, replied);
}

static void dispatch(struct rg_worker *worker, struct rg_executor *executor)
{
    struct rg_record record;
    rg_operation *operation = take_header(worker, &record);
    struct rg_client_thread *thread = operation ? thread_of(worker, record.thread) : NULL;
    if (!thread)
        return;
    if (atomic_load_explicit(&thread->waits, memory_order_acquire)) {
        rg_worker_end(worker, 1, "protocol violation: %s of a thread that is still in another call",
                      rg_op_names[record.op]);
        return;
    }
    struct rg_request *request = &executor->request;
    const unsigned char *parameters = worker->cursor.at + sizeof record;
    begin_request(worker, executor, &record, thread);
    const unsigned traits = rg_op_traits[record.op];
    if (traits & RG_TRAIT_WORK)
        worker->last_work = executor->seq;
    if (rg_out_of_order_any(&worker->out_of_order))
        rg_out_of_order_register(request);

    const size_t bulk = request->bulk_left;
    const struct rg_observer *observer = worker->observer;
    if (observer)
        observer->begin(executor);
    execute(worker, executor, operation, parameters, record.size - sizeof record);
    if (observer)
        observer->executed(executor);

    const bool mine = executor->roles != 0;
    rg_out_of_order_end(executor);
    if (traits & RG_TRAIT_CREDIT)
        RG_MODULES_CALL(worker, executed, request, bulk);
    tell_result(worker, executor, mine);
    free_request(request, executor);
    if (!mine)
        atomic_fetch_sub(&worker->detached, 1);
}

/* While the session is suspended another thread reads, so that it is seen if the client goes. */
static bool wait_for_device(struct rg_worker *worker, struct rg_executor *executor)
{
    if (!rg_leader_separate_reader(executor))
        return false;
    atomic_store(&worker->gated, true);
    const bool entered = rg_device_enter(worker);
    atomic_store(&worker->gated, false);
    return entered;
}

void rg_dispatch_next(struct rg_worker *worker, struct rg_executor *executor)
{
    if (!rg_device_try(&worker->device_gate) && !wait_for_device(worker, executor))
        return;
    if (!worker->turns ||
        take_turn(worker, executor)) /* in that order: who is suspended holds up nobody's turn */
        dispatch(worker, executor);
    rg_device_leave(&worker->device_gate);
}

/* Whether the context of a record's thread may be at work, for all that can be asked now. */
static bool context_works(struct rg_worker *worker, const struct rg_record *record)
{
    struct rg_client_thread *thread =
        record->thread < RG_CLIENT_THREADS_MAX ? worker->threads[record->thread] : NULL;
    const struct rg_object *entry = thread ? rg_objects_find(&worker->objects, thread->context) : NULL;
    struct rg_request asks = {.worker = worker, .thread = thread};
    if (!entry)
        return false;
    if (!rg_device_try_out_of_order(&worker->device_gate)) /* the session is suspended */
        return true;
    const bool idle = rg_request_make_current(&asks) == CUDA_SUCCESS && rg_context_idle(worker, entry->extra);
    rg_device_leave(&worker->device_gate);
    return !idle;
}

bool rg_dispatch_next_blocks(struct rg_worker *worker)
{
    const struct rg_batch_cursor *cursor = &worker->cursor;
    struct rg_record record;
    if (!cursor->left || (size_t)(cursor->end - cursor->at) < sizeof record)
        return false;
    memcpy(&record, cursor->at, sizeof record);
    const unsigned traits = record.op < RG_OP_COUNT ? rg_op_traits[record.op] : 0;
    return (traits & RG_TRAIT_BLOCKS) || ((traits & RG_TRAIT_WORK) && context_works(worker, &record));
}

void rg_dispatch_report_failure(struct rg_worker *worker)
{
    /* A client that only sends reads nothing: the unread must never fill the connection that it waits for. */
    const uint64_t read = atomic_load_explicit(&worker->read, memory_order_relaxed);
    if (worker->failed == CUDA_SUCCESS ||
        atomic_load_explicit(&worker->sent, memory_order_relaxed) > read + RG_ERRORS_UNREAD_MAX)
        return; /* the next reply tells of it */
    struct rg_notice notice = {.type = RG_NOTICE_ERROR, .arg = {(uint64_t)worker->failed, worker->failed_op}};
    worker->failed = CUDA_SUCCESS;
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}
