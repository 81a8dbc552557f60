/* streams.c - see streams.h. */
#include "server/shares/gate/streams.h"

#include "generated/server/driver.h"
#include "server/core/request.h"

#include <stdlib.h>

bool rg_busy_streams_add(struct rg_busy_streams *streams, CUcontext context, CUstream stream)
{
    for (uint32_t i = streams->n; i-- > 0;)
        if (streams->at[i].stream == stream && streams->at[i].context == context && !streams->at[i].event)
            return true;
    if (streams->n == streams->capacity) {
        const uint32_t capacity = streams->capacity ? streams->capacity * 2 : 16;
        struct rg_busy_stream *at = realloc(streams->at, capacity * sizeof *at);
        if (!at)
            return false;
        streams->at = at;
        streams->capacity = capacity;
    }
    streams->at[streams->n++] = (struct rg_busy_stream){.context = context, .stream = stream};
    return true;
}

static void enter(CUcontext context)
{
    CUcontext current = NULL;
    if (rg_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return;
    (void)rg_driver.cuCtxSetCurrent(context);
    rg_context_unknown();
}

bool rg_busy_streams_done(struct rg_busy_streams *streams)
{
    while (streams->n) {
        struct rg_busy_stream *at = &streams->at[streams->n - 1];
        enter(at->context);
        const CUresult result =
            at->event ? rg_driver.cuEventQuery(at->event) : rg_driver.cuStreamQuery(at->stream);
        if (result == CUDA_ERROR_NOT_READY)
            return false;
        if (at->event)
            (void)rg_driver.cuEventDestroy_v2(at->event);
        streams->n--;
    }
    return true;
}

/* An event behind all that is in a stream; NULL: it is done, or there can be none. */
static CUevent mark(CUstream stream)
{
    CUevent event = NULL;
    if (rg_driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY ||
        rg_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (rg_driver.cuEventRecord(event, stream) == CUDA_SUCCESS)
        return event;
    (void)rg_driver.cuEventDestroy_v2(event);
    return NULL;
}

void rg_busy_streams_drop_stream(struct rg_busy_streams *streams, CUstream stream)
{
    for (uint32_t i = 0; i < streams->n; i++) {
        struct rg_busy_stream *at = &streams->at[i];
        if (at->stream != stream || at->event || !stream)
            continue;
        enter(at->context);
        at->event = mark(stream);
        if (!at->event)
            *at = streams->at[--streams->n];
        return;
    }
}

void rg_busy_streams_drop_context(struct rg_busy_streams *streams, CUcontext context)
{
    for (uint32_t i = 0; i < streams->n;)
        if (streams->at[i].context == context)
            streams->at[i] = streams->at[--streams->n];
        else
            i++;
}

void rg_busy_streams_fini(struct rg_busy_streams *streams)
{
    free(streams->at);
    *streams = (struct rg_busy_streams){0};
}
