/*
 * thread.c - what is kept of threads, by number; when a thread ends, another may get its number.
 */
#include "client/core/thread.h"

#include "client/core/home.h"
#include "client/core/hooks.h"
#include "client/core/session.h"
#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_thread **threads; /* by number; grows, entries stay */
static uint32_t n_threads, capacity;
static uint32_t *free_numbers;
static uint32_t n_free;
static pthread_key_t thread_end;
static bool
    ends_are_told; /* else the program has all keys that there are: what is kept of its threads stays */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct rg_thread *own;

/* The worker may forget what it knows of the thread, and another gets its number. */
static void end(struct rg_thread *thread)
{
    own = thread; /* the calls below find it */
    for (unsigned i = 0; i < rg_n_sessions; i++)
        if (thread->at[i].announced && rg_session_lives(&rg_sessions[i]))
            (void)rg_op_rgThreadEnd(rg_home_of_session(&rg_sessions[i]));
    own = NULL;
}

static void free_number(struct rg_thread *thread)
{
    memset(thread->at, 0, sizeof thread->at);
    thread->generation++;
    free_numbers[n_free++] = thread->number;
}

static void thread_end_of(void *pointer)
{
    struct rg_thread *thread = pointer, *handler = thread->handler;
    own = thread; /* the calls below find it; the thread is about to end */
    thread->n_contexts = 0;
    thread->handler = NULL;
    const bool any =
        atomic_load(&rg_sessions_ended) == CUDA_SUCCESS; /* not in a forked child, where locks may be held */
    if (any)
        rg_hooks.thread_ends(thread);
    if (handler)
        end(handler);
    end(thread);
    if (any)
        rg_hooks.thread_ended(thread);
    RG_SCOPED_LOCK(&lock);
    if (handler)
        free_number(handler);
    free_number(thread);
}

static void make_key(void)
{
    ends_are_told = pthread_key_create(&thread_end, thread_end_of) == 0;
}

/* Room for one more thread; the lock is held. */
static bool grow(void)
{
    if (n_threads < capacity)
        return true;
    uint32_t more = capacity ? capacity * 2 : 64;
    struct rg_thread **bigger = realloc(threads, more * sizeof *bigger);
    if (!bigger)
        return false;
    threads = bigger;
    uint32_t *numbers = realloc(free_numbers, more * sizeof *numbers);
    if (!numbers)
        return false;
    free_numbers = numbers;
    capacity = more;
    return true;
}

static struct rg_thread *take_thread(void)
{
    if (n_free)
        return threads[free_numbers[--n_free]];
    if (n_threads == RG_CLIENT_THREADS_MAX || !grow())
        return NULL;
    struct rg_thread *thread = calloc(1, sizeof *thread);
    if (!thread)
        return NULL;
    pthread_cond_init(&thread->waiter.wake, NULL);
    thread->number = n_threads;
    thread->generation = 1;
    threads[n_threads++] = thread;
    return thread;
}

struct rg_thread *rg_thread_if_any(void)
{
    return own;
}

struct rg_thread *rg_thread_current(void)
{
    if (own)
        return own;
    pthread_once(&once, make_key);
    pthread_mutex_lock(&lock);
    struct rg_thread *thread = take_thread();
    pthread_mutex_unlock(&lock);
    if (thread && ends_are_told)
        (void)pthread_setspecific(thread_end, thread);
    own = thread;
    return own;
}

struct rg_thread_inside rg_thread_enter(const struct rg_conn *awaited)
{
    struct rg_thread *thread = own;
    if (!thread)
        return (struct rg_thread_inside){0};
    const struct rg_thread_inside before = {thread, thread->in_transport, thread->awaited};
    thread->awaited = awaited;
    thread->in_transport = true;
    return before;
}

struct rg_thread_inside rg_thread_step_out(void)
{
    const struct rg_thread_inside before = rg_thread_enter(NULL);
    if (before.thread)
        before.thread->in_transport = false;
    return before;
}

void rg_thread_leave(const struct rg_thread_inside *inside)
{
    if (!inside->thread)
        return;
    inside->thread->in_transport = inside->in_transport;
    inside->thread->awaited = inside->awaited;
}

bool rg_thread_rests_at(const struct rg_conn *conn)
{
    return own && own->in_transport && own->awaited == conn;
}

struct rg_thread *rg_thread_handler(struct rg_thread *interrupted)
{
    if (interrupted->in_transport && !(interrupted->awaited && rg_conn_rests(interrupted->awaited)))
        return NULL;
    if (!interrupted->waits)
        return interrupted; /* the part of ours that receives asks for something */
    if (!interrupted->handler) {
        pthread_mutex_lock(&lock);
        interrupted->handler = take_thread();
        pthread_mutex_unlock(&lock);
    }
    return interrupted->handler && !interrupted->handler->waits ? interrupted->handler : NULL;
}

/* Number in the low half, generation in the high half, never 0. */
uint32_t rg_thread_token(const struct rg_thread *thread)
{
    return (thread->generation % 0xffffu + 1) << 16 | thread->number;
}

struct rg_thread *rg_thread_of_token(uint32_t token)
{
    struct rg_thread *thread = NULL;
    RG_SCOPED_LOCK(&lock);
    if ((token & 0xffffu) < n_threads)
        thread = threads[token & 0xffffu];
    if (thread && rg_thread_token(thread) != token)
        thread = NULL;
    return thread;
}

uint64_t rg_context_owner(uint64_t context)
{
    const struct rg_shadow *shadow = context ? rg_handle_shadow(RG_KIND_CONTEXT, context) : NULL;
    return shadow && shadow->context.owner ? shadow->context.owner : context;
}

uint64_t rg_context_current_owner(void)
{
    return rg_context_owner(rg_context_current_handle());
}

uint64_t rg_context_current_handle(void)
{
    return own ? rg_thread_context(own) : 0;
}

bool rg_thread_push_context(struct rg_thread *thread, uint64_t context)
{
    if (thread->n_contexts == thread->capacity) {
        size_t more = thread->capacity ? thread->capacity * 2 : 8;
        uint64_t *bigger = realloc(thread->contexts, more * sizeof *bigger);
        if (!bigger)
            return false;
        thread->contexts = bigger;
        thread->capacity = more;
    }
    thread->contexts[thread->n_contexts++] = context;
    return true;
}

bool rg_thread_set_context(struct rg_thread *thread, uint64_t context)
{
    if (thread->n_contexts)
        thread->n_contexts--;
    return context == 0 || rg_thread_push_context(thread, context);
}
