/* event_time_cache.c - what programs ask for, answers that came by themselves, and the API's functions. See event_time_cache.h. */
#include "client/timeline/event_time_cache.h"

#include "client/core/call.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/timeline/timeline.h"
#include "generated/client/operations.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct rg_event *event_of(CUevent handle)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_EVENT, (uint64_t)handle);
    return shadow ? &shadow->event : NULL;
}

struct rg_event_time_hint rg_event_time_hint(CUevent end, uint64_t to)
{
    const struct rg_event_time_hint nothing = {0};
    struct rg_event *event = event_of(end);
    if (!event || !atomic_load_explicit(&event->timed, memory_order_relaxed))
        return nothing;
    pthread_mutex_lock(&lock);
    struct rg_event_time_hint wish = {
        .since = event->elapsed.since, .version = event->elapsed.version, .to = to};
    pthread_mutex_unlock(&lock);
    struct rg_event *start = event_of((CUevent)wish.since);
    if (!start || start->context != event->context)
        return nothing;
    wish.from = rg_timeline_recorded(start);
    return wish.from ? wish : nothing;
}

void rg_event_time_arrived(CUevent end, const struct rg_event_time_hint *wish, float ms)
{
    struct rg_event *event = event_of(end);
    if (!event || !wish->since || !(ms >= 0))
        return;
    pthread_mutex_lock(&lock);
    if (event->elapsed.since == wish->since && event->elapsed.version == wish->version) {
        event->elapsed.from = wish->from;
        event->elapsed.to = wish->to;
        event->elapsed.ms = ms;
    }
    pthread_mutex_unlock(&lock);
}

/* Whether the time between these two is known. */
static bool find(struct rg_event *end, uint64_t start, uint64_t from, unsigned version, float *ms)
{
    const uint64_t to = rg_timeline_recorded(end);
    pthread_mutex_lock(&lock);
    const bool found = from && to && end->elapsed.since == start && end->elapsed.version == version &&
                       end->elapsed.from == from && end->elapsed.to == to;
    if (found)
        *ms = end->elapsed.ms;
    pthread_mutex_unlock(&lock);
    return found;
}

/* It has been asked for and was known: it will be again. */
static void learn(struct rg_event *end, uint64_t start, unsigned version)
{
    pthread_mutex_lock(&lock);
    if (end->elapsed.since != start || end->elapsed.version != version)
        end->elapsed = (struct rg_event_time){.since = start, .version = version};
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&end->timed, true, memory_order_relaxed);
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end, unsigned version)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!milliseconds)
        return rg_invalid_value();
    if (!rg_handle_known(RG_KIND_EVENT, (uint64_t)start) || !rg_handle_known(RG_KIND_EVENT, (uint64_t)end))
        return rg_bad_handle(CUDA_ERROR_INVALID_HANDLE);
    if (rg_homes_differ(rg_home_of(RG_KIND_EVENT, (uint64_t)start), rg_home_of(RG_KIND_EVENT, (uint64_t)end)))
        return CUDA_ERROR_INVALID_HANDLE;
    struct rg_event *from = event_of(start), *to = event_of(end);
    struct rg_session *session = from && to ? rg_timeline_session(to) : NULL;
    float ms;
    if (session && find(to, (uint64_t)start, rg_timeline_recorded(from), version, &ms)) {
        *milliseconds = ms;
        return rg_timeline_answered(session);
    }
    status = version == 2 ? rg_op_cuEventElapsedTime_v2(milliseconds, start, end)
                          : rg_op_cuEventElapsedTime(milliseconds, start, end);
    if (status == CUDA_SUCCESS && session)
        learn(to, (uint64_t)start, version);
    return status;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(pMilliseconds, hStart, hEnd, 1);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(pMilliseconds, hStart, hEnd, 2);
}
