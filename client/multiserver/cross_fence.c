/*
 * cross_fence.c - see cross_fence.h.
 *
 * Threads: callers, and readers, which call `reached` and must not be held up. The lock guards the fences'
 * states; it is a leaf.
 */
#include "client/multiserver/cross_fence.h"

#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/home.h"
#include "client/core/probe.h"
#include "client/multiserver/helper_stream.h"
#include "client/multiserver/peer_link.h"
#include "client/transfer/transfer.h"
#include "generated/client/operations.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct cross_fence {
    struct rg_session *from, *to;
    uint64_t signal, blocker;        /* fences */
    struct rg_helper_stream *helper; /* of the signal: given back when it has been reached */
    unsigned parts;                  /* fences that have not been reached, and the maker */
    bool open, holding;
};

/* One of those that know of it is done with it. The lock is held. */
static bool is_over(struct cross_fence *fence)
{
    return --fence->parts == 0;
}

static void signal_reached(void *user, bool alive)
{
    struct cross_fence *fence = user;
    pthread_mutex_lock(&lock);
    fence->open = true;
    struct rg_session *const to = fence->to, *const from = fence->from;
    const bool release = fence->holding;
    const uint64_t blocker = fence->blocker, signal = fence->signal;
    struct rg_helper_stream *helper = fence->helper;
    const bool last = is_over(fence);
    pthread_mutex_unlock(&lock);
    rg_helper_stream_give(helper);
    if (alive)
        rg_fence_release(from, signal);
    else /* what is waited for is lost: the stream goes on, and the program is told */
        rg_session_async_error(to, CUDA_ERROR_DEVICE_UNAVAILABLE, RG_OP_rgHostCall);
    if (release)
        rg_fence_release(to, blocker);
    if (last)
        free(fence);
}

static void blocker_reached(void *user, bool alive)
{
    struct cross_fence *fence = user;
    pthread_mutex_lock(&lock);
    fence->holding = true;
    const bool release = alive && fence->open;
    struct rg_session *to = fence->to;
    const uint64_t blocker = fence->blocker;
    const bool last = is_over(fence);
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(to, blocker);
    if (last)
        free(fence);
}

static CUresult put_fence(uint64_t context, CUstream stream, uint64_t id)
{
    CUresult status = id ? rg_context_scope_enter(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        status = rg_op_rgHostCall(stream, id, 0);
        rg_context_scope_leave();
    }
    if (status != CUDA_SUCCESS && id && !rg_transfer_cancel(id))
        return CUDA_SUCCESS; /* the session ended: `reached` has been called */
    return status;
}

static CUresult put_by_client(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
                              struct rg_helper_stream *helper)
{
    struct cross_fence *fence = calloc(1, sizeof *fence);
    if (!fence) {
        rg_helper_stream_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *fence = (struct cross_fence){.from = rg_home_session(from_context),
                                  .to = rg_home_session(to_context),
                                  .helper = helper,
                                  .parts = 3};
    const uint64_t signal = rg_fence_create(fence->from, signal_reached, fence);
    const uint64_t blocker = signal ? rg_fence_create(fence->to, blocker_reached, fence) : 0;
    pthread_mutex_lock(&lock);
    fence->signal = signal;
    fence->blocker = blocker;
    pthread_mutex_unlock(&lock);
    rg_calls_together_begin();
    const CUresult signalled = put_fence(from_context, from, signal);
    const CUresult status = signalled == CUDA_SUCCESS ? put_fence(to_context, to, blocker) : signalled;
    rg_calls_together_end();
    unsigned over = 1; /* parts: the maker, and fences that will not be reached */
    if (signalled != CUDA_SUCCESS) {
        rg_helper_stream_give(helper);
        over += 1 + (!blocker ||
                     rg_transfer_cancel(blocker)); /* else its session has ended, and it is being "reached" */
    } else if (status != CUDA_SUCCESS) {
        over++;
    }
    bool last = false;
    pthread_mutex_lock(&lock);
    while (over--)
        last = is_over(fence);
    pthread_mutex_unlock(&lock);
    if (last)
        free(fence);
    return status;
}

static CUresult put_wait(uint64_t context, CUstream stream, uint64_t number, unsigned peer)
{
    RG_TRY(rg_context_scope_enter(context));
    const CUresult status = rg_op_rgPeerWait(stream, number, peer);
    rg_probe_exchanged(&(struct rg_probe_exchange){.key = number, .ways = 1});
    rg_context_scope_leave();
    return status;
}

static CUresult put_signal(uint64_t context, CUstream stream, uint64_t number, unsigned peer)
{
    RG_TRY(rg_context_scope_enter(context));
    const CUresult status = rg_op_rgPeerSignal(stream, number, peer);
    rg_probe_exchanged(&(struct rg_probe_exchange){.key = number});
    rg_context_scope_leave();
    return status;
}

/* If only the wait could be put there it would last for ever: then a session has ended, or there was no memory, and the other ends, too. */
static CUresult put_direct(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
                           struct rg_helper_stream *helper)
{
    struct rg_session *const signals = rg_home_session(from_context), *const waits =
                                                                          rg_home_session(to_context);
    const uint64_t number = rg_peer_transfer_number();
    rg_calls_together_begin();
    CUresult status = put_wait(to_context, to, number, signals->number);
    if (status == CUDA_SUCCESS) {
        status = put_signal(from_context, from, number, waits->number);
        if (status != CUDA_SUCCESS)
            rg_session_end(waits, status, "the other half of a wait between servers is missing");
    }
    if (helper) {
        const CUresult given = rg_helper_stream_give_behind(helper);
        status = status == CUDA_SUCCESS ? given : status;
    }
    rg_calls_together_end();
    return status;
}

static bool knows(const struct rg_session *session)
{
    return session->op_numbers[RG_OP_rgPeerSignal] && session->op_numbers[RG_OP_rgPeerWait];
}

CUresult rg_cross_fence_put(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
                            struct rg_helper_stream *helper)
{
    struct rg_session *const signals = rg_home_session(from_context), *const waits =
                                                                          rg_home_session(to_context);
    /*
     * What the signalling stream has sent to the host before is there when the other goes on: workers that tell each other by
     * themselves are faster than the data, and the other stream's end, or what it reads of the host, would show memory as it was.
     */
    const bool direct =
        knows(signals) && knows(waits) && rg_peer_link(signals, waits) && !rg_transfers_read_of(signals);
    atomic_fetch_add(direct ? &waits->stats.peer_waits_direct : &waits->stats.peer_waits_by_client, 1);
    return direct ? put_direct(from_context, from, to_context, to, helper)
                  : put_by_client(from_context, from, to_context, to, helper);
}

CUresult rg_cross_fence_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    const uint64_t context = rg_home_context(rg_home_of(RG_KIND_EVENT, (uint64_t)event));
    struct rg_helper_stream *helper;
    RG_TRY(rg_helper_stream_take(context, NULL, &helper));
    CUresult status = rg_context_scope_enter(context);
    if (status == CUDA_SUCCESS) {
        status = rg_op_cuStreamWaitEvent(helper->stream, event, flags);
        rg_context_scope_leave();
    }
    if (status != CUDA_SUCCESS) {
        rg_helper_stream_give(helper);
        return status;
    }
    return rg_cross_fence_put(context, helper->stream, rg_home_context_of_stream(stream),
                              rg_effective_stream(stream), helper);
}
