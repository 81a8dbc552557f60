/*
 * threads.c - threads that are used again: to make one, and to end it, takes the address sanitizer longer than most inputs take. Linked in
 * the place of pthread_create, pthread_join and pthread_detach (rg_fuzzer … THREADS). None has a name, as each would be a file to write.
 *
 * A thread that is joined, or detached and done, waits for the next job. What it has of its own (thread-local variables) stays; no code
 * here ends a thread otherwise than by returning. Any thread.
 */
#include "common/sync/scoped_lock.h"
#include "tests/check.h"
#include "tests/fuzz/waits.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct worker {
    struct worker *next; /* of all */
    pthread_t thread;
    pthread_cond_t changed;
    void *(*run)(void *); /* NULL: it waits for a job */
    void *argument, *result;
    bool done, detached;
    bool counts; /* waits.h */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct worker *workers;

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_detach(pthread_t thread);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_detach(pthread_t thread);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);

/* The lock is held. */
static void rest(struct worker *worker)
{
    worker->run = NULL;
    worker->done = worker->detached = worker->counts = false;
}

/* A thread's job is done: who waits for its end runs before it is said that this one does not. The lock is held, and given up for that. */
static void finish(struct worker *worker, void *result)
{
    const bool counts = worker->counts;
    worker->result = result;
    worker->done = true;
    if (worker->detached)
        rest(worker);
    pthread_cond_broadcast(&worker->changed);
    if (!counts)
        return;
    pthread_mutex_unlock(&lock);
    fuzz_waits_count(false);
    fuzz_waits_leave();
    pthread_mutex_lock(&lock);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!worker->run || worker->done)
            pthread_cond_wait(&worker->changed, &lock);
        void *(*run)(void *) = worker->run, *given = worker->argument;
        if (worker->counts)
            fuzz_waits_count(true);
        pthread_mutex_unlock(&lock);
        void *result = run(given);
        pthread_mutex_lock(&lock);
        finish(worker, result);
    }
    return NULL;
}

/* One that waits, or a new one. The lock is held. NULL: there can be no more. */
static struct worker *find_free(void)
{
    struct worker *worker = workers;
    while (worker && worker->run)
        worker = worker->next;
    if (worker || !(worker = calloc(1, sizeof *worker)))
        return worker;
    pthread_cond_init(&worker->changed, NULL);
    if (__real_pthread_create(&worker->thread, NULL, work, worker) != 0) {
        free(worker);
        return NULL;
    }
    CHECK(__real_pthread_detach(worker->thread) == 0);
    worker->next = workers;
    workers = worker;
    return worker;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    RG_SCOPED_LOCK(&lock);
    struct worker *worker = find_free();
    if (!worker)
        return __real_pthread_create(out, attributes, run, argument);
    worker->run = run;
    worker->argument = argument;
    worker->counts = fuzz_waits_counts && fuzz_waits_counts();
    if (worker->counts)
        fuzz_waits_enter();
    *out = worker->thread;
    pthread_cond_broadcast(&worker->changed);
    return 0;
}

/* The lock is held. */
static struct worker *worker_of(pthread_t thread)
{
    struct worker *worker = workers;
    while (worker && !pthread_equal(worker->thread, thread))
        worker = worker->next;
    return worker;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    pthread_mutex_lock(&lock);
    struct worker *worker = worker_of(thread);
    while (worker && !worker->done)
        pthread_cond_wait(&worker->changed, &lock);
    if (worker && result)
        *result = worker->result;
    if (worker)
        rest(worker);
    pthread_mutex_unlock(&lock);
    return worker ? 0 : __real_pthread_join(thread, result);
}

int __wrap_pthread_detach(pthread_t thread)
{
    RG_SCOPED_LOCK(&lock);
    struct worker *worker = worker_of(thread);
    if (!worker)
        return __real_pthread_detach(thread);
    worker->detached = true;
    if (worker->done)
        rest(worker);
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
    return 0;
}
