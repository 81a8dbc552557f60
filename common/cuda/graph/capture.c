/*
 * capture.c - stream capture: what streams are given becomes nodes of a graph. See graph.h.
 *
 * A capture is begun on one stream, its origin. Each stream of it has a set of nodes that what comes next depends on.
 * An event recorded in such a stream stands for that set; a stream that waits for the event joins the capture. When
 * the capture ends, the other streams must have been joined back: all that was captured is before the origin's set.
 * A call that cannot be captured invalidates the capture; everything in its streams then fails until it has ended.
 */
#include "common/cuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

struct nodes {
    struct rg_graph_node **at;
    size_t n;
};

struct captured_stream {
    struct captured_stream *next;
    unsigned long long stream; /* cuStreamGetId */
    bool blocking;             /* orders itself against the legacy stream */
    struct nodes last;
};

struct capture {
    struct capture *next;
    uint64_t id;
    struct rg_graph *graph;
    bool own_graph; /* it was made for the capture */
    bool invalid;
    CUstreamCaptureMode mode;
    pthread_t thread;
    unsigned long long origin;
    struct captured_stream *streams;
};

struct captured_event {
    struct captured_event *next;
    CUevent event;
    uint64_t capture;
    struct nodes at;
};

atomic_uint rg_captures;
static atomic_uint n_events; /* in the list */
static struct capture *captures;
static struct captured_event *events;
static uint64_t next_capture = 1;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread struct nodes reported; /* what cuStreamGetCaptureInfo returned last */

/* --- sets of nodes; all from here to the calls with the graphs' lock held --- */

static bool nodes_add(struct nodes *set, struct rg_graph_node *const *more, size_t n)
{
    struct rg_graph_node **bigger = realloc(set->at, (set->n + n + 1) * sizeof(void *));
    if (!bigger)
        return false;
    set->at = bigger;
    for (size_t i = 0; i < n; i++) {
        size_t j = 0;
        while (j < set->n && set->at[j] != more[i])
            j++;
        if (j == set->n)
            set->at[set->n++] = more[i];
    }
    return true;
}

static bool nodes_set(struct nodes *set, struct rg_graph_node *const *to, size_t n)
{
    set->n = 0;
    return nodes_add(set, to, n);
}

static void nodes_free(struct nodes *set)
{
    free(set->at);
    *set = (struct nodes){0};
}

/* --- who captures what --- */

struct place {
    struct capture *capture; /* NULL: the stream does not capture */
    struct captured_stream *stream;
};

static struct place find(unsigned long long id)
{
    for (struct capture *c = captures; c; c = c->next)
        for (struct captured_stream *s = c->streams; s; s = s->next)
            if (s->stream == id)
                return (struct place){c, s};
    return (struct place){NULL, NULL};
}

static struct capture *find_capture(uint64_t id)
{
    struct capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

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
            nodes_free(&gone->at);
            free(gone);
            atomic_fetch_sub(&n_events, 1);
            return;
        }
}

/* What a stream handle means: its id, whether it is the legacy stream, whether that orders itself against it. */
struct who {
    unsigned long long id;
    bool legacy, blocking;
};

static CUresult identify(CUstream handle, struct who *who)
{
    unsigned flags = 0;
    CUstream stream = rg_graph_stream(handle);
    *who = (struct who){.legacy = !stream || stream == CU_STREAM_LEGACY};
    CUresult result = cuStreamGetId(stream, &who->id);
    if (result == CUDA_SUCCESS && !who->legacy) {
        result = cuStreamGetFlags(stream, &flags);
        who->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    }
    return result;
}

/* A capture with a stream that the legacy stream would have to wait for. */
static struct capture *blocking_capture(void)
{
    for (struct capture *c = captures; c; c = c->next)
        for (struct captured_stream *s = c->streams; s; s = s->next)
            if (s->blocking)
                return c;
    return NULL;
}

bool rg_capture_stream(CUstream stream)
{
    struct who who;
    if (identify(stream, &who) != CUDA_SUCCESS)
        return false;
    pthread_mutex_lock(&rg_graph_lock);
    const bool takes = who.legacy ? blocking_capture() != NULL : find(who.id).capture != NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    return takes;
}

