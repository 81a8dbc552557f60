/*
 * capture.c - stream capture: what streams are given becomes nodes of a graph. See graph.h.
 *
 * A capture is begun on one stream, its origin. Each stream of it has a set of nodes that what comes next depends on.
 * An event recorded in such a stream stands for that set; a stream that waits for the event joins the capture. When
 * the capture ends, the other streams must have been joined back: all that was captured is before the origin's set.
 * A call that cannot be captured invalidates the capture; everything in its streams then fails until it has ended.
 */
#include "common/cuda/graph/capture.h"

#include <stdlib.h>
#include <string.h>

struct captured_event {
    struct captured_event *next;
    CUevent event;
    uint64_t capture;
    struct rg_capture_nodes at;
};

atomic_uint rg_captures;
static atomic_uint n_events; /* in the list */
struct rg_capture *rg_capture_list;
static struct captured_event *events;
__thread CUstreamCaptureMode rg_capture_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* --- sets of nodes; all from here to the calls with the graphs' lock held --- */

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

static struct rg_capture *find_capture(uint64_t id)
{
    struct rg_capture *c = rg_capture_list;
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
            rg_capture_nodes_free(&gone->at);
            free(gone);
            atomic_fetch_sub(&n_events, 1);
            return;
        }
}

CUresult rg_capture_identify(CUstream handle, struct rg_capture_who *who)
{
    unsigned flags = 0;
    CUstream stream = rg_graph_stream(handle);
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
    pthread_mutex_lock(&rg_graph_lock);
    const bool takes = who.legacy ? rg_capture_blocking() != NULL : rg_capture_find(who.id).capture != NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    return takes;
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

/* A kernel that may begin before those it follows have ended depends on them by their programmatic port. */
static void make_programmatic(struct rg_capture_nodes *last)
{
    for (size_t i = 0; i < last->n; i++)
        if (last->at[i]->work->params.type == CU_GRAPH_NODE_TYPE_KERNEL &&
            rg_graph_edge_plain(&last->edges[i]))
            last->edges[i] = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                               .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

/* The work as a node behind what the stream has so far; it is taken over. */
static CUresult add_work(struct rg_graph_work *work, bool programmatic, CUstream stream,
                         struct rg_graph_node **out)
{
    struct rg_capture_place place;
    CUcontext context = NULL;
    if (cuStreamGetCtx(rg_graph_stream(stream), &context) == CUDA_SUCCESS)
        work->context = context;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_lock(&rg_graph_lock);
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        return result;
    }
    struct rg_capture_nodes *last = &place.stream->last;
    struct rg_graph *graph = place.capture->graph;
    if (work->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        result = rg_graph_memory_freed_by(work->params.free.dptr, graph);
    if (result != CUDA_SUCCESS) {
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        return result;
    }
    if (work->memory)
        rg_graph_memory_made_by(work->memory, graph);
    if (programmatic)
        make_programmatic(last);
    result = rg_graph_add(graph, work, last->at, last->edges, last->n, out);
    if (result == CUDA_SUCCESS && !rg_capture_nodes_set(last, out, NULL, 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

/* What a captured launch asks for beside its node's attributes. */
struct launch_wishes {
    bool programmatic;                    /* may begin before what it follows has ended */
    CUevent when_triggered, when_started; /* events to record at the kernel's ports */
};

/* The attributes of a captured launch that its node keeps; false for those that it could not. */
static bool keep_attributes(struct rg_graph_work *work, const CUlaunchConfig *config,
                            struct launch_wishes *wishes)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch ((int)attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: /* told apart */
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            work->priority = attribute->value.priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            wishes->programmatic = attribute->value.programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            wishes->when_triggered = attribute->value.programmaticEvent.event;
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            wishes->when_started = attribute->value.launchCompletionEvent.event;
            break;
        default:
            if (!rg_graph_work_attribute(work, attribute))
                return false;
        }
    }
    return true;
}

/* The event stands for one node's port. */
static CUresult note_event(CUevent event, struct rg_graph_node *node, unsigned char port, CUstream stream);

static CUresult add(const CUgraphNodeParams *params, CUstream stream)
{
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    struct rg_capture_place place;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result;
    CUgraph into = (CUgraph)place.capture->graph;
    pthread_mutex_unlock(&rg_graph_lock);
    result = rg_graph_work_new(params, into, &work);
    if (result == CUDA_SUCCESS)
        return add_work(work, false, stream, &node);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        (void)rg_capture_refuse(stream);
    return result;
}

/* --- what the layers' functions call --- */

CUresult rg_capture_kernel(const CUlaunchConfig *config, CUfunction function, bool cooperative, void **params,
                           void **extra)
{
    CUgraphNodeParams described = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    described.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
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
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    struct launch_wishes wishes = {0};
    CUresult result = rg_graph_work_new(&described, NULL, &work);
    if (result != CUDA_SUCCESS)
        return result;
    work->cooperative = cooperative;
    (void)cuStreamGetPriority(rg_graph_stream(config->hStream), &work->priority);
    if (!keep_attributes(work, config, &wishes)) {
        pthread_mutex_lock(&rg_graph_lock);
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        (void)rg_graph_unsupported("a captured launch with so many attributes");
        return rg_capture_refuse(config->hStream);
    }
    result = add_work(work, wishes.programmatic, config->hStream, &node);
    if (result == CUDA_SUCCESS && wishes.when_triggered)
        result =
            note_event(wishes.when_triggered, node, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, config->hStream);
    if (result == CUDA_SUCCESS && wishes.when_started)
        result =
            note_event(wishes.when_started, node, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER, config->hStream);
    return result;
}

CUresult rg_capture_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return CUDA_SUCCESS;
    node.memcpy.copyParams = *copy;
    return add(&node, stream);
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
    return add(&node, stream);
}

CUresult rg_capture_host(CUhostFn function, void *user, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_HOST};
    node.host.fn = function;
    node.host.userData = user;
    return add(&node, stream);
}

CUresult rg_capture_refuse(CUstream stream)
{
    struct rg_capture_place place;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result;
    place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult rg_capture_memops(const CUstreamBatchMemOpParams *operations, unsigned n, unsigned flags,
                           CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    node.memOp.count = n;
    node.memOp.flags = flags;
    node.memOp.paramArray = (CUstreamBatchMemOpParams *)(uintptr_t)operations;
    return add(&node, stream);
}

CUresult rg_capture_memop(CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
                          unsigned flags, CUstream stream)
{
    CUstreamBatchMemOpParams op = {.operation = operation};
    if (operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        op.waitValue.address = address;
        op.waitValue.value64 = value; /* the low half is the 32-bit value */
        op.waitValue.flags = flags;
    } else {
        op.writeValue.address = address;
        op.writeValue.value64 = value;
        op.writeValue.flags = flags;
    }
    return rg_capture_memops(&op, 1, 0, stream);
}

CUresult rg_capture_allocate(CUdeviceptr *out, size_t size, CUdevice device, CUstream stream)
{
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    CUgraphNodeParams described = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    described.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    described.alloc.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    described.alloc.bytesize = size;
    CUresult result = rg_graph_work_new(&described, NULL, &work);
    if (result != CUDA_SUCCESS)
        return result;
    const CUdeviceptr address = work->params.alloc.dptr;
    result = add_work(work, false, stream, &node);
    if (result == CUDA_SUCCESS)
        *out = address;
    else
        rg_graph_memory_collect();
    return result;
}

CUresult rg_capture_free(CUdeviceptr address, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    node.free.dptr = address;
    return add(&node, stream);
}

CUresult rg_capture_launch(CUgraph graph, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    node.graph.graph = graph;
    return add(&node, stream);
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

static CUresult note_event(CUevent event, struct rg_graph_node *node, unsigned char port, CUstream stream)
{
    struct rg_capture_place place;
    CUgraphEdgeData data = {.from_port = port, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    const struct rg_capture_nodes nodes = {&node, &data, 1};
    if (!rg_graph_event_known(event))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS)
        return result;
    result = set_event(event, place.capture, &nodes);
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
    if (!rg_graph_event_known(event)) {
        *result = CUDA_ERROR_INVALID_HANDLE;
        return true;
    }
    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
        node.eventRecord.event = event;
        *result = add(&node, stream);
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
    struct rg_capture *other = e ? find_capture(e->capture) : NULL;
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
            *result = add(&node, stream);
        return takes;
    }
    pthread_mutex_lock(&rg_graph_lock);
    const struct captured_event *e = find_event(event);
    const bool ours = e || rg_capture_find(who.id).capture;
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
    struct rg_capture *capture = e ? find_capture(e->capture) : NULL;
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
    if (!atomic_load(&rg_captures) || rg_capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&rg_graph_lock);
    for (struct rg_capture *c = rg_capture_list; c; c = c->next) {
        const bool mine = pthread_equal(c->thread, pthread_self());
        if ((mine && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
             rg_capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            c->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&rg_graph_lock);
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
        if (find_capture(e->capture) && in_set(&e->at, node))
            return true;
    return false;
}
