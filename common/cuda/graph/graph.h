/*
 * graph.h - CUDA graphs as the client and the software device keep them: nodes, edges, executable copies, captures.
 *
 * These sources are compiled into both (they define the cuGraph functions there). A graph is kept as data: what its
 * nodes do (struct rg_graph_work, immutable, counted) and what they depend on. An executable graph is a copy of a
 * graph; a launch puts the work of its nodes into the stream, one after another in an order that the edges allow,
 * through the layer's own functions. Launches of one executable graph follow each other, as CUDA demands.
 *
 * What a capturing stream is given becomes a node instead: each function that takes a stream asks rg_capture_takes()
 * first. One lock (rg_graph_lock) guards all graphs and captures; it is a leaf but for questions about functions and
 * streams that touch neither. Handles are addresses of objects in a table of the living.
 */
#ifndef RG_GRAPH_H
#define RG_GRAPH_H

/* functions of the API leave a library whose map names them */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- what the layer gives (client/graph.c, softgpu/driver/graph.c) ------------------------------------------ */

/** What every call checks first: the library is in use, a context is current, it is not lost. */
CUresult rg_graph_enter(void);
/** The stream that a handle means in this call: NULL may be the thread's own. */
CUstream rg_graph_stream(CUstream stream);
bool rg_graph_event_known(CUevent event);
/**
 * Puts a copy into a stream. Host memory is read and written when the stream gets there, as page-locked memory is;
 * returns without waiting.
 */
CUresult rg_graph_copy(const CUDA_MEMCPY3D *copy, CUstream stream);
/** Says once that `what` is not supported; CUDA_ERROR_NOT_SUPPORTED. */
CUresult rg_graph_unsupported(const char *what);

/* --- graphs --------------------------------------------------------------------------------------------------- */

struct rg_graph;

#define RG_GRAPH_ATTRIBUTES_MAX 8

/* What a node does. Pointers in `params` are owned or valid as long as the application keeps its objects. */
struct rg_graph_work {
    _Atomic unsigned references;
    CUgraphNodeParams params;
    bool cooperative;
    int priority;
    unsigned n_attributes; /* of a captured launch */
    CUlaunchAttribute attributes[RG_GRAPH_ATTRIBUTES_MAX];
    struct rg_graph *child;            /* CU_GRAPH_NODE_TYPE_GRAPH: owned */
    _Alignas(16) unsigned char data[]; /* kernels: pointers to parameters, parameters */
};

enum rg_graph_kind { RG_GRAPH_KIND_GRAPH = 1, RG_GRAPH_KIND_NODE, RG_GRAPH_KIND_EXEC };

/* First member of everything with a handle. */
struct rg_graph_object {
    enum rg_graph_kind kind;
    struct rg_graph_object *next;
};

struct rg_graph_node {
    struct rg_graph_object object;
    struct rg_graph *graph;
    struct rg_graph_work *work;
    uint64_t id, origin; /* origin: id of the node this one was cloned from */
    struct rg_graph_node **dependencies;
    size_t n_dependencies, room;
    size_t index;  /* in graph->nodes */
    bool disabled; /* in executable graphs */
    bool mark;
};

struct rg_graph {
    struct rg_graph_object object;
    struct rg_graph_node **nodes; /* in order of creation */
    size_t n, room;
    uint64_t id, origin;
    bool owned; /* by a child graph node or an executable graph */
    unsigned captures;
    struct rg_graph_node **order; /* of executable graphs: every node behind what it depends on */
};

struct rg_graph_exec {
    struct rg_graph_object object;
    struct rg_graph *graph;
    unsigned long long flags;
    CUevent last; /* recorded behind every launch */
    bool launched;
};

extern pthread_mutex_t rg_graph_lock;

