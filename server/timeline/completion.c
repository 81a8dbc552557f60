/*
 * completion.c - the list of what is watched, and the thread that polls it (the operations: watch.c). See completion.h.
 */
#include "server/timeline/completion.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/modules.h"
#include "server/timeline/event_times.h"
#include "server/timeline/output.h"
#include "server/timeline/subscription.h"

#include <stdlib.h>
#include <time.h>

#define TOLD_MAX    64   /* in one notice */
#define POLL_MIN_NS 5000 /* between two looks */
#define POLL_MAX_NS 500000
#define POLL_SHARE  8 /* what has been awaited for long is looked at after so much of that time again */
/* and not before so many times what the last look took: a client may have watched as much as it can */
#define POLL_REST 3

/*
 * `lock` guards the list; it is held while the driver is asked, so that no event ends meanwhile, but never
 * while anything is sent. `order` is held from the look to the sending, so that a reply cannot overtake what
 * was seen before it. Order, then lock.
 */
struct completions {
    pthread_mutex_t lock, order;
    pthread_cond_t changed;
    struct rg_subscription *first, **last;
    atomic_uint n;  /* in the list, or taken out and not told yet */
    uint64_t since; /* when the list last changed */
    uint64_t took;  /* processor time of the last look by the thread */
    pthread_t thread;
    bool runs;
};

bool rg_completion_any(struct rg_worker *worker)
{
    const struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    return atomic_load_explicit(&completions->n, memory_order_acquire) != 0;
}

/* Takes the entry at `link` out of the list, but not out of the count; the lock is held. */
static void unlink_subscription(struct rg_worker *worker, struct rg_subscription **link)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    struct rg_subscription *subscription = *link;
    *link = subscription->next;
    if (completions->last == &subscription->next)
        completions->last = link;
    (void)rg_event_times_end(worker, &subscription->interval, NULL);
    if (subscription->context)
        (void)rg_driver.cuEventDestroy_v2(subscription->event);
    free(subscription);
}

/* The same with an entry of which nobody will be told. */
static void drop_subscription(struct rg_worker *worker, struct rg_subscription **link)
{
    unlink_subscription(worker, link);
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    atomic_fetch_sub(&completions->n, 1);
}

/*
 * Has what kernels have printed come out, which it does when an event is waited for. The client's own may have been recorded again since
 * it was seen done, behind work that waits for the client.
 */
static CUresult bring_output(CUevent passed)
{
    const CUresult result = passed ? rg_driver.cuEventQuery(passed) : CUDA_ERROR_NOT_READY;
    return result == CUDA_SUCCESS ? rg_driver.cuEventSynchronize(passed) : result;
}

/* Collects what is done, TOLD_MAX at most; it counts until it has been told. The lock is held. */
static size_t collect(struct rg_worker *worker, struct rg_done *done)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    size_t n = 0;
    for (struct rg_subscription **link = &completions->first; *link && n < TOLD_MAX;) {
        struct rg_subscription *subscription = *link;
        CUresult result = rg_driver.cuEventQuery(subscription->event);
        if (result == CUDA_ERROR_NOT_READY) {
            link = &subscription->next;
            continue;
        }
        if (result == CUDA_SUCCESS) /* where none comes out, the client is told to ask */
            result = bring_output(subscription->context ? subscription->event : subscription->passed);
        done[n++] =
            (struct rg_done){.watch = subscription->id,
                             .result = (int32_t)result,
                             .ms = rg_event_times_end(worker, &subscription->interval,
                                                      result == CUDA_SUCCESS ? subscription->event : NULL)};
        unlink_subscription(worker, link);
    }
    return n;
}

static void tell(struct rg_worker *worker, const struct rg_done *done, size_t n)
{
    struct rg_notice notice = {.type = RG_NOTICE_DONE, .arg = {n, 0, 0}};
    rg_output_drain(worker);
    (void)rg_worker_notice(worker, &notice, done, n * sizeof *done, NULL, 0);
}

/* Tells the client of all that is done; whether it was anything. */
static bool look(struct rg_worker *worker)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    struct rg_done done[TOLD_MAX];
    bool any = false;
    size_t n;
    pthread_mutex_lock(&completions->order);
    do {
        pthread_mutex_lock(&completions->lock);
        n = collect(worker, done);
        pthread_mutex_unlock(&completions->lock);
        if (n) {
            tell(worker, done, n);
            atomic_fetch_sub(&completions->n, (unsigned)n);
        }
        any |= n > 0;
    } while (n == TOLD_MAX && !rg_worker_over(worker));
    pthread_mutex_unlock(&completions->order);
    return any;
}

static void before_reply(struct rg_worker *worker, const struct rg_request *request)
{
    /* That something is not done yet shows nothing; such answers may be asked for one after another. */
    if (rg_completion_any(worker) && request->result != CUDA_ERROR_NOT_READY)
        (void)look(worker);
}

void rg_completion_before_notice(struct rg_worker *worker)
{
    if (rg_completion_any(worker))
        (void)look(worker);
}

