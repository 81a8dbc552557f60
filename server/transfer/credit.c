/* credit.c - the list of buffers that hold a client's data. See credit.h. */
#include "server/transfer/credit.h"

#include "generated/server/driver.h"
#include "generated/server/execute.h"

/* Takes the buffer out of the list: its room is free. The staging lock is held. */
void rg_credit_release(struct rg_worker *worker, struct rg_staging_buffer *buffer)
{
    struct rg_credit *credit = &worker->credit;
    if (!buffer->credit)
        return;
    *(buffer->earlier ? &buffer->earlier->later : &credit->first) = buffer->later;
    *(buffer->later ? &buffer->later->earlier : &credit->last) = buffer->earlier;
    credit->freed += buffer->credit;
    buffer->credit = 0;
    buffer->earlier = buffer->later = NULL;
}

/* The staging lock is held. */
static void hold(struct rg_worker *worker, struct rg_staging_buffer *buffer, uint64_t size)
{
    struct rg_credit *credit = &worker->credit;
    buffer->credit = size;
    buffer->earlier = credit->last;
    buffer->later = NULL;
    *(credit->last ? &credit->last->later : &credit->first) = buffer;
    credit->last = buffer;
}

/* Finds out which buffers are free again. The staging lock is held. */
static void look(struct rg_worker *worker)
{
    struct rg_credit *credit = &worker->credit;
    credit->looked = credit->taken;
    for (struct rg_staging_buffer *buffer = credit->first, *next; buffer; buffer = next) {
        next = buffer->later;
        if (buffer->taken ||
            (buffer->pending && rg_driver.cuEventQuery(buffer->ready) == CUDA_ERROR_NOT_READY))
            continue;
        buffer->pending = false; /* or its context has failed, and nothing will read it any more */
        rg_credit_release(worker, buffer);
    }
}

/* Waits until the device has taken what came first. The staging lock is held, and released meanwhile. */
static void wait_for_first(struct rg_worker *worker)
{
    struct rg_staging_buffer *first = worker->credit.first;
    first->taken = true;
    pthread_mutex_unlock(&worker->staging_lock);
    (void)rg_driver.cuEventSynchronize(first->ready);
    pthread_mutex_lock(&worker->staging_lock);
    first->taken = first->pending = false;
    rg_credit_release(worker, first);
}

CUresult rg_credit_take_buffer(struct rg_worker *worker, struct rg_worker_context *context, size_t brought,
                               size_t size, struct rg_staging_buffer **out)
{
    struct rg_credit *credit = &worker->credit;
    const uint64_t needed = rg_bulk_credit_of(brought);
    pthread_mutex_lock(&worker->staging_lock);
    credit->taken += needed;
    if (credit->taken - credit->freed > RG_BULK_CREDIT)
        look(worker);
    while (credit->taken - credit->freed > RG_BULK_CREDIT && credit->first)
        wait_for_first(worker);
    const bool large = context->staging_bytes > RG_STAGING_KEPT;
    pthread_mutex_unlock(&worker->staging_lock);
    if (large && rg_context_idle(worker, context))
        rg_staging_shrink(worker, context);
    CUresult result = rg_staging_take(worker, context, size, out);
    pthread_mutex_lock(&worker->staging_lock);
    if (result == CUDA_SUCCESS)
        hold(worker, *out, needed);
    else
        credit->freed += needed;
    pthread_mutex_unlock(&worker->staging_lock);
    return result;
}

static void tell(struct rg_worker *worker, uint64_t least, uint64_t look_after)
{
    struct rg_credit *credit = &worker->credit;
    if (!credit->every) /* it has not asked to be told */
        return;
    pthread_mutex_lock(&worker->staging_lock);
    if (credit->taken - credit->told >= least && credit->taken - credit->looked >= look_after)
        look(worker);
    const uint64_t freed = credit->freed;
    const bool enough = freed - credit->told >= least;
    if (enough)
        credit->told = freed;
    pthread_mutex_unlock(&worker->staging_lock);
    struct rg_notice notice = {.type = RG_NOTICE_CREDIT, .arg = {freed, 0, 0}};
    if (enough)
        (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

void rg_credit_executed(struct rg_worker *worker, uint64_t taken, size_t size)
{
    struct rg_credit *credit = &worker->credit;
    if (size && credit->taken == taken) {
        pthread_mutex_lock(&worker->staging_lock);
        credit->taken += rg_bulk_credit_of(size);
        credit->freed += rg_bulk_credit_of(size);
        pthread_mutex_unlock(&worker->staging_lock);
    }
    tell(worker, credit->every, credit->every / 4);
}

void rg_credit_report(struct rg_worker *worker)
{
    if (worker->credit.taken - worker->credit.told > RG_BULK_CREDIT / 2) /* or it has room */
        tell(worker, 1, 0);
}

CUresult rg_execute_rgRoomTell(struct rg_request *request, unsigned long long every)
{
    request->worker->credit.every = every ? every : 1;
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgRoomAsk(struct rg_request *request, unsigned long long *freed)
{
    struct rg_credit *credit = &request->worker->credit;
    pthread_mutex_lock(&request->worker->staging_lock);
    look(request->worker);
    *freed = credit->told = credit->freed;
    pthread_mutex_unlock(&request->worker->staging_lock);
    return CUDA_SUCCESS;
}
