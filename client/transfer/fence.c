/*
 * fence.c - places in streams. The worker says that a stream is there; what the stream waits for then is
 * answered by the sender thread. Without memory for that answer, the session ends: the stream would never go
 * on.
 */
#include "client/core/queue.h"
#include "client/core/session.h"
#include "client/transfer/answers.h"
#include "client/transfer/registry.h"
#include "client/transfer/transfer.h"

#include <stdlib.h>

struct fence {
    struct rg_transfer transfer;
    void (*reached)(void *user, bool alive);
    void *user;
};

static bool take_arrival(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size)
{
    struct fence *fence = (struct fence *)transfer;
    (void)bulk_size;
    void (*const reached)(void *, bool) = fence->reached;
    void *const user = fence->user;
    rg_registry_take(notice->id);
    pthread_mutex_unlock(&rg_registry_lock);
    rg_registry_end(transfer);
    reached(user, !notice->arg[1]);
    return true;
}

static void lost(struct rg_transfer *transfer)
{
    struct fence *fence = (struct fence *)transfer;
    fence->reached(fence->user, false);
}

static const struct rg_transfer_kind kind = {
    .notice = RG_NOTICE_HOST_CALL, .progress = take_arrival, .lost = lost};

uint64_t rg_fence_create(struct rg_session *session, void (*reached)(void *user, bool alive), void *user)
{
    struct fence *fence = rg_registry_new(session, &kind, sizeof *fence);
    if (!fence)
        return 0;
    fence->reached = reached;
    fence->user = user;
    return rg_registry_add(&fence->transfer);
}

void rg_fence_release(struct rg_session *session, uint64_t id)
{
    struct rg_answer_part *part = malloc(sizeof *part);
    if (!part) {
        rg_session_end(session, CUDA_ERROR_OUT_OF_MEMORY, "no memory to let a stream of %s go on",
                       session->server);
        return;
    }
    *part = (struct rg_answer_part){.session = session, .id = id, .release = true};
    pthread_mutex_lock(&rg_registry_lock);
    rg_answers_add(part);
    pthread_mutex_unlock(&rg_registry_lock);
    rg_queue_wake_sender(session);
}