/* The stream's place in a valid capture, with the lock taken on success. */
static CUresult enter(CUstream stream, struct place *place)
{
    struct who who;
    CUresult result = identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&rg_graph_lock);
    if (who.legacy) {
        struct capture *capture = blocking_capture();
        if (capture)
            capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else {
        *place = find(who.id);
        if (!place->capture)
            result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED; /* it ended meanwhile */
        else if (place->capture->invalid)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

static CUresult add_work(struct rg_graph_work *work, CUstream stream)
{
    struct place place;
    struct rg_graph_node *node;
    CUresult result = enter(stream, &place);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_lock(&rg_graph_lock);
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        return result;
    }
    result = rg_graph_add(place.capture->graph, work, place.stream->last.at, place.stream->last.n, &node);
    if (result == CUDA_SUCCESS && !nodes_set(&place.stream->last, &node, 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

/* The attributes of a captured launch that its node keeps; false for those that it could not. */
static bool keep_attributes(struct rg_graph_work *work, const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        switch ((int)config->attrs[i].id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:                       /* told apart */
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* allows overlap, does not demand it */
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            return false;
        default:
            if (work->n_attributes == RG_GRAPH_ATTRIBUTES_MAX)
                return false;
            work->attributes[work->n_attributes++] = config->attrs[i];
        }
    return true;
}

static CUresult add(const CUgraphNodeParams *params, const CUlaunchConfig *config, bool cooperative,
                    CUstream stream)
{
    struct rg_graph_work *work;
    CUresult result = rg_graph_work_new(params, &work);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        (void)rg_capture_refuse(stream);
        return result;
    }
    if (result != CUDA_SUCCESS)
        return result;
    work->cooperative = cooperative;
    if (config && !keep_attributes(work, config)) {
        rg_graph_work_release(work);
        (void)rg_graph_unsupported("a captured launch with such attributes");
        return rg_capture_refuse(stream);
    }
    return add_work(work, stream);
}

/* --- what the layers' functions call --- */

CUresult rg_capture_kernel(const CUlaunchConfig *config, CUfunction function, bool cooperative, void **params,
                           void **extra)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    node.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
        .func = function,
        .gridDimX = config->gridDimX,
        .gridDimY = config->gridDimY,
        .gridDimZ = config->gridDimZ,
        .blockDimX = config->blockDimX,
        .blockDimY = config->blockDimY,
        .blockDimZ = config->blockDimZ,
        .sharedMemBytes = config->sharedMemBytes,
        .kernelParams = params,
        .extra = extra,
    };
    return add(&node, config, cooperative, config->hStream);
}

CUresult rg_capture_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return CUDA_SUCCESS;
    node.memcpy.copyParams = *copy;
    return add(&node, NULL, false, stream);
}

CUresult rg_capture_copy_2d(const CUDA_MEMCPY2D *c, CUstream stream)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
    return rg_capture_copy(&copy, stream);
}

CUresult rg_capture_copy_1d(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                            size_t size, CUstream stream)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = size, .Height = 1, .Depth = 1};
    if (from_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = (const void *)(uintptr_t)from;
    else
        copy.srcDevice = from;
    if (to_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = (void *)(uintptr_t)to;
    else
        copy.dstDevice = to;
    return rg_capture_copy(&copy, stream);
}

CUresult rg_capture_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                         size_t height, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!width || !height)
        return CUDA_SUCCESS;
    node.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
        .dst = to, .pitch = pitch, .value = value, .elementSize = element, .width = width, .height = height};
    return add(&node, NULL, false, stream);
}

CUresult rg_capture_host(CUhostFn function, void *user, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_HOST};
    node.host.fn = function;
    node.host.userData = user;
    return add(&node, NULL, false, stream);
}

