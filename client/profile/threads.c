/*
 * threads.c - what each thread counts, and its events.
 *
 * A thread has rows and a chunk of events of its own, which it writes without a lock; they outlive it, and
 * the next new thread goes on with them. `lock` guards the two lists.
 */
#include "client/profile/threads.h"

#include "client/core/probe.h"
#include "client/profile/sites.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct thread {
    struct thread *next;
    bool taken; /* by a living thread */
    int number; /* the system's */
    /* the call that runs; RG_PROFILE_OWN: none */
    int api;
    uint64_t entered;
    uint64_t left; /* when the last one ended; 0: none yet */
    uint64_t waited;
    uint32_t round_trips;
    uint64_t sent, received;      /* since its last event */
    struct rg_profile_event poll; /* goes on while nothing else happens; start 0: none */
    bool polled;                  /* the call that runs is part of it */
    struct rg_profile_chunk *chunk;
    struct rg_profile_row rows[RG_API_COUNT + 1];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread *threads;
static struct rg_profile_chunk *first_chunk, *last_chunk;
static pthread_key_t thread_end;
static __thread struct thread *own;

static bool tracing;             /* every record is an event */
static _Atomic int64_t capacity; /* events that may still be kept */
static _Atomic uint64_t dropped;
static uint64_t started;
static pid_t owner;

static void end_poll(struct thread *thread);
static void end_thread(void *pointer);

bool rg_profile_threads_start(int64_t max_events, bool trace)
{
    atomic_store(&capacity, max_events);
    tracing = trace;
    started = rg_now_ns();
    owner = getpid();
    return pthread_key_create(&thread_end, end_thread) == 0;
}

static void close_chunk(struct thread *thread)
{
    if (thread->chunk)
        atomic_store_explicit(&thread->chunk->closed, true, memory_order_release);
    thread->chunk = NULL;
}

static void end_thread(void *pointer)
{
    struct thread *thread = pointer;
    own = NULL;
    if (!rg_probe)
        return; /* a forked child: the lock may be held by a thread that it does not have */
    if (thread->poll.start)
        end_poll(thread);
    RG_SCOPED_LOCK(&lock);
    close_chunk(thread);
    thread->taken = false;
}

static struct thread *find_thread(void)
{
    pthread_mutex_lock(&lock);
    struct thread *thread = threads;
    while (thread && thread->taken)
        thread = thread->next;
    if (!thread && (thread = calloc(1, sizeof *thread))) {
        thread->next = threads;
        threads = thread;
    }
    if (thread) {
        thread->taken = true;
        thread->number = (int)syscall(SYS_gettid);
        thread->api = RG_PROFILE_OWN;
        /* The program's own time starts with the profile; what other threads did before their first call,
         * nobody knows. */
        thread->left = thread->number == owner ? started : 0;
    }
    pthread_mutex_unlock(&lock);
    if (thread && pthread_setspecific(thread_end, thread) == 0)
        own = thread;
    return own;
}

static inline struct thread *this_thread(void)
{
    return own ? own : find_thread();
}

static inline void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n, memory_order_relaxed);
}

/* A chunk with room for one event, or NULL if the timeline is full. */
static struct rg_profile_chunk *chunk_of(struct thread *thread)
{
    struct rg_profile_chunk *chunk = thread->chunk;
    if (chunk && atomic_load_explicit(&chunk->n, memory_order_relaxed) < RG_PROFILE_CHUNK)
        return chunk;
    close_chunk(thread);
    if (atomic_load_explicit(&capacity, memory_order_relaxed) <= 0 || !(chunk = calloc(1, sizeof *chunk)))
        return NULL;
    chunk->thread = thread->number;
    RG_SCOPED_LOCK(&lock);
    if (last_chunk)
        atomic_store(&last_chunk->next, chunk);
    else
        first_chunk = chunk;
    last_chunk = chunk;
    return thread->chunk = chunk;
}

/* Its bytes are its own. */
static void keep_event(struct thread *thread, const struct rg_profile_event *event)
{
    if (thread->poll.start)
        end_poll(thread);
    struct rg_profile_chunk *chunk = chunk_of(thread);
    if (!chunk || atomic_fetch_sub_explicit(&capacity, 1, memory_order_relaxed) <= 0) {
        atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
        return;
    }
    unsigned n = atomic_load_explicit(&chunk->n, memory_order_relaxed);
    chunk->events[n] = *event;
    atomic_store_explicit(&chunk->n, n + 1, memory_order_release);
}

/* Its bytes are those since the one before. */
static void add_event(struct thread *thread, struct rg_profile_event event)
{
    event.sent = thread->sent;
    event.received = thread->received;
    thread->sent = thread->received = 0;
    keep_event(thread, &event);
}

/* Its event is due: something else happens, or what was polled for is done. */
static void end_poll(struct thread *thread)
{
    const struct rg_profile_event poll = thread->poll;
    thread->poll.start = 0;
    add_event(thread, poll);
}

/* Queries in a row are one event: a program that spins on one would fill any trace. */
void rg_profile_count_polled(unsigned session, uint64_t handle, bool of_event, bool done)
{
    struct thread *thread = this_thread();
    if (!thread)
        return;
    const uint64_t now = rg_now_ns();
    if (thread->poll.start && (thread->poll.seq != handle || thread->poll.api != of_event))
        end_poll(thread);
    if (!thread->poll.start)
        thread->poll = (struct rg_profile_event){
            .start = now, .api = of_event, .kind = RG_PROFILE_POLL, .session = session, .seq = handle};
    thread->poll.end = now;
    thread->poll.round_trips = done;
    thread->polled = true;
    if (done)
        end_poll(thread);
}

