/*
 * capture_event.c - events of captures: one that was recorded in a stream that captures stands for what the
 * stream had then, and a stream that waits for it joins the capture. See capture.c.
 */
#include "common/base/status.h"
#include "common/cuda/errors.h"
#include "common/cuda/graph/capture.h"

#include <stdlib.h>

struct captured_event {
    struct captured_event *next;
    CUevent event;
    uint64_t capture;
    struct rg_capture_nodes at;
};

static atomic_uint n_events; /* in the list */
static struct captured_event *events;

static struct captured_event *find_event(CUevent event)
{
    struct captured_event *e = events;
    while (e && e->event != event)
        e = e->next;
    return e;
}

static void forget_event(CUevent event)
{
    for (struct captured_event **at = &events; *at; at = &(*at)->next)
        if ((*at)->event == event) {
            struct captured_event *gone = *at;
            *at = gone->next;
            rg_capture_nodes_free(&gone->at);
            free(gone);
            atomic_fetch_sub(&n_events, 1);
            return;
        }
}

/* From now on the event stands for these nodes; the lock is held. */
static CUresult set_event(CUevent event, struct rg_capture *capture, const struct rg_capture_nodes *nodes)
{
    forget_event(event);
    struct captured_event *e = calloc(1, sizeof *e);
    if (!e || !rg_capture_nodes_set(&e->at, nodes->at, nodes->edges, nodes->n)) {
        free(e);
        capture->invalid = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    e->event = event;
    e->capture = capture->id;
    e->next = events;
    events = e;
    atomic_fetch_add(&n_events, 1);
    return CUDA_SUCCESS;
}

CUresult rg_capture_note_event(CUevent event, struct rg_graph_node *node, unsigned char port, CUstream stream)
{
    struct rg_capture_place place;
    CUgraphEdgeData data = {.from_port = port, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    const struct rg_capture_nodes nodes = {&node, &data, 1};
    if (!rg_graph_backend_event_known(event))
        return rg_cuda_no_object(event);
    RG_TRY(rg_capture_enter(stream, &place));
    CUresult result = set_event(event, place.capture, &nodes);
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

bool rg_capture_record(CUevent event, CUstream stream, unsigned flags, CUresult *result)
{
    if (!atomic_load(&rg_captures) && !atomic_load(&n_events))
        return false;
    if (!rg_capture_takes(stream)) {
        rg_capture_forget_event(event);
        return false;
    }
    if (!rg_graph_backend_event_known(event)) {
        *result = rg_cuda_no_object(event);
        return true;
    }
    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
        node.eventRecord.event = event;
        *result = rg_capture_add(&node, stream);
        return true;
    }
    struct rg_capture_place place;
    *result = rg_capture_enter(stream, &place);
    if (*result != CUDA_SUCCESS)
        return true;
    *result = set_event(event, place.capture, &place.stream->last);
    pthread_mutex_unlock(&rg_graph_lock);
    return true;
}

/* What waiting for `e` (NULL: an event of no capture) means for the stream; the lock is held. */
static CUresult join(const struct rg_capture_who *who, const struct captured_event *e)
{
    struct rg_capture_place place = rg_capture_find(who->id);
    struct rg_capture *other = e ? rg_capture_by_id(e->capture) : NULL;
    if (place.capture && place.capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!other) {
        if (!place.capture)
            return CUDA_ERROR_CAPTURED_EVENT; /* of a capture that has ended */
        place.capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (other->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (place.capture && place.capture != other) {
        place.capture->invalid = other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (who->legacy) {
        other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!place.capture) {
        struct rg_captured_stream *s = calloc(1, sizeof *s);
        if (!s)
            return CUDA_ERROR_OUT_OF_MEMORY;
        s->stream = who->id;
        s->blocking = who->blocking;
        s->next = other->streams;
        other->streams = s;
        place = (struct rg_capture_place){other, s};
    }
    return rg_capture_nodes_add(&place.stream->last, e->at.at, e->at.edges, e->at.n)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

bool rg_capture_wait(CUevent event, CUstream stream, unsigned flags, CUresult *result)
{
    struct rg_capture_who who;
    if (!atomic_load(&rg_captures) && !atomic_load(&n_events))
        return false;
    if (rg_capture_identify(stream, &who) != CUDA_SUCCESS)
        return false;
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
        node.eventWait.event = event;
        const bool takes = rg_capture_takes(stream);
        if (takes)
            *result = rg_capture_add(&node, stream);
        return takes;
    }
    RG_GRAPH_LOCKED;
    const struct captured_event *e = find_event(event);
    const bool ours = e || rg_capture_find(who.id).capture;
    if (ours)
        *result = join(&who, e);
    return ours;
}

bool rg_capture_event(CUevent event)
{
    if (!atomic_load(&n_events))
        return false;
    RG_GRAPH_LOCKED;
    const struct captured_event *e = find_event(event);
    struct rg_capture *capture = e ? rg_capture_by_id(e->capture) : NULL;
    if (capture)
        capture->invalid = true;
    return e != NULL;
}

void rg_capture_forget_event(CUevent event)
{
    if (!atomic_load(&n_events))
        return;
    RG_GRAPH_LOCKED;
    forget_event(event);
}

static bool in_set(const struct rg_capture_nodes *set, const struct rg_graph_node *node)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->at[i] == node)
            return true;
    return false;
}

bool rg_capture_needs(const struct rg_graph_node *node)
{
    for (const struct rg_capture *c = rg_capture_list; c; c = c->next)
        if (c->graph == node->graph)
            return true;
    for (const struct captured_event *e = events; e; e = e->next)
        if (rg_capture_by_id(e->capture) && in_set(&e->at, node))
            return true;
    return false;
}