CUresult rg_capture_refuse(CUstream stream)
{
    struct place place;
    CUresult result = enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result;
    place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult rg_capture_refuse_memory(CUstream stream)
{
    (void)rg_graph_unsupported("memory allocation in graphs");
    return rg_capture_refuse(stream);
}

CUresult rg_capture_launch(struct rg_graph_exec *exec, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    node.graph.graph = (CUgraph)exec->graph;
    return add(&node, NULL, false, stream);
}

bool rg_capture_record(CUevent event, CUstream stream, unsigned flags, CUresult *result)
{
    if (!atomic_load(&rg_captures) && !atomic_load(&n_events))
        return false;
    if (!rg_capture_takes(stream)) {
        rg_capture_forget_event(event);
        return false;
    }
    if (!rg_graph_event_known(event)) {
        *result = CUDA_ERROR_INVALID_HANDLE;
        return true;
    }
    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
        node.eventRecord.event = event;
        *result = add(&node, NULL, false, stream);
        return true;
    }
    struct place place;
    *result = enter(stream, &place);
    if (*result != CUDA_SUCCESS)
        return true;
    forget_event(event);
    struct captured_event *e = calloc(1, sizeof *e);
    if (e && nodes_set(&e->at, place.stream->last.at, place.stream->last.n)) {
        e->event = event;
        e->capture = place.capture->id;
        e->next = events;
        events = e;
        atomic_fetch_add(&n_events, 1);
    } else {
        free(e);
        place.capture->invalid = true;
        *result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return true;
}

/* What waiting for `e` (NULL: an event of no capture) means for the stream; the lock is held. */
static CUresult join(const struct who *who, const struct captured_event *e)
{
    struct place place = find(who->id);
    struct capture *other = e ? find_capture(e->capture) : NULL;
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
        struct captured_stream *s = calloc(1, sizeof *s);
        if (!s)
            return CUDA_ERROR_OUT_OF_MEMORY;
        s->stream = who->id;
        s->blocking = who->blocking;
        s->next = other->streams;
        other->streams = s;
        place = (struct place){other, s};
    }
    return nodes_add(&place.stream->last, e->at.at, e->at.n) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool rg_capture_wait(CUevent event, CUstream stream, unsigned flags, CUresult *result)
{
    struct who who;
    if (!atomic_load(&rg_captures) && !atomic_load(&n_events))
        return false;
    if (identify(stream, &who) != CUDA_SUCCESS)
        return false;
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
        node.eventWait.event = event;
        const bool takes = rg_capture_takes(stream);
        if (takes)
            *result = add(&node, NULL, false, stream);
        return takes;
    }
    pthread_mutex_lock(&rg_graph_lock);
    const struct captured_event *e = find_event(event);
    const bool ours = e || find(who.id).capture;
    if (ours)
        *result = join(&who, e);
    pthread_mutex_unlock(&rg_graph_lock);
    return ours;
}

bool rg_capture_event(CUevent event)
{
    if (!atomic_load(&n_events))
        return false;
    pthread_mutex_lock(&rg_graph_lock);
    const struct captured_event *e = find_event(event);
    struct capture *capture = e ? find_capture(e->capture) : NULL;
    if (capture)
        capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return e != NULL;
}

void rg_capture_forget_event(CUevent event)
{
    if (!atomic_load(&n_events))
        return;
    pthread_mutex_lock(&rg_graph_lock);
    forget_event(event);
    pthread_mutex_unlock(&rg_graph_lock);
}

