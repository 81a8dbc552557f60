/* subscription.c - a table for each session. See subscription.h. */
#include "client/timeline/subscription.h"

#include "client/core/session.h"
#include "client/timeline/timeline.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>

/* At once, of a session: few enough that notices which nobody reads yet never fill a connection. */
#define MOST 256u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_subscription tables[RG_SERVERS_MAX][MOST];
static uint64_t next_number = 1;
static atomic_uint epoch;

void rg_subscriptions_lock(void)
{
    pthread_mutex_lock(&lock);
}

void rg_subscriptions_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void rg_timeline_new_epoch(void)
{
    atomic_fetch_add(&epoch, 1);
}

unsigned rg_subscription_epoch(void)
{
    return atomic_load(&epoch);
}

/* The one with that id, or NULL; the lock is held. */
static struct rg_subscription *find(const struct rg_session *session, uint64_t id)
{
    struct rg_subscription *at = &tables[session->number][id % MOST];
    return id && at->id == id ? at : NULL;
}

/* A new one in the place of an old one; 0: there are too many. The lock is held. */
static uint64_t take(const struct rg_session *session, uint64_t old, const struct rg_subscription *wanted)
{
    struct rg_subscription *table = tables[session->number];
    uint64_t index = find(session, old) ? old % MOST : next_number % MOST;
    for (unsigned tried = 0; table[index].id && table[index].id != old; tried++) {
        if (tried == 8)
            return 0;
        index = (index * 5 + 1) % MOST;
    }
    table[index] = *wanted;
    table[index].id = next_number++ * MOST + index;
    return table[index].id;
}

uint64_t rg_subscribe_locked(const struct rg_session *session, struct rg_subscriber *by,
                             const struct rg_subscription *wanted)
{
    const uint64_t id = take(session, atomic_load_explicit(&by->id, memory_order_relaxed), wanted);
    atomic_store_explicit(&by->id, id, memory_order_relaxed);
    return id;
}

uint64_t rg_subscribe(const struct rg_session *session, struct rg_subscriber *by,
                      const struct rg_subscription *wanted)
{
    RG_SCOPED_LOCK(&lock);
    return rg_subscribe_locked(session, by, wanted);
}

void rg_unsubscribe(const struct rg_session *session, uint64_t id)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_subscription *at = find(session, id);
    if (at)
        *at = (struct rg_subscription){0};
}

void rg_unsubscribe_all_locked(uint64_t event, const struct rg_stream_timeline *stream, uint64_t context)
{
    for (unsigned i = 0; i < rg_n_sessions * MOST; i++) {
        struct rg_subscription *at = &tables[i / MOST][i % MOST];
        if (at->id && ((event && at->event == event) || (stream && at->stream == stream) ||
                       (context && at->context == context)))
            *at = (struct rg_subscription){0};
    }
}

void rg_unsubscribe_all(uint64_t event, const struct rg_stream_timeline *stream, uint64_t context)
{
    RG_SCOPED_LOCK(&lock);
    rg_unsubscribe_all_locked(event, stream, context);
}

bool rg_subscription_pending_locked(const struct rg_session *session, const struct rg_subscriber *by)
{
    return atomic_load_explicit(&by->epoch, memory_order_relaxed) == atomic_load(&epoch) &&
           find(session, atomic_load_explicit(&by->id, memory_order_relaxed));
}

bool rg_subscription_pending(const struct rg_session *session, const struct rg_subscriber *by)
{
    RG_SCOPED_LOCK(&lock);
    return rg_subscription_pending_locked(session, by);
}

bool rg_subscription_due(const struct rg_session *session, const struct rg_subscriber *by)
{
    RG_SCOPED_LOCK(&lock);
    return find(session, atomic_load_explicit(&by->id, memory_order_relaxed)) != NULL;
}

void rg_subscription_done(const struct rg_session *session, const struct rg_done *done,
                          void (*completed)(const struct rg_subscription *subscription,
                                            const struct rg_done *done))
{
    RG_SCOPED_LOCK(&lock);
    struct rg_subscription *at = find(session, done->watch); /* NULL: given up meanwhile */
    if (at && done->result == CUDA_SUCCESS)
        completed(at, done);
    if (at) /* with any other result the next query asks, and returns what it is told */
        *at = (struct rg_subscription){0};
}
