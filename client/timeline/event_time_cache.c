/* event_time_cache.c - what programs ask for, and answers that came by themselves. See event_time_cache.h. */
#include "client/timeline/event_time_cache.h"

#include "common/sync/scoped_lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct rg_event_time_hint rg_event_time_wanted(struct rg_event_timeline *end)
{
    struct rg_event_time_hint hint = {0};
    if (!atomic_load_explicit(&end->timed, memory_order_relaxed))
        return hint;
    RG_SCOPED_LOCK(&lock);
    hint.since = end->elapsed.since;
    hint.version = end->elapsed.version;
    return hint;
}

void rg_event_time_arrived(struct rg_event_timeline *end, const struct rg_event_time_hint *hint, float ms)
{
    if (!hint->since || !(ms >= 0))
        return;
    RG_SCOPED_LOCK(&lock);
    if (end->elapsed.since == hint->since && end->elapsed.version == hint->version) {
        end->elapsed.from = hint->from;
        end->elapsed.to = hint->to;
        end->elapsed.ms = ms;
    }
}

bool rg_event_time_find(struct rg_event_timeline *end, const struct rg_event_time_hint *hint, float *ms)
{
    RG_SCOPED_LOCK(&lock);
    const struct rg_event_time *time = &end->elapsed;
    const bool found = hint->from && hint->to && time->since == hint->since &&
                       time->version == hint->version && time->from == hint->from && time->to == hint->to;
    if (found)
        *ms = time->ms;
    return found;
}

void rg_event_time_learn(struct rg_event_timeline *end, uint64_t since, unsigned version)
{
    pthread_mutex_lock(&lock);
    if (end->elapsed.since != since || end->elapsed.version != version)
        end->elapsed = (struct rg_event_time){.since = since, .version = version};
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&end->timed, true, memory_order_relaxed);
}
