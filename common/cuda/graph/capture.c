/*
 * capture.c - stream capture: what streams are given becomes nodes of a graph. See graph.h; the nodes are
 * made in capture_work.c, events are in capture_event.c.
 *
 * A capture is begun on one stream, its origin. Each stream of it has a set of nodes that what comes next
 * depends on. An event recorded in such a stream stands for that set; a stream that waits for the event joins
 * the capture. When the capture ends, the other streams must have been joined back: all that was captured is
 * before the origin's set. A call that cannot be captured invalidates the capture; everything in its streams
 * then fails until it has ended.
 */
#include "common/cuda/graph/capture.h"

#include "common/base/status.h"

#include <stdlib.h>

atomic_uint rg_captures;
struct rg_capture *rg_capture_list;
__thread CUstreamCaptureMode rg_capture_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* --- sets of nodes --- */

bool rg_capture_nodes_add(struct rg_capture_nodes *set, struct rg_graph_node *const *more,
                          const CUgraphEdgeData *edges, size_t n)
{
    struct rg_graph_node **nodes = realloc(set->at, (set->n + n + 1) * sizeof *nodes);
    if (nodes)
        set->at = nodes;
    CUgraphEdgeData *data = realloc(set->edges, (set->n + n + 1) * sizeof *data);
    if (data)
        set->edges = data;
    if (!nodes || !data)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t j = 0;
        while (j < set->n && set->at[j] != more[i])
            j++;
        if (j == set->n)
            set->at[set->n++] = more[i];
        else if (edges && rg_graph_edge_plain(&edges[i]))
            set->edges[j] = edges[i]; /* the whole of a node is more than a part */
        if (j + 1 == set->n)
            set->edges[j] = edges ? edges[i] : (CUgraphEdgeData){0};
    }
    return true;
}

bool rg_capture_nodes_set(struct rg_capture_nodes *set, struct rg_graph_node *const *to,
                          const CUgraphEdgeData *edges, size_t n)
{
    set->n = 0;
    return rg_capture_nodes_add(set, to, edges, n);
}

void rg_capture_nodes_free(struct rg_capture_nodes *set)
{
    free(set->at);
    free(set->edges);
    *set = (struct rg_capture_nodes){0};
}

/* --- who captures what --- */

struct rg_capture_place rg_capture_find(unsigned long long id)
{
    for (struct rg_capture *c = rg_capture_list; c; c = c->next)
        for (struct rg_captured_stream *s = c->streams; s; s = s->next)
            if (s->stream == id)
                return (struct rg_capture_place){c, s};
    return (struct rg_capture_place){NULL, NULL};
}

struct rg_capture *rg_capture_by_id(uint64_t id)
{
    struct rg_capture *c = rg_capture_list;
    while (c && c->id != id)
        c = c->next;
    return c;
}

CUresult rg_capture_identify(CUstream handle, struct rg_capture_who *who)
{
    unsigned flags = 0;
    CUstream stream = rg_graph_backend_stream(handle);
    *who = (struct rg_capture_who){.legacy = !stream || stream == CU_STREAM_LEGACY};
    CUresult result = cuStreamGetId(stream, &who->id);
    if (result == CUDA_SUCCESS && !who->legacy) {
        result = cuStreamGetFlags(stream, &flags);
        who->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    }
    return result;
}

/* A capture with a stream that the legacy stream would have to wait for. */
struct rg_capture *rg_capture_blocking(void)
{
    for (struct rg_capture *c = rg_capture_list; c; c = c->next)
        for (struct rg_captured_stream *s = c->streams; s; s = s->next)
            if (s->blocking)
                return c;
    return NULL;
}

bool rg_capture_stream(CUstream stream)
{
    struct rg_capture_who who;
    if (rg_capture_identify(stream, &who) != CUDA_SUCCESS)
        return false;
    RG_GRAPH_LOCKED;
    return who.legacy ? rg_capture_blocking() != NULL : rg_capture_find(who.id).capture != NULL;
}

/* The stream's place in a valid capture, with the lock taken on success. */
CUresult rg_capture_enter(CUstream stream, struct rg_capture_place *place)
{
    struct rg_capture_who who;
    CUresult result = rg_capture_identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&rg_graph_lock);
    if (who.legacy) {
        struct rg_capture *capture = rg_capture_blocking();
        if (capture)
            capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else {
        *place = rg_capture_find(who.id);
        if (!place->capture)
            result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED; /* it ended meanwhile */
        else if (place->capture->invalid)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

/* --- calls that no capture allows --- */

CUresult rg_capture_refuse(CUstream stream)
{
    struct rg_capture_place place;
    RG_TRY(rg_capture_enter(stream, &place));
    place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult rg_capture_unsafe(void)
{
    if (!atomic_load(&rg_captures) || rg_capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    RG_GRAPH_LOCKED;
    for (struct rg_capture *c = rg_capture_list; c; c = c->next) {
        const bool mine = pthread_equal(c->thread, pthread_self());
        if ((mine && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
             rg_capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            c->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUstreamCaptureMode rg_capture_relax(void)
{
    const CUstreamCaptureMode before = rg_capture_thread_mode;
    rg_capture_thread_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return before;
}

void rg_capture_restore(CUstreamCaptureMode mode)
{
    rg_capture_thread_mode = mode;
}
