/*
 * cross_fence.c - see cross_fence.h.
 *
 * Threads: callers, and readers, which call `reached` and must not be held up. The lock guards the fences'
 * states; it is a leaf.
 */
#include "client/multiserver/cross_fence.h"

#include "client/core/call.h"
#include "client/core/home.h"
#include "client/multiserver/context_scope.h"
#include "client/multiserver/helper_stream.h"
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

CUresult rg_cross_fence_put(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
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
