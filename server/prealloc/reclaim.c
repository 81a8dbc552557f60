/* reclaim.c - see reclaim.h. */
#include "server/prealloc/reclaim.h"

#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/core/leader_followers.h"
#include "server/prealloc/slabs.h"

#include <stdlib.h>

void rg_reclaim_init(struct rg_reclaim *reclaim)
{
    pthread_cond_init(&reclaim->answered, NULL);
}

void rg_reclaim_fini(struct rg_reclaim *reclaim)
{
    free(reclaim->blocks);
    pthread_cond_destroy(&reclaim->answered);
}

void rg_reclaim_wake(struct rg_prealloc *prealloc)
{
    RG_SCOPED_LOCK(&prealloc->lock);
    pthread_cond_broadcast(&prealloc->reclaim.answered);
}

CUresult rg_execute_rgMemMayReclaim(struct rg_request *request)
{
    rg_prealloc_of(request->worker)->reclaim.able = true;
    return CUDA_SUCCESS;
}

static bool any_ready(const struct rg_worker *worker)
{
    const struct rg_slab *slab = rg_prealloc_of(worker)->slabs;
    while (slab && !slab->n)
        slab = slab->next;
    return slab != NULL;
}

/* Frees a block that the client has given back; false: it had none such. */
static bool take_back(struct rg_worker *worker, const struct rg_prealloc_return *block)
{
    struct rg_slab *slab = *rg_slab_find(worker, block->slab_id);
    if (!rg_slab_take(slab, block->address))
        return false;
    rg_slab_free_block(worker, slab, block->address);
    return true;
}

bool rg_reclaim_ready(struct rg_request *request)
{
    struct rg_worker *worker = request->worker;
    struct rg_reclaim *reclaim = &rg_prealloc_of(worker)->reclaim;
    const bool ask = reclaim->able && any_ready(worker);
    if (!rg_executor_of(request)->roles || !(ask || rg_deferred_free_any(&rg_prealloc_of(worker)->frees)))
        return false;
    rg_request_separate_reader(request); /* answers have to be read */
    if (request->violated)
        return false;
    if (!ask) {
        (void)rg_deferred_free_wait(&rg_prealloc_of(worker)->frees, 0);
        return true;
    }
    atomic_fetch_add(&worker->answers_due, 1);
    pthread_mutex_lock(&rg_prealloc_of(worker)->lock);
    reclaim->due = true;
    const struct rg_notice notice = {.type = RG_NOTICE_RECLAIM, .id = ++reclaim->number};
    pthread_mutex_unlock(&rg_prealloc_of(worker)->lock);
    (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
    pthread_mutex_lock(&rg_prealloc_of(worker)->lock);
    while (reclaim->due && !rg_worker_over(worker))
        pthread_cond_wait(&reclaim->answered, &rg_prealloc_of(worker)->lock);
    reclaim->due = false;
    struct rg_prealloc_return *blocks = reclaim->blocks;
    const size_t n = reclaim->n;
    reclaim->blocks = NULL;
    reclaim->n = 0;
    pthread_mutex_unlock(&rg_prealloc_of(worker)->lock);
    atomic_fetch_sub(&worker->answers_due, 1);
    for (size_t i = 0; i < n && !request->violated; i++)
        if (!take_back(worker, &blocks[i]))
            rg_request_violation(request, "memory is given back that was not ready");
    free(blocks);
    const bool freed = rg_deferred_free_wait(&rg_prealloc_of(worker)->frees, 0);
    rg_debug(
        "session %llu: %s ran out of memory; %zu blocks that were ready are freed, and it is tried again",
        (unsigned long long)worker->session, rg_op_names[request->op], n);
    if (!request->violated && rg_request_make_current(request) != CUDA_SUCCESS)
        return false;
    return (n || freed) && !request->violated;
}

enum rg_answered rg_reclaim_answered(struct rg_worker *worker, const struct rg_message_header *header,
                                     const struct rg_answer *told, size_t bulk_size)
{
    (void)header;
    if (told->type != RG_ANSWER_RECLAIMED)
        return RG_ANSWERED_NOT_MINE;
    struct rg_reclaim *reclaim = &rg_prealloc_of(worker)->reclaim;
    const size_t n = bulk_size / sizeof(struct rg_prealloc_return);
    pthread_mutex_lock(&rg_prealloc_of(worker)->lock);
    const bool good = reclaim->due && told->id == reclaim->number &&
                      bulk_size % sizeof(struct rg_prealloc_return) == 0 &&
                      n <= RG_PREALLOC_SLABS_MAX * RG_PREALLOC_MAX;
    pthread_mutex_unlock(&rg_prealloc_of(worker)->lock);
    if (!good)
        return RG_ANSWERED_WRONG;
    struct rg_prealloc_return *blocks = bulk_size ? malloc(bulk_size) : NULL;
    const bool received =
        !bulk_size || (rg_conn_recv_bulk(worker->conn, blocks, bulk_size) == RG_OK && blocks != NULL);
    if (!received) {
        free(blocks);
        rg_worker_end(worker, 0, NULL);
        return RG_ANSWERED_GOOD;
    }
    pthread_mutex_lock(&rg_prealloc_of(worker)->lock);
    reclaim->blocks = blocks;
    reclaim->n = n;
    reclaim->due = false;
    pthread_cond_signal(&reclaim->answered);
    pthread_mutex_unlock(&rg_prealloc_of(worker)->lock);
    return RG_ANSWERED_GOOD;
}
