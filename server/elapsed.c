/* elapsed.c - wishes, and the operation that waits with one. See elapsed.h. */
#include "server/elapsed.h"

#include "generated/server/serve.h"
#include "server/output.h"
#include "server/wait.h"

void rg_elapsed_init(struct rg_worker *worker)
{
    pthread_mutex_init(&worker->elapsed.lock, NULL);
}

void rg_elapsed_fini(struct rg_worker *worker)
{
    pthread_mutex_destroy(&worker->elapsed.lock);
}

void rg_elapsed_begin(struct rg_worker *worker, struct rg_elapsed *elapsed, uint64_t since, unsigned version)
{
    const struct rg_object *object =
        rg_handle_kind(since) == RG_KIND_EVENT ? rg_objects_find(&worker->objects, since) : NULL;
    *elapsed = (struct rg_elapsed){.since = object ? object->object : NULL, .version = version};
    if (!object)
        return;
    pthread_mutex_lock(&worker->elapsed.lock);
    elapsed->next = worker->elapsed.first;
    elapsed->link = &worker->elapsed.first;
    if (elapsed->next)
        elapsed->next->link = &elapsed->next;
    worker->elapsed.first = elapsed;
    pthread_mutex_unlock(&worker->elapsed.lock);
}

static float ask(const struct rg_elapsed *elapsed, CUevent event)
{
    float ms;
    CUresult (*const function)(float *, CUevent, CUevent) =
        elapsed->version == 2 ? rg_driver.cuEventElapsedTime_v2 : rg_driver.cuEventElapsedTime;
    if (!event || !elapsed->since || !function || function(&ms, elapsed->since, event) != CUDA_SUCCESS)
        return RG_ELAPSED_UNKNOWN;
    return ms;
}

float rg_elapsed_end(struct rg_worker *worker, struct rg_elapsed *elapsed, CUevent event)
{
    float ms = RG_ELAPSED_UNKNOWN;
    pthread_mutex_lock(&worker->elapsed.lock); /* its neighbours in the list write to it */
    if (elapsed->link) {
        ms = ask(elapsed, event);
        *elapsed->link = elapsed->next;
        if (elapsed->next)
            elapsed->next->link = elapsed->link;
        elapsed->link = NULL;
    }
    pthread_mutex_unlock(&worker->elapsed.lock);
    return ms;
}

void rg_elapsed_forget(struct rg_worker *worker, CUevent event)
{
    pthread_mutex_lock(&worker->elapsed.lock);
    for (struct rg_elapsed *elapsed = worker->elapsed.first; elapsed; elapsed = elapsed->next)
        if (elapsed->since == event)
            elapsed->since = NULL;
    pthread_mutex_unlock(&worker->elapsed.lock);
}

CUresult rg_serve_rgEventWait(struct rg_job *job, CUevent event, unsigned long long since,
                              unsigned int version, float *ms)
{
    struct rg_elapsed elapsed;
    rg_elapsed_begin(job->worker, &elapsed, since, version);
    const CUresult result = rg_wait_event(job, event);
    rg_output_drain(job->worker);
    *ms = rg_elapsed_end(job->worker, &elapsed, result == CUDA_SUCCESS ? event : NULL);
    return result;
}
