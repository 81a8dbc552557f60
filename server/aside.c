/* aside.c - see aside.h. */
#include "server/aside.h"

#include "server/roles.h"

#include <stdlib.h>

/* An object that the dispatcher has not entered yet. */
struct rg_made {
    struct rg_made *next;
    uint64_t handle, context;
    void *object;
    const void *owner;
};

void rg_aside_init(struct rg_aside *aside)
{
    pthread_mutex_init(&aside->lock, NULL);
    pthread_cond_init(&aside->changed, NULL);
    aside->last_made = &aside->made;
}

/* The oldest of what has been made, or NULL; the lock is held. */
static struct rg_made *take_made(struct rg_aside *aside)
{
    struct rg_made *made = aside->made;
    if (made)
        aside->made = made->next;
    if (!aside->made) {
        aside->last_made = &aside->made;
        atomic_store_explicit(&aside->any_made, false, memory_order_relaxed);
    }
    return made;
}

void rg_aside_fini(struct rg_worker *worker)
{
    for (struct rg_made *made; (made = take_made(&worker->aside)) != NULL; free(made))
        (void)!rg_objects_add(&worker->objects, made->handle, made->object, made->context);
    pthread_cond_destroy(&worker->aside.changed);
    pthread_mutex_destroy(&worker->aside.lock);
}

void rg_job_stand_aside(struct rg_job *job)
{
    struct rg_thread *thread = rg_thread_of(job);
    struct rg_aside *aside = &job->worker->aside;
    if (!job->awaited || !thread->roles)
        return;
    thread->aside = true;
    pthread_mutex_lock(&aside->lock); /* before the next dispatcher may look */
    thread->next_aside = aside->first;
    aside->first = thread;
    pthread_mutex_unlock(&aside->lock);
    if (!rg_job_hand_over(job)) { /* others wait, but not for long: it needs nothing of theirs */
        job->result = CUDA_SUCCESS;
        rg_aside_done(thread);
    }
}

void rg_aside_done(struct rg_thread *thread)
{
    struct rg_aside *aside = &thread->worker->aside;
    if (!thread->aside)
        return;
    thread->aside = false;
    pthread_mutex_lock(&aside->lock);
    struct rg_thread **link = &aside->first;
    while (*link != thread)
        link = &(*link)->next_aside;
    *link = thread->next_aside;
    pthread_cond_broadcast(&aside->changed);
    pthread_mutex_unlock(&aside->lock);
}

/* The lock is held. */
static void note(struct rg_job *job, uint64_t handle, void *object)
{
    struct rg_aside *aside = &job->worker->aside;
    struct rg_made *made = malloc(sizeof *made);
    if (!made) {
        rg_worker_end(job->worker, 1, "the worker is out of memory");
        return;
    }
    *made = (struct rg_made){
        .handle = handle, .context = job->lane->context, .object = object, .owner = job->owner};
    *aside->last_made = made;
    aside->last_made = &made->next;
    atomic_store_explicit(&aside->any_made, true, memory_order_release);
}

void rg_aside_made(struct rg_job *job, uint64_t handle, void *object)
{
    pthread_mutex_lock(&job->worker->aside.lock);
    note(job, handle, object);
    pthread_mutex_unlock(&job->worker->aside.lock);
}

/* The lock is held. */
static void enter_all(struct rg_job *job)
{
    for (struct rg_made *made; (made = take_made(&job->worker->aside)) != NULL; free(made))
        rg_job_enter_object(job, made->handle, made->object, made->context, made->owner);
}

void rg_aside_enter(struct rg_job *job)
{
    pthread_mutex_lock(&job->worker->aside.lock);
    enter_all(job);
    pthread_mutex_unlock(&job->worker->aside.lock);
}

uint64_t rg_aside_found(struct rg_job *job, enum rg_kind kind, uint64_t proposed, void *object)
{
    struct rg_aside *aside = &job->worker->aside;
    const bool apart = !rg_thread_of(job)->roles;
    pthread_mutex_lock(&aside->lock);
    if (!apart)
        enter_all(job);
    uint64_t handle = rg_objects_handle(&job->worker->objects, kind, object);
    for (const struct rg_made *made = aside->made; made && !handle; made = made->next)
        if (made->object == object && rg_handle_kind(made->handle) == (unsigned)kind)
            handle = made->handle;
    if (!handle && apart)
        note(job, proposed, object);
    else if (!handle)
        rg_job_new(job, kind, proposed, object);
    pthread_mutex_unlock(&aside->lock);
    return handle ? handle : proposed;
}

static bool uses(const struct rg_thread *thread, const void *object, uint64_t context)
{
    const struct rg_job *job = &thread->job;
    return (object && job->uses == object) ||
           (context && (job->lane->context == context || job->uses_context == context));
}

void rg_aside_settle(struct rg_job *job, const void *object, uint64_t context)
{
    struct rg_aside *aside = &job->worker->aside;
    pthread_mutex_lock(&aside->lock);
    for (const struct rg_thread *thread = aside->first; thread;) {
        if (uses(thread, object, context)) {
            pthread_cond_wait(&aside->changed, &aside->lock);
            thread = aside->first;
        } else {
            thread = thread->next_aside;
        }
    }
    enter_all(job);
    pthread_mutex_unlock(&aside->lock);
}
