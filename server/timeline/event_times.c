/* event_times.c - wishes, and the operation that waits with one. See event_times.h. */
#include "server/timeline/event_times.h"

#include "generated/server/execute.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"

void rg_event_times_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->intervals.lock, NULL);
}

void rg_event_times_fini(struct rg_worker *worker)
{
    pthread_mutex_destroy(&worker->intervals.lock);
}

void rg_event_times_begin(struct rg_worker *worker, struct rg_event_interval *interval, uint64_t since,
                          unsigned version)
{
    const struct rg_object *object =
        rg_handle_kind(since) == RG_KIND_EVENT ? rg_objects_find(&worker->objects, since) : NULL;
    *interval = (struct rg_event_interval){.since = object ? object->object : NULL, .version = version};
    if (!object)
        return;
    pthread_mutex_lock(&worker->intervals.lock);
    interval->next = worker->intervals.first;
    interval->link = &worker->intervals.first;
    if (interval->next)
        interval->next->link = &interval->next;
    worker->intervals.first = interval;
    pthread_mutex_unlock(&worker->intervals.lock);
}

static float ask(const struct rg_event_interval *interval, CUevent event)
{
    float ms;
    CUresult (*const function)(float *, CUevent, CUevent) =
        interval->version == 2 ? rg_driver.cuEventElapsedTime_v2 : rg_driver.cuEventElapsedTime;
    if (!event || !interval->since || !function || function(&ms, interval->since, event) != CUDA_SUCCESS)
        return RG_INTERVAL_UNKNOWN;
    return ms;
}

float rg_event_times_end(struct rg_worker *worker, struct rg_event_interval *interval, CUevent event)
{
    float ms = RG_INTERVAL_UNKNOWN;
    pthread_mutex_lock(&worker->intervals.lock); /* its neighbours in the list write to it */
    if (interval->link) {
        ms = ask(interval, event);
        *interval->link = interval->next;
        if (interval->next)
            interval->next->link = interval->link;
        interval->link = NULL;
    }
    pthread_mutex_unlock(&worker->intervals.lock);
    return ms;
}

void rg_event_times_forget(struct rg_worker *worker, CUevent event)
{
    pthread_mutex_lock(&worker->intervals.lock);
    for (struct rg_event_interval *interval = worker->intervals.first; interval; interval = interval->next)
        if (interval->since == event)
            interval->since = NULL;
    pthread_mutex_unlock(&worker->intervals.lock);
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
