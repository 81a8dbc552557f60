/*
 * fence.c - helper streams, gates between streams, proxies. See fence.h.
 *
 * Helper streams: work that is added on a server for the sake of another goes into a stream of its own, which nothing
 * else uses until that work is done, but for work in the order of the same stream, so that nothing ever waits for what
 * merely came first. They are kept by context.
 *
 * Threads: callers, and readers, which call `reached` and must not be held up. `lock` guards helpers and gates; it is a
 * leaf.
 */
#include "client/multiserver/fence.h"

#include "client/core/call.h"
#include "client/core/thread.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/cuda/graph/graph.h"
#include "generated/client/operations.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t rg_home_context(uint64_t owner)
{
    if (owner > rg_n_sessions)
        return owner;
    return owner ? atomic_load(&rg_home_session(owner)->context) : rg_context_current();
}

static uint64_t context_of_stream(CUstream stream)
{
    return rg_home_context(rg_home_of(RG_KIND_STREAM, (uint64_t)stream));
}

/* --- in another context ------------------------------------------------------------------------------------- */

CUresult rg_context_enter(uint64_t context)
{
    struct rg_thread *thread = rg_thread_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return thread && rg_thread_push_context(thread, context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_context_leave(void)
{
    rg_thread_current()->n_contexts--;
}

CUresult rg_context_enter_stream(CUstream stream, bool *entered)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    *entered = false;
    if (!shadow || shadow->stream.context == rg_context_current())
        return CUDA_SUCCESS;
    const CUresult status = rg_context_enter(shadow->stream.context);
    *entered = status == CUDA_SUCCESS;
    return status;
}

CUresult rg_fence_synchronize(uint64_t context, CUstream stream)
{
    CUresult status = rg_context_enter(context);
    if (status != CUDA_SUCCESS)
        return status;
    status = rg_op_cuStreamSynchronize(stream);
    rg_context_leave();
    return status;
}

/* --- helper streams ------------------------------------------------------------------------------------------ */

static struct rg_helper_stream *helpers;

/* One that is in use for stream `of`, or else one that is not in use; NULL: none. The lock is held. */
static struct rg_helper_stream *find_helper(uint64_t context, uint64_t of_context, CUstream of)
{
    struct rg_helper_stream *idle = NULL;
    for (struct rg_helper_stream *helper = helpers; helper; helper = helper->next) {
        if (helper->context != context)
            continue;
        if (helper->users && of && helper->of == of && helper->of_context == of_context)
            return helper;
        if (!helper->users)
            idle = helper;
    }
    return idle;
}

CUresult rg_helper_stream_take(uint64_t context, CUstream of, struct rg_helper_stream **out)
{
    if (of == CU_STREAM_PER_THREAD) /* one name for many streams */
        of = NULL;
    const uint64_t of_context = of ? context_of_stream(of) : 0;
    pthread_mutex_lock(&lock);
    struct rg_helper_stream *helper = find_helper(context, of_context, of);
    if (helper && helper->users++ == 0) {
        helper->of = of;
        helper->of_context = of_context;
    }
    pthread_mutex_unlock(&lock);
    *out = helper;
    if (helper)
        return CUDA_SUCCESS;
    helper = calloc(1, sizeof *helper);
    CUstream stream = (CUstream)(helper ? rg_handle_create(RG_KIND_STREAM) : 0);
    CUresult status = stream ? rg_context_enter(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        status = rg_op_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        rg_context_leave();
    }
    if (status != CUDA_SUCCESS) {
        rg_handle_delete(RG_KIND_STREAM, (uint64_t)stream);
        free(helper);
        return status;
    }
    rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream)->stream =
        (struct rg_stream){.context = context, .flags = CU_STREAM_NON_BLOCKING};
    *helper = (struct rg_helper_stream){
        .context = context, .of_context = of_context, .stream = stream, .of = of, .users = 1};
    pthread_mutex_lock(&lock);
    helper->next = helpers;
    helpers = helper;
    pthread_mutex_unlock(&lock);
    *out = helper;
    return CUDA_SUCCESS;
}

