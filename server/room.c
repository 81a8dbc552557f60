/* room.c - the list of buffers that hold a client's data. See room.h. */
#include "server/room.h"

#include "generated/server/driver.h"
#include "generated/server/serve.h"

/* Takes the buffer out of the list: its room is free. The staging lock is held. */
void rg_room_forget(struct rg_worker *worker, struct rg_pinned *pinned)
{
    struct rg_room *room = &worker->room;
    if (!pinned->room)
        return;
    *(pinned->earlier ? &pinned->earlier->later : &room->first) = pinned->later;
    *(pinned->later ? &pinned->later->earlier : &room->last) = pinned->earlier;
    room->freed += pinned->room;
    pinned->room = 0;
    pinned->earlier = pinned->later = NULL;
}

/* The staging lock is held. */
static void hold(struct rg_worker *worker, struct rg_pinned *pinned, uint64_t size)
{
    struct rg_room *room = &worker->room;
    pinned->room = size;
    pinned->earlier = room->last;
    pinned->later = NULL;
    *(room->last ? &room->last->later : &room->first) = pinned;
    room->last = pinned;
}

/* Finds out which buffers are free again. The staging lock is held. */
static void look(struct rg_worker *worker)
{
    struct rg_room *room = &worker->room;
    room->looked = room->taken;
    for (struct rg_pinned *pinned = room->first, *next; pinned; pinned = next) {
        next = pinned->later;
        if (pinned->taken ||
            (pinned->pending && rg_driver.cuEventQuery(pinned->ready) == CUDA_ERROR_NOT_READY))
            continue;
        pinned->pending = false; /* or its context has failed, and nothing will read it any more */
        rg_room_forget(worker, pinned);
    }
}

/* Waits until the device has taken what came first. The staging lock is held, and released meanwhile. */
static void wait_for_first(struct rg_worker *worker)
{
    struct rg_pinned *first = worker->room.first;
    first->taken = true;
    pthread_mutex_unlock(&worker->staging_lock);
    (void)rg_driver.cuEventSynchronize(first->ready);
    pthread_mutex_lock(&worker->staging_lock);
    first->taken = first->pending = false;
    rg_room_forget(worker, first);
}

CUresult rg_room_take(struct rg_worker *worker, struct rg_context *context, size_t brought, size_t size,
                      struct rg_pinned **out)
{
    struct rg_room *room = &worker->room;
    const uint64_t needed = rg_bulk_credit_of(brought);
    pthread_mutex_lock(&worker->staging_lock);
    room->taken += needed;
    if (room->taken - room->freed > RG_BULK_CREDIT)
        look(worker);
    while (room->taken - room->freed > RG_BULK_CREDIT && room->first)
        wait_for_first(worker);
    const bool large = context->pinned_bytes > RG_STAGING_KEPT;
    pthread_mutex_unlock(&worker->staging_lock);
    if (large && rg_context_idle(worker, context))
        rg_staging_shrink(worker, context);
    CUresult result = rg_pinned_take(worker, context, size, out);
    pthread_mutex_lock(&worker->staging_lock);
    if (result == CUDA_SUCCESS)
        hold(worker, *out, needed);
    else
        room->freed += needed;
    pthread_mutex_unlock(&worker->staging_lock);
    return result;
}

static void tell(struct rg_worker *worker, uint64_t least, uint64_t look_after)
{
    struct rg_room *room = &worker->room;
    if (!room->every) /* it has not asked to be told */
        return;
    pthread_mutex_lock(&worker->staging_lock);
    if (room->taken - room->told >= least && room->taken - room->looked >= look_after)
        look(worker);
    const uint64_t freed = room->freed;
    const bool enough = freed - room->told >= least;
    if (enough)
        room->told = freed;
    pthread_mutex_unlock(&worker->staging_lock);
    struct rg_notice notice = {.type = RG_NOTICE_CREDIT, .arg = {freed, 0, 0}};
    if (enough)
        (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
}

void rg_room_executed(struct rg_worker *worker, uint64_t taken, size_t size)
{
    struct rg_room *room = &worker->room;
    if (size && room->taken == taken) {
        pthread_mutex_lock(&worker->staging_lock);
        room->taken += rg_bulk_credit_of(size);
        room->freed += rg_bulk_credit_of(size);
        pthread_mutex_unlock(&worker->staging_lock);
    }
    tell(worker, room->every, room->every / 4);
}

void rg_room_tell_now(struct rg_worker *worker)
{
    if (worker->room.taken - worker->room.told > RG_BULK_CREDIT / 2) /* or it has room */
        tell(worker, 1, 0);
}

CUresult rg_serve_rgRoomTell(struct rg_job *job, unsigned long long every)
{
    job->worker->room.every = every ? every : 1;
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgRoomAsk(struct rg_job *job, unsigned long long *freed)
{
    struct rg_room *room = &job->worker->room;
    pthread_mutex_lock(&job->worker->staging_lock);
    look(job->worker);
    *freed = room->told = room->freed;
    pthread_mutex_unlock(&job->worker->staging_lock);
    return CUDA_SUCCESS;
}
