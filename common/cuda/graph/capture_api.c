/*
 * capture_api.c - the calls that begin and end captures, ask about and change them. See capture.c.
 */
#include "common/base/status.h"
#include "common/cuda/graph/capture.h"

#include <stdlib.h>

static uint64_t next_capture = 1;

static CUresult begin(CUstream stream, CUgraph handle, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
    struct rg_capture_who who;
    RG_TRY(rg_graph_backend_enter());
    CUresult result = rg_capture_identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (who.legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct rg_capture *capture = calloc(1, sizeof *capture);
    struct rg_captured_stream *s = calloc(1, sizeof *s);
    pthread_mutex_lock(&rg_graph_lock);
    if (!capture || !s)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (rg_capture_find(who.id).capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) {
        capture->own_graph = !handle;
        capture->graph = handle ? rg_graph_find(handle, RG_GRAPH_KIND_GRAPH) : rg_graph_new();
        if (!capture->graph)
            result = handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && handle)
        result = rg_graph_nodes(capture->graph, dependencies, edges, n);
    if (result == CUDA_SUCCESS &&
        !rg_capture_nodes_set(&s->last, (struct rg_graph_node *const *)(const void *)dependencies, edges,
                              handle ? n : 0))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        s->stream = capture->origin = who.id;
        s->blocking = who.blocking;
        capture->streams = s;
        capture->id = next_capture++;
        capture->mode = mode;
        capture->thread = pthread_self();
        capture->graph->captures++;
        capture->next = rg_capture_list;
        rg_capture_list = capture;
        atomic_fetch_add(&rg_captures, 1);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (result != CUDA_SUCCESS) {
        if (s)
            rg_capture_nodes_free(&s->last);
        free(s);
        free(capture);
    }
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, NULL, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
    return graph ? begin(stream, graph, dependencies, edges, n, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Whether all that other streams of the capture did is before the origin's last nodes. */
static bool joined(const struct rg_capture *capture, const struct rg_captured_stream *origin)
{
    for (const struct rg_captured_stream *s = capture->streams; s; s = s->next)
        for (size_t i = 0; i < s->last.n; i++) {
            bool before = false;
            for (size_t j = 0; j < capture->dismissed.n && !before; j++)
                before = capture->dismissed.at[j] == s->last.at[i];
            for (size_t j = 0; j < origin->last.n && !before; j++)
                before = rg_graph_depends(origin->last.at[j], s->last.at[i]);
            if (!before)
                return false;
        }
    return true;
}

static void end(struct rg_capture *capture)
{
    for (struct rg_capture **at = &rg_capture_list; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    while (capture->streams) {
        struct rg_captured_stream *s = capture->streams;
        capture->streams = s->next;
        rg_capture_nodes_free(&s->last);
        free(s);
    }
    rg_capture_nodes_free(&capture->dismissed);
    capture->graph->captures--;
    free(capture);
    atomic_fetch_sub(&rg_captures, 1);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    struct rg_capture_who who;
    RG_TRY(rg_graph_backend_enter());
    CUresult result = rg_capture_identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if (out)
        *out = NULL;
    RG_GRAPH_LOCKED;
    struct rg_capture_place place = rg_capture_find(who.id);
    struct rg_capture *capture = place.capture;
    if (!capture) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture->origin != who.id) {
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
               !pthread_equal(capture->thread, pthread_self())) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        if (capture->invalid)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!joined(capture, place.stream))
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        struct rg_graph *graph = capture->graph;
        const bool own = capture->own_graph;
        end(capture);
        if (result == CUDA_SUCCESS && out)
            *out = (CUgraph)graph;
        else if (result != CUDA_SUCCESS && own)
            rg_graph_free(graph);
    }
    return result;
}

static __thread struct rg_capture_nodes reported; /* what cuStreamGetCaptureInfo returned last */

static bool says_something(const struct rg_capture_nodes *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (!rg_graph_edge_plain(&set->edges[i]))
            return true;
    return false;
}

/* Where cuStreamGetCaptureInfo puts what it is asked for; any may be NULL. */
struct asked {
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const CUgraphEdgeData **edges;
    size_t *n;
};

static CUresult tell(const struct rg_capture_place *place, const struct asked *out)
{
    const struct rg_capture_nodes *last = &place->stream->last;
    if (out->dependencies && !out->edges && says_something(last))
        return CUDA_ERROR_LOSSY_QUERY;
    if (out->id)
        *out->id = place->capture->id;
    if (out->graph)
        *out->graph = (CUgraph)place->capture->graph;
    if (out->n)
        *out->n = last->n;
    if (!out->dependencies)
        return CUDA_SUCCESS;
    if (!rg_capture_nodes_set(&reported, last->at, last->edges, last->n))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out->dependencies = (const CUgraphNode *)(void *)reported.at;
    if (out->edges)
        *out->edges = reported.edges;
    return CUDA_SUCCESS;
}

static CUresult info(CUstream stream, CUstreamCaptureStatus *status, const struct asked *out)
{
    struct rg_capture_who who;
    RG_TRY(rg_graph_backend_enter());
    CUresult result = rg_capture_identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status || (out->edges && !out->dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!atomic_load(&rg_captures))
        return CUDA_SUCCESS;
    RG_GRAPH_LOCKED;
    struct rg_capture_place place = rg_capture_find(who.id);
    if (who.legacy && rg_capture_blocking()) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (place.capture) {
        *status =
            place.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (!place.capture->invalid)
            result = tell(&place, out);
    }
    return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return info(stream, status, &(struct asked){0});
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return info(stream, status, &(struct asked){.id = id});
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *n)
{
    return info(stream, status, &(struct asked){id, graph, dependencies, NULL, n});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *n)
{
    return info(stream, status, &(struct asked){id, graph, dependencies, edges, n});
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *edges, size_t n, unsigned int flags)
{
    struct rg_capture_place place;
    RG_TRY(rg_graph_backend_enter());
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ? CUDA_ERROR_ILLEGAL_STATE : result;
    result = rg_graph_nodes(place.capture->graph, dependencies, edges, n);
    if (result == CUDA_SUCCESS) {
        struct rg_graph_node *const *nodes = (struct rg_graph_node *const *)(void *)dependencies;
        struct rg_capture_nodes *last = &place.stream->last, *gone = &place.capture->dismissed;
        const bool set = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES;
        const bool kept = set ? rg_capture_nodes_add(gone, last->at, last->edges, last->n) &&
                                    rg_capture_nodes_set(last, nodes, edges, n)
                              : rg_capture_nodes_add(last, nodes, edges, n);
        result = kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = rg_graph_backend_enter();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CONTEXT)
        return result;
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = rg_capture_thread_mode;
    rg_capture_thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