/* All with the lock held. */
void rg_graph_register(struct rg_graph_object *object, enum rg_graph_kind kind);
void *rg_graph_find(const void *handle, enum rg_graph_kind kind);
void rg_graph_unregister(struct rg_graph_object *object);
uint64_t rg_graph_next_id(void);
struct rg_graph *rg_graph_new(void);
void rg_graph_free(struct rg_graph *graph);
CUresult rg_graph_clone(const struct rg_graph *from, struct rg_graph **out);
/** Adds a node; takes over the reference to `work`, also on failure. */
CUresult rg_graph_add(struct rg_graph *graph, struct rg_graph_work *work,
                      struct rg_graph_node *const *dependencies, size_t n, struct rg_graph_node **out);
CUresult rg_graph_remove(struct rg_graph_node *node);
CUresult rg_graph_connect(struct rg_graph_node *from, struct rg_graph_node *to);
bool rg_graph_depends(const struct rg_graph_node *node, const struct rg_graph_node *on);
/** Fills graph->order; CUDA_ERROR_INVALID_VALUE if there is a cycle. */
CUresult rg_graph_sort(struct rg_graph *graph);
/** Whether it is safe to use every handle; the nodes must be of `graph`. */
CUresult rg_graph_nodes(const struct rg_graph *graph, const CUgraphNode *handles, size_t n);

/* Without the lock: they ask the layer. */
/** What a node with these parameters does; all is copied. */
CUresult rg_graph_work_new(const CUgraphNodeParams *params, struct rg_graph_work **out);
/** Takes over what parameters do not say: how a kernel is launched. */
void rg_graph_work_inherit(struct rg_graph_work *work, const struct rg_graph_work *from);
void rg_graph_work_release(struct rg_graph_work *work);
static inline struct rg_graph_work *rg_graph_work_acquire(struct rg_graph_work *work)
{
    atomic_fetch_add(&work->references, 1);
    return work;
}

/* --- captures: capture.c --------------------------------------------------------------------------------------- */

extern atomic_uint rg_captures; /* under way */

/** Whether this call must go to the rg_capture functions: something captures, and this stream takes part or may not. */
bool rg_capture_stream(CUstream stream);
static inline bool rg_capture_takes(CUstream stream)
{
    return atomic_load_explicit(&rg_captures, memory_order_relaxed) != 0 && rg_capture_stream(stream);
}
/** The stream's work as a node. All return what the captured call returns. */
CUresult rg_capture_kernel(const CUlaunchConfig *config, CUfunction function, bool cooperative, void **params,
                           void **extra);
CUresult rg_capture_copy(const CUDA_MEMCPY3D *copy, CUstream stream);
CUresult rg_capture_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream);
CUresult rg_capture_copy_1d(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                            size_t size, CUstream stream);
CUresult rg_capture_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                         size_t height, CUstream stream);
CUresult rg_capture_host(CUhostFn function, void *user, CUstream stream);
/** A call that cannot be captured: the capture is invalid from now on. */
CUresult rg_capture_refuse(CUstream stream);
/** The same, and says why: allocations of streams. */
CUresult rg_capture_refuse_memory(CUstream stream);
CUresult rg_capture_launch(struct rg_graph_exec *exec, CUstream stream);
/**
 * Events: true with *result if the call is the capture's business. `record`: otherwise the event is forgotten by
 * captures.
 */
bool rg_capture_record(CUevent event, CUstream stream, unsigned flags, CUresult *result);
bool rg_capture_wait(CUevent event, CUstream stream, unsigned flags, CUresult *result);
/** Whether the event was last recorded in a capturing stream: it cannot be queried or waited for. */
bool rg_capture_event(CUevent event);
static inline bool rg_capture_asked(CUevent event, CUresult *result)
{
    *result = CUDA_ERROR_CAPTURED_EVENT;
    return rg_capture_event(event);
}
/** CUDA_SUCCESS, or the error of a call that is unsafe while something captures (which invalidates that). */
CUresult rg_capture_unsafe(void);
static inline bool rg_capture_forbids(CUresult *result)
{
    *result = rg_capture_unsafe();
    return *result != CUDA_SUCCESS;
}
/** An event ends. */
void rg_capture_forget_event(CUevent event);

#endif
