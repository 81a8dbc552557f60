/*
 * call.c - the life of one record (call.h): which session and context it is for, its place in the queue, its
 * reply.
 *
 * The happy path of a call that is posted: look, reserve a record, rg_queue_leave. Of one that waits: the
 * same, then the record is sent and the thread reads the connection until its reply is there. What cannot be
 * sent is said before anything is appended; what fails behind that ends the session.
 */
#include "client/core/call.h"

#include "client/core/device_list.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/timeline/timeline.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/tuning.h"
#include "proto/wire.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_RECORD (sizeof(struct rg_record) + 8) /* rgThreadSetContext */
#define SHORT_WAIT_NS  5000000

__thread bool rg_per_thread_default_stream;

/* Finds the session of a call that names something of another server, and the context to use there. */
static CUresult bind_to_home(struct rg_call *call, unsigned traits, uint64_t home)
{
    struct rg_session *session = rg_home_session(home);
    if (session == call->session)
        return CUDA_SUCCESS;
    call->session = session;
    if (!(traits & RG_TRAIT_CONTEXT))
        return CUDA_SUCCESS;
    call->context = home > rg_n_sessions ? home : atomic_load(&session->context);
    return rg_handle_shadow(RG_KIND_CONTEXT, call->context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult rg_call_look(struct rg_call *call, unsigned traits, uint64_t home)
{
    call->waits = false;
    RG_TRY(atomic_load_explicit(&rg_sessions_ended, memory_order_acquire));
    struct rg_thread *thread = rg_thread_current();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->host_call || !(call->speaker = rg_thread_speaker(thread)))
        return CUDA_ERROR_NOT_PERMITTED;
    const uint64_t context = rg_thread_context(thread);
    const struct rg_shadow *shadow = context ? rg_handle_shadow(RG_KIND_CONTEXT, context) : NULL;
    call->thread = thread;
    call->session = shadow ? shadow->context.session : &rg_sessions[0];
    call->context = traits & RG_TRAIT_CONTEXT ? context : 0;
    call->current = shadow ? &shadow->context : NULL;
    if (traits & RG_TRAIT_CONTEXT) {
        if (atomic_load_explicit(&rg_contexts_suspect, memory_order_relaxed))
            rg_hooks.contexts_suspect();
        CUresult sticky =
            shadow ? atomic_load_explicit(&shadow->context.sticky, memory_order_relaxed) : CUDA_SUCCESS;
        if (sticky != CUDA_SUCCESS)
            return sticky;
        if (!shadow)
            return context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    }
    if (home)
        return bind_to_home(call, traits, home);
    return traits & RG_TRAIT_CONTEXT ? atomic_load_explicit(&call->session->ended, memory_order_acquire)
                                     : CUDA_SUCCESS;
}

CUresult rg_call_allowed(unsigned flags)
{
    struct rg_call call;
    return rg_call_look(&call, flags, 0);
}

CUresult rg_call_allowed_anywhere(void)
{
    const CUresult status = rg_call_allowed(RG_TRAIT_CONTEXT);
    return status == CUDA_ERROR_INVALID_CONTEXT || status == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? rg_call_allowed(0)
               : status;
}

bool rg_call_goes_out_of_order(const struct rg_session *session)
{
    return (session->hello.capabilities & RG_CONTROL_CAP_AWAITED) && rg_thread_has_others();
}

bool rg_call_waits_are_short(const struct rg_session *session)
{
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed);
    return quickest > 0 && quickest < SHORT_WAIT_NS;
}

void rg_call_sets_home(const struct rg_call *call, uint64_t handle)
{
    if (call->context || rg_several_servers())
        rg_handle_set_home(handle, call->context ? rg_context_owner(call->context)
                                                 : rg_home_of_session(call->session));
}

CUdevice rg_call_device(const struct rg_call *call, CUdevice device)
{
    return rg_several_servers() ? rg_device_there(call->session, device) : device;
}

void rg_call_renumber_devices(const struct rg_call *call, size_t size, size_t count, size_t offset)
{
    for (size_t i = 1; i <= count && rg_several_servers(); i++) {
        CUmemLocation location;
        unsigned char *at = call->writer.at - i * size + offset;
        memcpy(&location, at, sizeof location);
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            location.id = rg_device_there(call->session, location.id);
        memcpy(at, &location, sizeof location);
    }
}

/*
 * Held while records that belong together are put into several streams, and while a call that blocks is put.
 */
static pthread_mutex_t together = PTHREAD_MUTEX_INITIALIZER;

void rg_calls_together_begin(void)
{
    pthread_mutex_lock(&together);
}

