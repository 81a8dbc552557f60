/*
 * host_call.c - functions of the application's that streams wait for. They run on one thread of ours, one
 * after another, as the driver's do; what they touch, and what they do wrong, raises signals as elsewhere.
 * When one has returned, the worker is told and its stream goes on. One that the driver has refused is
 * forgotten.
 */
#include "client/core/hooks.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

struct host_call {
    struct rg_transfer transfer;
    struct host_call *next; /* of those that are due */
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *user;
    CUresult status; /* for callbacks */
};

/* Guarded by the registry's lock. */
static pthread_cond_t call_due = PTHREAD_COND_INITIALIZER;
static struct host_call *due_first, **due_end = &due_first;
static bool thread_started;

static bool stream_arrived(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size);

static const struct rg_transfer_kind kind = {
    .notice = RG_NOTICE_HOST_CALL, .progress = stream_arrived, .writes_host = true};

static void *call_main(void *unused)
{
    (void)unused;
    rg_signals_allow_faults();
    struct rg_thread *thread = rg_thread_current();
    pthread_mutex_lock(&rg_registry_lock);
    for (;;) {
        while (!due_first)
            pthread_cond_wait(&call_due, &rg_registry_lock);
        struct host_call *call = due_first;
        due_first = call->next;
        if (!due_first)
            due_end = &due_first;
        pthread_mutex_unlock(&rg_registry_lock);
        if (thread)
            thread->host_call = true;
        rg_hooks.host_call_begins();
        if (call->callback)
            call->callback(call->stream, call->status, call->user);
        else
            call->function(call->user);
        rg_hooks.host_call_ends();
        rg_registry_done(call->transfer.session, &kind);
        struct rg_answer answer = {.type = RG_ANSWER_HOST_DONE, .id = call->transfer.id};
        rg_queue_answer(call->transfer.session, &answer, NULL, 0, NULL);
        free(call);
        pthread_mutex_lock(&rg_registry_lock);
    }
    return NULL;
}

static bool stream_arrived(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size)
{
    struct host_call *call = (struct host_call *)transfer;
    struct rg_session *const session = transfer->session;
    (void)bulk_size;
    rg_registry_take(notice->id);
    const bool refused = notice->arg[1];
    if (!refused) {
        call->status = (CUresult)notice->arg[0];
        *due_end = call;
        due_end = &call->next;
        pthread_cond_signal(&call_due);
    }
    pthread_mutex_unlock(&rg_registry_lock);
    if (refused)
        rg_registry_end(transfer);
    else
        rg_receiver_expect_notices(session, -1);
    return true;
}

/* Before a stream waits for a function: it would for ever where no thread can be started any more. */
static bool start_thread(void)
{
    static bool told;
    RG_SCOPED_LOCK(&rg_registry_lock);
    if (!thread_started)
        thread_started = rg_thread_create_detached("rg-host-call", call_main, NULL) == RG_OK;
    if (!thread_started && !told)
        rg_error("host functions need one more thread than this process may have (ulimit -u, or the limit of "
                 "its container)");
    told = !thread_started;
    return thread_started;
}

uint64_t rg_host_call_create(struct rg_session *session, CUhostFn function, CUstreamCallback callback,
                             CUstream stream, void *user)
{
    struct host_call *call = start_thread() ? rg_registry_new(session, &kind, sizeof *call) : NULL;
    if (!call)
        return 0;
    call->function = function;
    call->callback = callback;
    call->stream = stream;
    call->user = user;
    return rg_registry_add(&call->transfer);
}