int rg_profile_enter(int api)
{
    struct thread *thread = rg_probe ? this_thread() : NULL;
    if (!thread)
        return api;
    if (thread->api != RG_PROFILE_OWN)
        return thread->api;
    struct rg_profile_row *row = &thread->rows[api];
    thread->api = api;
    thread->waited = 0;
    thread->round_trips = 0;
    thread->polled = false;
    thread->entered = rg_now_ns();
    if (thread->left)
        add(&row->before, thread->entered - thread->left);
    return RG_PROFILE_OWN;
}

void rg_profile_leave(int outer)
{
    struct thread *thread = own;
    if (!rg_probe || !thread || outer != RG_PROFILE_OWN)
        return;
    const int api = thread->api;
    struct rg_profile_row *row = &thread->rows[api];
    thread->left = rg_now_ns();
    add(&row->inside, thread->left - thread->entered);
    add(&row->calls, 1);
    if (!thread->polled)
        add_event(thread, (struct rg_profile_event){.start = thread->entered,
                                                    .end = thread->left,
                                                    .api = (uint32_t)api,
                                                    .round_trips = thread->round_trips,
                                                    .kind = RG_PROFILE_CALL});
    if (thread->waited && !tracing)
        rg_profile_sites_wait(api, thread->waited, thread->round_trips);
    thread->api = RG_PROFILE_OWN;
}

void rg_profile_count_bytes(uint64_t sent, uint64_t received)
{
    struct thread *thread = this_thread();
    if (!thread)
        return;
    struct rg_profile_row *row = &thread->rows[thread->api];
    add(&row->sent, sent);
    add(&row->received, received);
    thread->sent += sent;
    thread->received += received;
}

void rg_profile_count_record(unsigned session, unsigned op, uint64_t seq, uint32_t size)
{
    struct thread *thread = this_thread();
    if (!thread)
        return;
    add(&thread->rows[thread->api].sent, size);
    if (tracing)
        add_event(thread, (struct rg_profile_event){.start = rg_now_ns(),
                                                    .api = op,
                                                    .kind = RG_PROFILE_POST,
                                                    .session = session,
                                                    .size = size,
                                                    .seq = seq});
}

void rg_profile_count_exchange(const struct rg_probe_exchange *exchange)
{
    struct thread *thread = this_thread();
    if (thread)
        keep_event(thread, &(struct rg_profile_event){.start = rg_now_ns(),
                                                      .kind = RG_PROFILE_EXCHANGE,
                                                      .round_trips = exchange->ways,
                                                      .size = exchange->turns,
                                                      .seq = exchange->key,
                                                      .sent = exchange->sent,
                                                      .received = exchange->received});
}

void rg_profile_count_saved(unsigned optimisation)
{
    struct thread *thread = this_thread();
    if (thread)
        add_event(thread, (struct rg_profile_event){
                              .start = rg_now_ns(), .api = optimisation, .kind = RG_PROFILE_SAVED});
}

void rg_profile_count_wait(uint64_t since, unsigned round_trips)
{
    struct thread *thread = this_thread();
    if (!thread)
        return;
    const uint64_t now = rg_now_ns();
    struct rg_profile_row *row = &thread->rows[thread->api];
    add(&row->waited, now - since);
    add(&row->round_trips, round_trips);
    if (thread->api == RG_PROFILE_OWN) { /* its calls are these waits */
        add(&row->calls, 1);
        add(&row->inside, now - since);
    }
    thread->waited += now - since;
    thread->round_trips += round_trips;
    add_event(thread, (struct rg_profile_event){.start = since,
                                                .end = now,
                                                .api = (uint32_t)thread->api,
                                                .round_trips = round_trips,
                                                .kind = RG_PROFILE_WAIT});
}

/* --- what the writer reads --------------------------------------------------------------------------- */

void rg_profile_add_up(struct rg_profile_sum rows[RG_API_COUNT + 1])
{
    RG_SCOPED_LOCK(&lock);
    for (int i = 0; i <= RG_API_COUNT; i++) {
        rows[i] = (struct rg_profile_sum){0};
        for (struct thread *thread = threads; thread; thread = thread->next) {
            struct rg_profile_row *row = &thread->rows[i];
#define ADD(field) rows[i].field += atomic_load_explicit(&row->field, memory_order_relaxed)
            ADD(calls);
            ADD(round_trips);
            ADD(sent);
            ADD(received);
            ADD(inside);
            ADD(waited);
            ADD(before);
#undef ADD
        }
    }
}

struct rg_profile_chunk *rg_profile_chunks(void)
{
    RG_SCOPED_LOCK(&lock);
    return first_chunk;
}

struct rg_profile_chunk *rg_profile_chunk_drop(struct rg_profile_chunk *previous,
                                               struct rg_profile_chunk *chunk)
{
    pthread_mutex_lock(&lock);
    struct rg_profile_chunk *next = atomic_load(&chunk->next);
    if (previous)
        atomic_store(&previous->next, next);
    else
        first_chunk = next;
    if (last_chunk == chunk)
        last_chunk = previous;
    pthread_mutex_unlock(&lock);
    free(chunk);
    return next;
}

uint64_t rg_profile_dropped(void)
{
    return atomic_load(&dropped);
}

uint64_t rg_profile_started(void)
{
    return started;
}