void rg_helper_stream_give(struct rg_helper_stream *helper)
{
    if (!helper)
        return;
    pthread_mutex_lock(&lock);
    const bool last = --helper->users == 0 && helper->gone;
    pthread_mutex_unlock(&lock);
    if (last)
        free(helper);
}

void rg_fence_context_ended(uint64_t context)
{
    pthread_mutex_lock(&lock);
    for (struct rg_helper_stream **at = &helpers; *at;) {
        struct rg_helper_stream *helper = *at;
        if (helper->context != context) {
            at = &helper->next;
            continue;
        }
        *at = helper->next;
        rg_timeline_end_stream(helper->stream);
        helper->gone = true;
        if (!helper->users)
            free(helper);
    }
    pthread_mutex_unlock(&lock);
}

/* --- gates: a stream of one server waits for a stream of another ---------------------------------------------- */

struct gate {
    struct rg_session *from, *to;
    uint64_t signal, hold;           /* points */
    struct rg_helper_stream *helper; /* of the signal: given back when it has been reached */
    unsigned parts;                  /* points that have not been reached, and the maker */
    bool open, holding;
};

/* One of those that know the gate is done with it. The lock is held. */
static bool gate_done(struct gate *gate)
{
    return --gate->parts == 0;
}

static void signal_reached(void *user, bool alive)
{
    struct gate *gate = user;
    pthread_mutex_lock(&lock);
    gate->open = true;
    struct rg_session *const to = gate->to, *const from = gate->from;
    const bool release = gate->holding;
    const uint64_t hold = gate->hold, signal = gate->signal;
    struct rg_helper_stream *helper = gate->helper;
    const bool last = gate_done(gate);
    pthread_mutex_unlock(&lock);
    rg_helper_stream_give(helper);
    if (alive)
        rg_fence_release(from, signal);
    else /* what is waited for is lost: the stream goes on, and the program is told */
        rg_session_async_error(to, CUDA_ERROR_DEVICE_UNAVAILABLE, RG_OP_rgHostCall);
    if (release)
        rg_fence_release(to, hold);
    if (last)
        free(gate);
}

static void hold_reached(void *user, bool alive)
{
    struct gate *gate = user;
    pthread_mutex_lock(&lock);
    gate->holding = true;
    const bool release = alive && gate->open;
    struct rg_session *to = gate->to;
    const uint64_t hold = gate->hold;
    const bool last = gate_done(gate);
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(to, hold);
    if (last)
        free(gate);
}

static CUresult put_point(uint64_t context, CUstream stream, uint64_t id)
{
    CUresult status = id ? rg_context_enter(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        status = rg_op_rgHostCall(stream, id, 0);
        rg_context_leave();
    }
    if (status != CUDA_SUCCESS && id && !rg_transfer_cancel(id))
        return CUDA_SUCCESS; /* the session ended: `reached` has been called */
    return status;
}

/*
 * What comes next in stream `to` waits for what is in stream `from`. `helper`, if not NULL, is given back when `from` has
 * got there, also if this fails.
 */
