/* out_of_order.c - see out_of_order.h. */
#include "server/core/out_of_order.h"

#include "common/sync/scoped_lock.h"
#include "server/core/leader_followers.h"

#include <stdlib.h>

/* An object that the dispatcher has not entered yet. */
struct rg_pending_object {
    struct rg_pending_object *next;
    uint64_t handle, context;
    void *object;
    const void *owner;
};

void rg_out_of_order_init(struct rg_out_of_order *out_of_order)
{
    pthread_mutex_init(&out_of_order->lock, NULL);
    pthread_cond_init(&out_of_order->changed, NULL);
    out_of_order->last_made = &out_of_order->made;
}

/* The oldest of what has been made, or NULL; the lock is held. */
static struct rg_pending_object *take_made(struct rg_out_of_order *out_of_order)
{
    struct rg_pending_object *made = out_of_order->made;
    if (made)
        out_of_order->made = made->next;
    if (!out_of_order->made) {
        out_of_order->last_made = &out_of_order->made;
        atomic_store_explicit(&out_of_order->any_made, false, memory_order_relaxed);
    }
    return made;
}

void rg_out_of_order_fini(struct rg_worker *worker)
{
    for (struct rg_pending_object *made; (made = take_made(&worker->out_of_order)) != NULL; free(made))
        (void)!rg_objects_add(&worker->objects, made->handle, made->object, made->context);
    pthread_cond_destroy(&worker->out_of_order.changed);
    pthread_mutex_destroy(&worker->out_of_order.lock);
}

void rg_request_go_out_of_order(struct rg_request *request)
{
    struct rg_executor *executor = rg_executor_of(request);
    struct rg_out_of_order *out_of_order = &request->worker->out_of_order;
    if (!request->awaited || !executor->roles)
        return;
    executor->out_of_order = true;
    pthread_mutex_lock(&out_of_order->lock); /* before the next dispatcher may look */
    executor->next_out_of_order = out_of_order->first;
    out_of_order->first = executor;
    pthread_mutex_unlock(&out_of_order->lock);
    if (!rg_request_detach(request)) { /* others wait, but not for long: it needs nothing of theirs */
        request->result = CUDA_SUCCESS;
        rg_out_of_order_end(executor);
    }
}

void rg_out_of_order_end(struct rg_executor *executor)
{
    struct rg_out_of_order *out_of_order = &executor->worker->out_of_order;
    if (!executor->out_of_order)
        return;
    executor->out_of_order = false;
    RG_SCOPED_LOCK(&out_of_order->lock);
    struct rg_executor **link = &out_of_order->first;
    while (*link != executor)
        link = &(*link)->next_out_of_order;
    *link = executor->next_out_of_order;
    pthread_cond_broadcast(&out_of_order->changed);
}

/* The lock is held. */
static void note(struct rg_request *request, uint64_t handle, void *object, const void *owner)
{
    struct rg_out_of_order *out_of_order = &request->worker->out_of_order;
    struct rg_pending_object *made = malloc(sizeof *made);
    if (!made) {
        rg_worker_end(request->worker, 1, "the worker is out of memory");
        return;
    }
    *made = (struct rg_pending_object){
        .handle = handle, .context = request->thread->context, .object = object, .owner = owner};
    *out_of_order->last_made = made;
    out_of_order->last_made = &made->next;
    atomic_store_explicit(&out_of_order->any_made, true, memory_order_release);
}

void rg_out_of_order_note(struct rg_request *request, uint64_t handle, void *object, const void *owner)
{
    RG_SCOPED_LOCK(&request->worker->out_of_order.lock);
    note(request, handle, object, owner);
}

/* The lock is held. */
static void enter_all(struct rg_request *request)
{
    for (struct rg_pending_object *made; (made = take_made(&request->worker->out_of_order)) != NULL;
         free(made))
        rg_request_add_object(request, made->handle, made->object, made->context, made->owner);
}

void rg_out_of_order_register(struct rg_request *request)
{
    RG_SCOPED_LOCK(&request->worker->out_of_order.lock);
    enter_all(request);
}

uint64_t rg_out_of_order_find(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object,
                              const void *owner)
{
    struct rg_out_of_order *out_of_order = &request->worker->out_of_order;
    const bool detached = !rg_executor_of(request)->roles;
    RG_SCOPED_LOCK(&out_of_order->lock);
    if (!detached)
        enter_all(request);
    uint64_t handle = rg_objects_handle(&request->worker->objects, kind, object);
    for (const struct rg_pending_object *made = out_of_order->made; made && !handle; made = made->next)
        if (made->object == object && rg_handle_kind(made->handle) == (unsigned)kind)
            handle = made->handle;
    if (!handle && detached)
        note(request, proposed, object, owner);
    else if (!handle)
        rg_request_new_of(request, kind, proposed, object, owner);
    return handle ? handle : proposed;
}

static bool uses(const struct rg_executor *executor, const void *object, uint64_t context)
{
    const struct rg_request *request = &executor->request;
    return (object && request->uses == object) ||
           (context && (request->thread->context == context || request->uses_context == context));
}

void rg_out_of_order_settle(struct rg_request *request, const void *object, uint64_t context)
{
    struct rg_out_of_order *out_of_order = &request->worker->out_of_order;
    RG_SCOPED_LOCK(&out_of_order->lock);
    for (const struct rg_executor *executor = out_of_order->first; executor;) {
        if (uses(executor, object, context)) {
            pthread_cond_wait(&out_of_order->changed, &out_of_order->lock);
            executor = out_of_order->first;
        } else {
            executor = executor->next_out_of_order;
        }
    }
    enter_all(request);
}
