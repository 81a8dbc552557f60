/* helper_stream.c - see helper_stream.h. */
#include "client/multiserver/helper_stream.h"

#include "client/core/context_scope.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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
    const uint64_t of_context = of ? rg_home_context_of_stream(of) : 0;
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
    CUresult status = stream ? rg_context_scope_enter(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        status = rg_op_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        rg_context_scope_leave();
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

/* A helper, and the fence behind which it is free for others. */
struct given_behind {
    struct rg_session *session;
    struct rg_helper_stream *helper;
    uint64_t fence;
};

static void is_done(void *user, bool alive)
{
    struct given_behind *given = user;
    rg_helper_stream_give(given->helper);
    if (alive)
        rg_fence_release(given->session, given->fence);
    free(given);
}

CUresult rg_helper_stream_give_behind(struct rg_helper_stream *helper)
{
    struct rg_session *session = rg_home_session(helper->context);
    struct given_behind *given = malloc(sizeof *given);
    if (given)
        *given = (struct given_behind){.session = session, .helper = helper};
    const uint64_t fence = given ? rg_fence_create(session, is_done, given) : 0;
    if (!fence) {
        free(given);
        rg_helper_stream_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    given->fence = fence; /* before anybody can have reached it */
    CUresult status = rg_context_scope_enter(helper->context);
    if (status == CUDA_SUCCESS) {
        status = rg_op_rgHostCall(helper->stream, fence, 0);
        rg_context_scope_leave();
    }
    if (status != CUDA_SUCCESS && rg_transfer_cancel(fence))
        is_done(given, false);
    return status;
}

void rg_helper_streams_context_ended(uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
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
}