void rg_calls_together_end(void)
{
    pthread_mutex_unlock(&together);
}

/* Whether the call's session can take such a record; its size and the server's number of the operation. */
static CUresult check_record(const struct rg_call *call, enum rg_op op, size_t size, uint32_t *record_size,
                             uint16_t *number)
{
    RG_TRY(atomic_load_explicit(&call->session->ended, memory_order_acquire));
    *number = call->session->op_numbers[op];
    if (!*number)
        return rg_unsupported(rg_op_names[op]);
    if (size >
        RG_BATCH_SIZE - sizeof(struct rg_message_header) - CONTEXT_RECORD - sizeof(struct rg_record) - 8)
        return CUDA_ERROR_INVALID_VALUE;
    *record_size = (uint32_t)((sizeof(struct rg_record) + size + 7) & ~(size_t)7);
    return CUDA_SUCCESS;
}

/*
 * Tells the worker which context is the thread's, if it takes another one for it. The queue's lock is held.
 */
static void tell_context(const struct rg_call *call)
{
    struct rg_session *session = call->session;
    uint64_t *sent = &call->speaker->at[session->number].sent_context;
    if (!call->context || *sent == call->context)
        return;
    unsigned char *at = rg_queue_append(&session->queue, call->speaker,
                                        session->op_numbers[RG_OP_rgThreadSetContext], CONTEXT_RECORD);
    memcpy(at + sizeof(struct rg_record), &call->context, sizeof call->context);
    *sent = call->context;
    atomic_store_explicit(&session->context, call->context, memory_order_relaxed);
}

/*
 * Takes the queue's lock, with room for the record and for one of its context behind what has been appended;
 * appends the record, whose parameters are still to be written, and counts it.
 */
static void reserve(struct rg_call *call, uint16_t number, unsigned traits)
{
    struct rg_session *session = call->session;
    const bool blocks = (traits & RG_TRAIT_BLOCKS) && rg_several_servers();
    if (blocks)
        pthread_mutex_lock(&together);
    rg_queue_lock_for(session, call->size + CONTEXT_RECORD);
    if (blocks) /* its place is taken */
        pthread_mutex_unlock(&together);
    tell_context(call);
    call->speaker->at[session->number].announced = true;
    session->stats.calls++;
    call->position = call->thread->timeline.submitted = rg_timeline_submit(&session->timeline, traits);
    call->record = rg_queue_append(&session->queue, call->speaker, number, call->size);
    call->writer.at = call->record + sizeof(struct rg_record);
    if (call->size > sizeof(struct rg_record))
        memset(call->record + call->size - 8, 0, 8); /* padding; the parameters overwrite what is theirs */
    rg_probe_post(session->number, call->op, session->queue.next_seq - 1, call->size);
}

CUresult rg_call_begin_looked(struct rg_call *call, enum rg_op op, size_t size)
{
    const unsigned traits = rg_op_traits[op];
    uint16_t number;
    bool sharing = false;
    RG_TRY(check_record(call, op, size, &call->size, &number));
    if (traits & RG_TRAIT_ACCESSES)
        RG_TRY(rg_hooks.work_begins(traits & RG_TRAIT_KERNELS, &sharing));
    call->op = (uint16_t)op;
    call->lasts = traits & RG_TRAIT_LASTS;
    call->into = NULL;
    call->stays = (traits & RG_TRAIT_BLOCKS) && !atomic_load(&rg_process_exits) &&
                  rg_hooks.blocks_on_context(rg_thread_context(call->thread));
    call->out_of_order = (traits & RG_TRAIT_COMPILES) && rg_call_goes_out_of_order(call->session);
    reserve(call, number, traits);
    if (sharing)
        rg_hooks.work_ends();
    return CUDA_SUCCESS;
}

CUresult rg_call_begin(struct rg_call *call, enum rg_op op, size_t size, uint64_t home)
{
    RG_TRY(rg_call_look(call, rg_op_traits[op], home));
    return rg_call_begin_looked(call, op, size);
}