/* When to look again: at once at what is new, then after a part of the time that it has been waited for. */
static uint64_t next_look(const struct completions *completions, uint64_t looked)
{
    const uint64_t waited = looked > completions->since ? looked - completions->since : 0;
    const uint64_t pause = waited / POLL_SHARE, rest = completions->took * POLL_REST;
    const uint64_t wanted = pause < POLL_MIN_NS ? POLL_MIN_NS : pause > POLL_MAX_NS ? POLL_MAX_NS : pause;
    return looked + (wanted < rest ? rest : wanted);
}

/* The processor time of this thread. */
static uint64_t own_time(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *poll_main(void *arg)
{
    struct rg_worker *worker = arg;
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    uint64_t looked = 0;
    rg_thread_sleep_precisely(); /* its pauses are shorter than what the kernel usually adds */
    pthread_mutex_lock(&completions->lock);
    while (!rg_worker_over(worker)) {
        if (!completions->first) {
            pthread_cond_wait(&completions->changed, &completions->lock);
            continue;
        }
        const uint64_t next = next_look(completions, looked);
        if (rg_now_ns() < next) {
            const struct timespec until = rg_timespec(next);
            (void)pthread_cond_timedwait(&completions->changed, &completions->lock, &until);
            continue;
        }
        pthread_mutex_unlock(&completions->lock);
        const uint64_t began = own_time();
        const bool any = look(worker);
        pthread_mutex_lock(&completions->lock);
        completions->took = own_time() - began;
        looked = rg_now_ns();
        if (any)
            completions->since = looked;
    }
    pthread_mutex_unlock(&completions->lock);
    return NULL;
}

bool rg_completion_add(struct rg_worker *worker, const struct rg_subscription *wanted, uint64_t since,
                       unsigned version)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    bool good = true;
    RG_SCOPED_LOCK(&completions->lock);
    if (!completions->runs)
        completions->runs = rg_thread_create(&completions->thread, "rg-watch", poll_main, worker) == RG_OK;
    struct rg_subscription *subscription = completions->first;
    while (subscription && (wanted->context || subscription->context || subscription->event != wanted->event))
        subscription = subscription->next;
    if (subscription) {
        subscription->id = wanted->id;
        (void)rg_event_times_end(worker, &subscription->interval, NULL);
    } else if (completions->runs && atomic_load(&completions->n) < RG_SUBSCRIPTIONS_MAX &&
               (subscription = malloc(sizeof *subscription))) {
        *subscription = *wanted;
        *completions->last = subscription;
        completions->last = &subscription->next;
        atomic_fetch_add(&completions->n, 1);
    } else {
        good = false;
    }
    if (good && since)
        rg_event_times_begin(worker, &subscription->interval, since, version);
    completions->since = rg_now_ns();
    pthread_cond_signal(&completions->changed);
    return good;
}

void rg_completion_refuse(struct rg_worker *worker, uint64_t id)
{
    const struct rg_done done = {.watch = id, .result = CUDA_ERROR_NOT_READY};
    tell(worker, &done, 1);
}

/* The lock is held. */
static void forget(struct rg_worker *worker, CUevent event)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    for (struct rg_subscription **link = &completions->first; *link; link = &(*link)->next)
        if ((*link)->event == event) {
            drop_subscription(worker, link);
            return;
        }
}

void rg_completion_forget(struct rg_worker *worker, CUevent event)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    RG_SCOPED_LOCK(&completions->lock);
    forget(worker, event);
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

static void init(struct rg_worker *worker)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    pthread_mutex_init(&completions->order, NULL);
    rg_cond_init(&completions->changed);
    completions->last = &completions->first;
}

struct ending {
    struct rg_worker *worker;
    uint64_t context;
};

/* The lock is held. */
static void drop_event(struct rg_object *entry, void *user)
{
    const struct ending *ending = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_EVENT || entry->context != ending->context)
        return;
    rg_event_times_forget(ending->worker, entry->object);
    forget(ending->worker, entry->object);
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *state)
{
    const uint64_t context = state->handle;
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    struct ending ending = {worker, context};
    RG_SCOPED_LOCK(&completions->lock);
    for (struct rg_subscription **link = &completions->first; *link;)
        if ((*link)->context == context)
            drop_subscription(worker, link);
        else
            link = &(*link)->next;
    rg_objects_each(&worker->objects, drop_event, &ending);
}

static bool busy(struct rg_worker *worker)
{
    return rg_completion_any(worker);
}

static void wake(struct rg_worker *worker)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    RG_SCOPED_LOCK(&completions->lock);
    pthread_cond_signal(&completions->changed);
}

static void fini(struct rg_worker *worker)
{
    struct completions *completions = worker->state[RG_MODULE_COMPLETION];
    if (completions->runs)
        pthread_join(completions->thread, NULL);
    while (completions->first) {
        struct rg_subscription *subscription = completions->first;
        completions->first = subscription->next;
        free(subscription);
    }
    atomic_store(&completions->n, 0);
    pthread_cond_destroy(&completions->changed);
    pthread_mutex_destroy(&completions->order);
}

const struct rg_server_module rg_completion_module = {
    .size = sizeof(struct completions),
    .locked = true,
    .init = init,
    .wake = wake,
    .fini = fini,
    .drop_context = drop_context,
    .busy = busy,
    .before_reply = before_reply,
};