CUresult rg_capture_unsafe(void)
{
    if (!atomic_load(&rg_captures) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&rg_graph_lock);
    for (struct capture *c = captures; c; c = c->next) {
        const bool mine = pthread_equal(c->thread, pthread_self());
        if ((mine && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            c->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

/* --- the API --- */

static CUresult begin(CUstream stream, CUgraph handle, const CUgraphNode *dependencies, size_t n,
                      CUstreamCaptureMode mode)
{
    struct who who;
    CUresult result = rg_graph_enter();
    if (result == CUDA_SUCCESS)
        result = identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (who.legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct capture *capture = calloc(1, sizeof *capture);
    struct captured_stream *s = calloc(1, sizeof *s);
    pthread_mutex_lock(&rg_graph_lock);
    if (!capture || !s)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (find(who.id).capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) {
        capture->own_graph = !handle;
        capture->graph = handle ? rg_graph_find(handle, RG_GRAPH_KIND_GRAPH) : rg_graph_new();
        if (!capture->graph)
            result = handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && handle)
        result = rg_graph_nodes(capture->graph, dependencies, n);
    if (result == CUDA_SUCCESS &&
        !nodes_set(&s->last, (struct rg_graph_node *const *)(const void *)dependencies, handle ? n : 0))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        s->stream = capture->origin = who.id;
        s->blocking = who.blocking;
        capture->streams = s;
        capture->id = next_capture++;
        capture->mode = mode;
        capture->thread = pthread_self();
        capture->graph->captures++;
        capture->next = captures;
        captures = capture;
        atomic_fetch_add(&rg_captures, 1);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (result != CUDA_SUCCESS) {
        free(s);
        free(capture);
    }
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
    (void)edges;
    return graph ? begin(stream, graph, dependencies, n, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Whether all that other streams of the capture did is before the origin's last nodes. */
static bool joined(const struct capture *capture, const struct captured_stream *origin)
{
    for (const struct captured_stream *s = capture->streams; s; s = s->next)
        for (size_t i = 0; i < s->last.n; i++) {
            bool before = false;
            for (size_t j = 0; j < origin->last.n && !before; j++)
                before = rg_graph_depends(origin->last.at[j], s->last.at[i]);
            if (!before)
                return false;
        }
    return true;
}

static void end(struct capture *capture)
{
    for (struct capture **at = &captures; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    while (capture->streams) {
        struct captured_stream *s = capture->streams;
        capture->streams = s->next;
        nodes_free(&s->last);
        free(s);
    }
    capture->graph->captures--;
    free(capture);
    atomic_fetch_sub(&rg_captures, 1);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    struct who who;
    CUresult result = rg_graph_enter();
    if (result == CUDA_SUCCESS)
        result = identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    pthread_mutex_lock(&rg_graph_lock);
    struct place place = find(who.id);
    struct capture *capture = place.capture;
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
        if (result == CUDA_SUCCESS)
            *out = (CUgraph)graph;
        else if (own)
            rg_graph_free(graph);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

static CUresult info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *n)
{
    struct who who;
    CUresult result = rg_graph_enter();
    if (result == CUDA_SUCCESS)
        result = identify(stream, &who);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!atomic_load(&rg_captures))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&rg_graph_lock);
    struct place place = find(who.id);
    if (who.legacy && blocking_capture()) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (place.capture) {
        *status =
            place.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id)
            *id = place.capture->id;
        if (graph)
            *graph = (CUgraph)place.capture->graph;
        if (edges)
            *edges = NULL;
        if (dependencies || n) {
            if (!nodes_set(&reported, place.stream->last.at, place.stream->last.n))
                result = CUDA_ERROR_OUT_OF_MEMORY;
            if (dependencies)
                *dependencies = (const CUgraphNode *)(void *)reported.at;
            if (n)
                *n = reported.n;
        }
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return info(stream, status, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return info(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *n)
{
    return info(stream, status, id, graph, dependencies, NULL, n);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *n)
{
    return info(stream, status, id, graph, dependencies, edges, n);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t n,
                                           unsigned int flags)
{
    struct place place;
    CUresult result = rg_graph_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    result = enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ? CUDA_ERROR_ILLEGAL_STATE : result;
    result = rg_graph_nodes(place.capture->graph, dependencies, n);
    if (result == CUDA_SUCCESS) {
        struct rg_graph_node *const *nodes = (struct rg_graph_node *const *)(void *)dependencies;
        const bool kept = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
                              ? nodes_set(&place.stream->last, nodes, n)
                              : nodes_add(&place.stream->last, nodes, n);
        result = kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *edges, size_t n, unsigned int flags)
{
    (void)edges;
    return cuStreamUpdateCaptureDependencies(stream, dependencies, n, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = rg_graph_enter();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CONTEXT)
        return result;
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