CUresult rg_call_wait_own(struct rg_call *call)
{
    struct rg_session *session = call->session;
    struct rg_waiter *waiter = &call->speaker->waiter;
    const uint32_t token = rg_thread_token(call->speaker);
    call->waits = call->speaker->waits = true;
    memcpy(call->record + offsetof(struct rg_record, token), &token, sizeof token);
    if (call->out_of_order)
        memcpy(call->record + offsetof(struct rg_record, flags), &(uint16_t){RG_RECORD_AWAITED},
               sizeof(uint16_t));
    rg_receiver_prepare(session, waiter, token, call->into);
    session->stats.round_trips++;
    const uint64_t began = rg_now_ns();
    rg_queue_leave_awaited(session);
    rg_receiver_wait(session, waiter);
    rg_queue_answered(session);
    call->thread->posted = 0;
    const uint64_t waited = rg_now_ns() - began;
    const uint64_t quickest = atomic_load_explicit(&session->quickest_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&session->stats.waited_ns, waited, memory_order_relaxed);
    if (quickest == 0 || waited < quickest)
        atomic_store_explicit(&session->quickest_ns, waited, memory_order_relaxed);
    rg_probe_bytes(0, waiter->received);
    rg_probe_waited(began, 1);
    call->reply = rg_reader_of(waiter->output, waiter->size);
    call->memory_taken = waiter->memory_taken;
    CUresult result = waiter->result;
    if (rg_error_is_sticky(result))
        atomic_store(&rg_contexts_suspect, true);
    if (result == CUDA_SUCCESS)
        rg_hooks.has_waited();
    return result;
}

/*
 * A call that is only posted returns nobody else's error, with and without the optimisation: its caller
 * undoes what it registered for a record that failed, and must not where the worker has taken it.
 */
CUresult rg_call_post(struct rg_call *call)
{
    if (!rg_optimise[RG_OPT_ASYNC] || call->stays) {
        CUresult status = rg_call_wait_own(call);
        rg_call_done(call);
        return status;
    }
    rg_queue_leave(call->session, call->thread);
    return CUDA_SUCCESS;
}

CUresult rg_call_post_bulk(struct rg_call *call, struct rg_bulk *bulk)
{
    struct rg_session *session = call->session;
    struct rg_bulk_send own = {.send = {.bulk = bulk->data,
                                        .n_bulk = bulk->n,
                                        .lease = bulk->lease,
                                        .detachable = rg_optimise[RG_OPT_ASYNC]}};
    enum rg_status sent;
    CUresult result = CUDA_SUCCESS;
    bulk->posted = true;
    for (int i = 0; i < bulk->n; i++)
        rg_probe_bytes(bulk->data[i].iov_len, 0);
    if (bulk->n)
        session->queue.current->bulk = &own;
    if (rg_optimise[RG_OPT_ASYNC]) {
        const uint64_t since = rg_probe_wait();
        sent = rg_queue_send_bulk(session, &own);
        rg_probe_waited(since, 0);
    } else {
        result = rg_call_wait_own(call);
        rg_call_done(call);
        sent = own.status;
    }
    if (sent == RG_ERR_FAULT)
        return CUDA_ERROR_INVALID_VALUE;
    return sent == RG_OK ? result : atomic_load(&session->ended);
}

void rg_call_end_lease(struct rg_session *session, struct rg_lease *lease)
{
    RG_THREAD_INSIDE(NULL);
    if (rg_lease_ended(lease))
        return;
    rg_receiver_poll(session); /* acknowledgements may stand behind what else has come */
    rg_lease_end(lease);
}

CUresult rg_call_post_future(struct rg_call *call, struct rg_future *future)
{
    const uint32_t token = rg_future_prepare(future, call->session, (enum rg_op)call->op);
    memcpy(call->record + offsetof(struct rg_record, token), &token, sizeof token);
    rg_queue_leave(call->session, call->thread);
    call->reply = rg_reader_of(NULL, 0);
    call->thread = NULL; /* there is nothing to release */
    return CUDA_SUCCESS;
}

CUresult rg_call_wait(struct rg_call *call)
{
    const CUresult result = rg_call_wait_own(call);
    return result == CUDA_SUCCESS ? rg_session_take_latched(call->session) : result;
}

void rg_call_done(struct rg_call *call)
{
    if (!call->thread || !call->waits)
        return; /* it was never sent, or nobody waited */
    struct rg_waiter *waiter = &call->speaker->waiter;
    if (waiter->output != waiter->small)
        free(waiter->output);
    waiter->output = waiter->small;
    waiter->size = 0;
    waiter->into = NULL;
    call->waits = call->speaker->waits = false;
}

void rg_call_output(struct rg_call *call, void *to, size_t size)
{
    const void *data = rg_get(&call->reply, size);
    if (data && to)
        memcpy(to, data, size);
}

CUresult rg_call_outputs_read(struct rg_call *call)
{
    if (!call->reply.bad)
        return CUDA_SUCCESS;
    struct rg_session *session = call->session;
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s answered %s with too few bytes",
                   session->server, rg_op_names[call->op]);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}
