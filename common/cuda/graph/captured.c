/*
 * captured.c - see captured.h.
 *
 * Without memory, and in the body of a conditional node, no node comes to be, and the capture is invalid; streams of several captures
 * are refused. Works that no graph has any more wait in a list until somebody who holds no lock ends them.
 */
#include "common/cuda/graph/captured.h"

#include "common/base/cleanup.h"
#include "common/base/status.h"
#include "common/cuda/graph/capture.h"

#include <stdlib.h>

static struct rg_captured_work *ended; /* that no graph has any more; under the graphs' lock */

void rg_captured_release(struct rg_captured_work *work)
{
    work->next = ended;
    ended = work;
}

void rg_captured_collect(void)
{
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_captured_work *list = ended;
    ended = NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    if (!list)
        return;
    const CUstreamCaptureMode mode = rg_capture_relax();
    while (list) {
        struct rg_captured_work *gone = list;
        list = gone->next;
        gone->end(gone);
    }
    rg_capture_restore(mode);
}

CUresult rg_capture_number(CUstream stream, uint64_t *number)
{
    struct rg_capture_who who;
    *number = 0;
    RG_TRY(rg_capture_identify(stream, &who));
    if (!atomic_load(&rg_captures))
        return CUDA_SUCCESS;
    RG_GRAPH_LOCKED;
    if (who.legacy)
        return rg_capture_blocking() ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
    const struct rg_capture *capture = rg_capture_find(who.id).capture;
    if (capture && capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *number = capture ? capture->id : 0;
    return CUDA_SUCCESS;
}

/* --- adding: with the lock held --------------------------------------------------------------------------- */

static bool is_in_body(const struct rg_graph *graph)
{
    while (graph && !graph->body)
        graph = graph->parent;
    return graph != NULL;
}

/* The node of the owner's work that was added last; NULL: there is none. */
static struct rg_graph_node *last_of(const struct rg_graph *graph, const void *owner)
{
    for (size_t i = graph->n; i-- > 0;) {
        const struct rg_captured_work *captured = graph->nodes[i]->work->captured;
        if (captured && captured->owner == owner)
            return graph->nodes[i];
    }
    return NULL;
}

/* What the node comes behind: all that the streams have, and the owner's last work. */
static CUresult gather(const struct rg_capture *capture, const void *owner, const unsigned long long *ids,
                       size_t n, struct rg_capture_nodes *before)
{
    struct rg_graph_node *last = last_of(capture->graph, owner);
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        const struct rg_capture_place place = rg_capture_find(ids[i]);
        if (place.capture != capture)
            return CUDA_ERROR_INVALID_VALUE;
        good = rg_capture_nodes_add(before, place.stream->last.at, place.stream->last.edges,
                                    place.stream->last.n);
    }
    if (good && last)
        good = rg_capture_nodes_add(before, &last, NULL, 1);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* `work` is taken over. */
static CUresult add(struct rg_capture *capture, struct rg_captured_work *captured, struct rg_graph_work *work,
                    const unsigned long long *ids, size_t n)
{
    struct rg_capture_nodes before = {0};
    struct rg_graph_node *node = NULL;
    CUresult result = is_in_body(capture->graph) ? CUDA_ERROR_NOT_SUPPORTED
                                                 : gather(capture, captured->owner, ids, n, &before);
    if (result == CUDA_SUCCESS)
        result = rg_graph_add(capture->graph, work, before.at, before.edges, before.n, &node);
    else
        rg_graph_work_release(work);
    rg_capture_nodes_free(&before);
    if (result == CUDA_SUCCESS)
        node->work->captured = captured;
    else if (result != CUDA_ERROR_INVALID_VALUE)
        capture->invalid = true;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (!rg_capture_nodes_set(&rg_capture_find(ids[i]).stream->last, &node, NULL, 1))
            capture->invalid = true; /* which its end tells: the node is there */
    return result;
}

/* What the node is to who does not know better. */
static void CUDA_CB never_called(void *nothing)
{
    (void)nothing;
}

CUresult rg_captured_add(struct rg_captured_work *captured, const CUstream *streams, size_t n)
{
    RG_CLEANUP_FREE unsigned long long *ids = calloc(n, sizeof *ids);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    struct rg_graph_work *work;
    CUcontext context = NULL;
    if (!ids)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++)
        RG_TRY(cuStreamGetId(rg_graph_backend_stream(streams[i]), &ids[i]));
    RG_TRY(cuStreamGetCtx(rg_graph_backend_stream(streams[0]), &context));
    params.host.fn = never_called;
    RG_TRY(rg_graph_work_new(&params, NULL, &work));
    work->context = context;
    RG_GRAPH_LOCKED;
    struct rg_capture *capture = rg_capture_find(ids[0]).capture;
    if (capture && !capture->invalid)
        return add(capture, captured, work, ids, n);
    rg_graph_work_release(work);
    return capture ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
}