static CUresult gate(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
                     struct rg_helper_stream *helper)
{
    struct gate *gate = calloc(1, sizeof *gate);
    if (!gate) {
        rg_helper_stream_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *gate = (struct gate){.from = rg_home_session(from_context),
                          .to = rg_home_session(to_context),
                          .helper = helper,
                          .parts = 3};
    const uint64_t signal = rg_fence_create(gate->from, signal_reached, gate);
    const uint64_t hold = signal ? rg_fence_create(gate->to, hold_reached, gate) : 0;
    pthread_mutex_lock(&lock);
    gate->signal = signal;
    gate->hold = hold;
    pthread_mutex_unlock(&lock);
    rg_calls_together_begin();
    const CUresult signalled = put_point(from_context, from, signal);
    const CUresult status = signalled == CUDA_SUCCESS ? put_point(to_context, to, hold) : signalled;
    rg_calls_together_end();
    unsigned over = 1; /* parts: the maker, and points that will not be reached */
    if (signalled != CUDA_SUCCESS) {
        rg_helper_stream_give(helper);
        over += 1 + (!hold ||
                     rg_transfer_cancel(hold)); /* else its session has ended, and it is being "reached" */
    } else if (status != CUDA_SUCCESS) {
        over++;
    }
    bool last = false;
    pthread_mutex_lock(&lock);
    while (over--)
        last = gate_done(gate);
    pthread_mutex_unlock(&lock);
    if (last)
        free(gate);
    return status;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT), captured;
    if (status != CUDA_SUCCESS)
        return status;
    status = rg_handle_check(RG_KIND_STREAM, (uint64_t)hStream, CUDA_ERROR_INVALID_HANDLE);
    if (status == CUDA_SUCCESS)
        status = rg_handle_check(RG_KIND_EVENT, (uint64_t)hEvent, CUDA_ERROR_INVALID_HANDLE);
    if (status != CUDA_SUCCESS)
        return status;
    if (Flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_capture_wait(hEvent, hStream, Flags, &captured))
        return captured;
    const uint64_t owner = rg_home_of(RG_KIND_EVENT, (uint64_t)hEvent);
    if (!rg_homes_differ(owner, rg_home_of(RG_KIND_STREAM, (uint64_t)hStream)))
        return rg_op_cuStreamWaitEvent(hStream, hEvent, Flags);
    const uint64_t context = rg_home_context(owner);
    struct rg_helper_stream *helper;
    status = rg_helper_stream_take(context, NULL, &helper);
    if (status != CUDA_SUCCESS)
        return status;
    status = rg_context_enter(context);
    if (status == CUDA_SUCCESS) {
        status = rg_op_cuStreamWaitEvent(helper->stream, hEvent, Flags);
        rg_context_leave();
    }
    if (status != CUDA_SUCCESS) {
        rg_helper_stream_give(helper);
        return status;
    }
    return gate(context, helper->stream, context_of_stream(hStream), rg_effective_stream(hStream), helper);
}

/* --- proxies ------------------------------------------------------------------------------------------------------ */

CUresult rg_proxy_begin(struct rg_proxy *proxy, uint64_t owner, CUstream stream, bool synchronous)
{
    *proxy = (struct rg_proxy){.stream = stream, .of = stream, .synchronous = synchronous};
    if (!rg_homes_differ(owner, rg_home_of(RG_KIND_STREAM, (uint64_t)stream))) {
        const CUresult entered = rg_context_enter_stream(stream, &proxy->straight);
        proxy->on = proxy->straight;
        return entered;
    }
    proxy->context = rg_home_context(owner);
    proxy->of_context = context_of_stream(stream);
    CUresult status = CUDA_SUCCESS;
    if (synchronous) {
        status = rg_fence_synchronize(proxy->of_context, stream);
        proxy->stream = CU_STREAM_LEGACY;
    } else {
        status = rg_helper_stream_take(proxy->context, stream, &proxy->helper);
        if (status == CUDA_SUCCESS)
            status = gate(proxy->of_context, stream, proxy->context, proxy->helper->stream, NULL);
        if (status == CUDA_SUCCESS)
            proxy->stream = proxy->helper->stream;
    }
    if (status == CUDA_SUCCESS)
        status = rg_context_enter(proxy->context);
    proxy->on = status == CUDA_SUCCESS;
    if (!proxy->on)
        rg_helper_stream_give(proxy->helper);
    return status;
}

CUresult rg_proxy_end(struct rg_proxy *proxy, CUresult status)
{
    if (!proxy->on)
        return status;
    rg_context_leave();
    if (proxy->synchronous || proxy->straight)
        return status;
    CUresult result = gate(proxy->context, proxy->stream, proxy->of_context, proxy->of, proxy->helper);
    return status == CUDA_SUCCESS ? result : status;
}
