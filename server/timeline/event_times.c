/* event_times.c - wishes, and the operation that waits with one. See event_times.h. */
#include "server/timeline/event_times.h"

#include "common/sync/scoped_lock.h"
#include "generated/server/execute.h"
#include "server/modules.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"

/* Those whose time somebody wants to know. */
struct intervals {
    pthread_mutex_t lock; /* a leaf; the driver is asked under it */
    struct rg_event_interval *first;
};

const struct rg_server_module rg_event_times_module = {.size = sizeof(struct intervals), .locked = true};

void rg_event_times_begin(struct rg_worker *worker, struct rg_event_interval *interval, uint64_t since,
                          unsigned version)
{
    struct intervals *intervals = worker->state[RG_MODULE_EVENT_TIMES];
    const struct rg_object *object =
        rg_handle_kind(since) == RG_KIND_EVENT ? rg_objects_find(&worker->objects, since) : NULL;
    *interval = (struct rg_event_interval){.since = object ? object->object : NULL, .version = version};
    if (!object)
        return;
    RG_SCOPED_LOCK(&intervals->lock);
    interval->next = intervals->first;
    interval->link = &intervals->first;
    if (interval->next)
        interval->next->link = &interval->next;
    intervals->first = interval;
}

static float ask(const struct rg_event_interval *interval, CUevent event)
{
    float ms;
    CUresult (*const function)(float *, CUevent, CUevent) =
        interval->version == 2 ? rg_driver.cuEventElapsedTime_v2 : rg_driver.cuEventElapsedTime;
    if (!event || !interval->since || function(&ms, interval->since, event) != CUDA_SUCCESS)
        return RG_INTERVAL_UNKNOWN;
    return ms;
}

float rg_event_times_end(struct rg_worker *worker, struct rg_event_interval *interval, CUevent event)
{
    struct intervals *intervals = worker->state[RG_MODULE_EVENT_TIMES];
    float ms = RG_INTERVAL_UNKNOWN;
    RG_SCOPED_LOCK(&intervals->lock); /* its neighbours in the list write to it */
    if (interval->link) {
        ms = ask(interval, event);
        *interval->link = interval->next;
        if (interval->next)
            interval->next->link = interval->link;
        interval->link = NULL;
    }
    return ms;
}

void rg_event_times_forget(struct rg_worker *worker, CUevent event)
{
    struct intervals *intervals = worker->state[RG_MODULE_EVENT_TIMES];
    RG_SCOPED_LOCK(&intervals->lock);
    for (struct rg_event_interval *interval = intervals->first; interval; interval = interval->next)
        if (interval->since == event)
            interval->since = NULL;
}

CUresult rg_execute_rgEventWait(struct rg_request *request, CUevent event, unsigned long long since,
                                unsigned int version, float *ms)
{
    struct rg_event_interval interval;
    rg_event_times_begin(request->worker, &interval, since, version);
    const CUresult result = rg_wait_event(request, event);
    rg_output_drain(request->worker);
    *ms = rg_event_times_end(request->worker, &interval, result == CUDA_SUCCESS ? event : NULL);
    return result;
}
