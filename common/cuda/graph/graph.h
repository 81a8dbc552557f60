/*
 * graph.h - CUDA graphs as the client and the software device keep them: nodes, edges, executable copies,
 * captures.
 *
 * These sources are compiled into both (they define the cuGraph functions there). A graph is kept as data:
 * what its nodes do (struct rg_graph_work, immutable, counted) and what they depend on. An executable graph
 * is a copy of a graph; from it a plan is made (plan.h), the flat list of what a launch does and in which
 * stream; a launch gives that to the layer's own functions. Launches of one executable graph follow each
 * other, as CUDA demands.
 *
 * What a capturing stream is given becomes a node instead: each function that takes a stream asks
 * rg_capture_takes() first. One lock (rg_graph_lock) guards all graphs and captures; it is a leaf but for
 * questions about functions and streams that touch neither. Handles are addresses of objects in a table of
 * the living.
 *
 *   backend.h                                what the includer supplies
 *   object.c, graph.c, work….c               handles; nodes and edges; what nodes do
 *   nodes.c, parameters.c, query.c, dot.c    the calls about them
 *   capture….c                               captures; of calls of libraries above the driver: captured.h
 *   exec.c, update.c, turn.c                 executable graphs
 *   plan.c, launch.c                         what a launch does
 *   memory.c, condition.c, user_object.c     what graphs own
 */
#ifndef RG_COMMON_CUDA_GRAPH_GRAPH_H
#define RG_COMMON_CUDA_GRAPH_GRAPH_H

#include "common/base/hash_table.h"
#include "common/cuda/graph/backend.h"
#include "common/cuda/graph/captured.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- graphs --- */

struct rg_graph;
struct rg_graph_memory;
struct rg_graph_condition;
struct rg_graph_plan;
struct rg_user_reference;

#define RG_GRAPH_ATTRIBUTES_MAX 8

/* What a node does. Pointers in `params` are owned or valid as long as the application keeps its objects. */
struct rg_graph_work {
    _Atomic unsigned references;
    CUgraphNodeParams params;
    CUcontext context; /* it belongs to */
    int cooperative;   /* as it was set; all but 0 is the same */
    int priority;
    unsigned n_attributes; /* of a kernel, but the two above */
    CUlaunchAttribute attributes[RG_GRAPH_ATTRIBUTES_MAX];
    unsigned n_children;                  /* a child graph, the bodies of a conditional node: owned */
    struct rg_graph **children;           /* in data */
    struct rg_graph_memory *memory;       /* allocation nodes: a reference */
    struct rg_graph_condition *condition; /* conditional nodes: a reference */
    struct rg_captured_work *captured;    /* calls of a library, instead of what params say; owned */
    _Alignas(16) unsigned char data[];    /* what params points to */
};

enum rg_graph_kind {
    RG_GRAPH_KIND_GRAPH = 1,
    RG_GRAPH_KIND_NODE,
    RG_GRAPH_KIND_EXEC,
    RG_GRAPH_KIND_USER_OBJECT
};

/* First member of everything with a handle. */
struct rg_graph_object {
    struct rg_hash_link link; /* in the table of the living */
    enum rg_graph_kind kind;
};

/* A dependency. */
struct rg_graph_edge {
    struct rg_graph_node *from;
    CUgraphEdgeData data;
};

struct rg_graph_node {
    struct rg_graph_object object;
    struct rg_graph *graph;
    struct rg_graph_work *work;
    uint64_t id, origin; /* origin: id of the node this one was cloned from */
    struct rg_graph_edge *dependencies;
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
    struct rg_graph *parent; /* the graph of the child graph or conditional node that owns this one */
    bool owned;              /* by such a node or an executable graph */
    bool body;               /* of a conditional node */
    unsigned captures;
    unsigned executables;                  /* made from it and alive */
    struct rg_graph_condition *conditions; /* handles created for it */
    struct rg_user_reference *users;       /* user objects it keeps */
    struct rg_graph_node **order;          /* of executable graphs: every node behind what it depends on */
};

struct rg_graph_exec {
    struct rg_graph_object object;
    struct rg_graph *graph;
    struct rg_graph *source; /* it was made from; of this id, if it still lives */
    uint64_t source_id;
    unsigned long long flags;
    struct rg_graph_plan *plan; /* NULL: to be made again at the next launch */
    CUevent last;               /* recorded behind every launch */
    CUcontext last_context;
};

/* --- handles: object.c --- */

extern pthread_mutex_t rg_graph_lock;
#define RG_GRAPH_LOCKED RG_SCOPED_LOCK(&rg_graph_lock)

/* All with the lock held. */
/** From now on its address is a handle of that kind. */
void rg_graph_register(struct rg_graph_object *object, enum rg_graph_kind kind);
/** The object that a handle names; NULL: none of that kind is registered. */
void *rg_graph_find(const void *handle, enum rg_graph_kind kind);
void rg_graph_unregister(struct rg_graph_object *object);
/** Never the same twice in a process, and not 0. */
uint64_t rg_graph_next_id(void);

/* --- structure: graph.c, with the lock held --- */

/** An empty graph, registered as one until rg_graph_free; NULL: no memory. */
struct rg_graph *rg_graph_new(void);
/** With its nodes; conditions and user objects lose one owner. NULL is fine. */
void rg_graph_free(struct rg_graph *graph);
/** A copy of everything; what it owns (conditions, user objects) is shared. */
CUresult rg_graph_clone(const struct rg_graph *from, struct rg_graph **out);
/** Adds a node; takes over the reference to `work`, also on failure. `edges` NULL: plain ones. */
CUresult rg_graph_add(struct rg_graph *graph, struct rg_graph_work *work,
                      struct rg_graph_node *const *dependencies, const CUgraphEdgeData *edges, size_t n,
                      struct rg_graph_node **out);
CUresult rg_graph_remove(struct rg_graph_node *node);
CUresult rg_graph_connect(struct rg_graph_node *from, struct rg_graph_node *to, const CUgraphEdgeData *data);
/** The dependency of `to` on `from`, or NULL. */
struct rg_graph_edge *rg_graph_edge(const struct rg_graph_node *to, const struct rg_graph_node *from);
/** Whether `node` comes after `on`, by any number of edges; both are of one graph. Uses the nodes' marks. */
bool rg_graph_depends(const struct rg_graph_node *node, const struct rg_graph_node *on);
/** Fills graph->order; CUDA_ERROR_INVALID_VALUE and a node of it (may be NULL) if there is a cycle. */
CUresult rg_graph_sort(struct rg_graph *graph, struct rg_graph_node **offender);
/** Whether it is safe to use every handle: nodes of `graph`, none twice, with edges that can be. */
CUresult rg_graph_nodes(const struct rg_graph *graph, const CUgraphNode *handles,
                        const CUgraphEdgeData *edges, size_t n);
/** Whether an edge that leaves `from` may be as it says; NULL: yes. */
CUresult rg_graph_check_edge(const struct rg_graph_node *from, const CUgraphEdgeData *data);
/** Whether the graph or one inside it has a node of a type in the set (1 << type). */
bool rg_graph_has(const struct rg_graph *graph, unsigned types);
#define RG_GRAPH_MEMORY_NODES (1u << CU_GRAPH_NODE_TYPE_MEM_ALLOC | 1u << CU_GRAPH_NODE_TYPE_MEM_FREE)
static inline bool rg_graph_edge_plain(const CUgraphEdgeData *data)
{
    return !data || (!data->from_port && !data->to_port && !data->type);
}
static inline bool rg_graph_edge_same(const CUgraphEdgeData *a, const CUgraphEdgeData *b)
{
    return a->from_port == b->from_port && a->to_port == b->to_port && a->type == b->type;
}

/* Without the lock: they ask the layer. */
/** What a node with these parameters does; all is copied. `into`: the graph it is for. */
CUresult rg_graph_work_new(const CUgraphNodeParams *params, CUgraph into, struct rg_graph_work **out);
/** Whether the parameters, and a node of them in `into` (NULL: in none), can be: what the above asks first. */
CUresult rg_graph_work_check(const CUgraphNodeParams *params, CUgraph into);
/** Takes over what parameters do not say: how a kernel is launched. */
void rg_graph_work_inherit(struct rg_graph_work *work, const struct rg_graph_work *from);
/**
 * The work of a conditional node with another condition; the bodies go along, so that `from` has none any
 * more. With the lock held; NULL: out of memory.
 */
struct rg_graph_work *rg_graph_work_with_condition(struct rg_graph_work *from,
                                                   struct rg_graph_condition *condition);
/** Keeps an attribute of a kernel; false if there is no room. */
bool rg_graph_work_attribute(struct rg_graph_work *work, const CUlaunchAttribute *attribute);
/** Drops a reference; with the lock held. */
void rg_graph_work_release(struct rg_graph_work *work);
static inline struct rg_graph_work *rg_graph_work_acquire(struct rg_graph_work *work)
{
    atomic_fetch_add(&work->references, 1);
    return work;
}

/* --- executable graphs: exec.c --- */

/** Launches and changes of one executable graph follow each other, and so do launches into one stream. */
struct rg_graph_turn {
    struct rg_graph_turn *next;
    CUgraphExec exec; /* need not be one */
    bool launches;
    unsigned long long stream; /* cuStreamGetId, of launches */
    int cancelled;             /* whether the thread could be before */
};
/** Waits until nobody has the graph, or the stream. *turn stays valid until the end. Before rg_graph_lock; any thread. */
void rg_graph_turn_begin(struct rg_graph_turn *turn);
void rg_graph_turn_end(const struct rg_graph_turn *turn);
/** The next launch needs a new plan; in a turn with it, without the graphs' lock. */
void rg_graph_exec_changed(struct rg_graph_exec *exec);
/** Frees `holder`, a graph that only keeps user objects, when the last launch has ended; as above. */
void rg_graph_users_replace(struct rg_graph_exec *exec, struct rg_graph *holder);

/* --- captures: capture.c --- */

extern atomic_uint rg_captures; /* under way */

/**
 * Whether this call must go to the rg_capture functions: something captures, and this stream takes part or
 * may not.
 */
bool rg_capture_stream(CUstream stream);
static inline bool rg_capture_takes(CUstream stream)
{
    return atomic_load_explicit(&rg_captures, memory_order_relaxed) != 0 && rg_capture_stream(stream);
}
/** The stream's work as a node. All return what the captured call returns. */
CUresult rg_capture_kernel(const CUlaunchConfig *config, CUfunction function, bool cooperative, void **params,
                           void **extra);
CUresult rg_capture_copy(const CUDA_MEMCPY3D *copy, CUstream stream);
CUresult rg_capture_copy_1d(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                            size_t size, CUstream stream);
CUresult rg_capture_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                         size_t height, CUstream stream);
CUresult rg_capture_host(CUhostFn function, void *user, CUstream stream);
/** A call that cannot be captured: the capture is invalid from now on. */
CUresult rg_capture_refuse(CUstream stream);
/** Waiting for, writing of a word in memory: a node of batched memory operations. */
CUresult rg_capture_memop(CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
                          unsigned flags, CUstream stream);
CUresult rg_capture_memops(const CUstreamBatchMemOpParams *operations, unsigned n, unsigned flags,
                           CUstream stream);
/** cuMemAllocAsync, from the pool of `device`; cuMemFreeAsync. */
CUresult rg_capture_allocate(CUdeviceptr *out, size_t size, CUdevice device, CUstream stream);
CUresult rg_capture_free(CUdeviceptr address, CUstream stream);
CUresult rg_capture_launch(CUgraph graph, CUstream stream);
/**
 * Events: true with *result if the call is the capture's business. `record`: otherwise the event is forgotten
 * by captures.
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
/** The same for a query, which is unsafe for other events too. */
static inline bool rg_capture_queried(CUevent event, CUresult *result)
{
    return rg_capture_asked(event, result) || rg_capture_forbids(result);
}
/** An event ends. */
void rg_capture_forget_event(CUevent event);
/**
 * Lets this thread do what it may not while something captures, for the graphs' own needs; returns what to
 * restore.
 */
CUstreamCaptureMode rg_capture_relax(void);
void rg_capture_restore(CUstreamCaptureMode mode);
/** With the lock held: no node has the work any more; rg_captured_collect ends it. */
void rg_captured_release(struct rg_captured_work *work);
/** With the lock held: a node goes; captures must not go on behind it. */
bool rg_capture_needs(const struct rg_graph_node *node);

/* --- memory of allocation nodes: memory.c --- */

/** Makes the memory of an allocation node; without the lock. */
CUresult rg_graph_memory_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct rg_graph_memory **out,
                             CUdeviceptr *address);
/** Frees what nothing refers to any more, and ends captured works; without the lock. */
void rg_graph_memory_collect(void);
/* With the lock held. */
void rg_graph_memory_release(struct rg_graph_memory *memory);
/** A free node for the address joins `graph`: whether it may, and that it did. */
CUresult rg_graph_memory_freed_by(CUdeviceptr address, const struct rg_graph *graph);
void rg_graph_memory_made_by(struct rg_graph_memory *memory, const struct rg_graph *graph);
/** A launch of the plan's graph allocates and frees: whether it may, and that it does. */
CUresult rg_graph_memory_launch(const struct rg_graph_plan *plan, bool auto_free);
/**
 * cuMemFree and cuMemFreeAsync ask this first (without the lock): true with *result if the address is of an
 * allocation node.
 */
bool rg_graph_memory_takes_free(CUdeviceptr address, CUresult *result);

/* --- conditions: condition.c --- */

struct rg_graph_condition {
    _Atomic unsigned references;
    struct rg_graph_condition *next; /* of its graph */
    CUgraphConditionalHandle handle;
    CUcontext context;
    unsigned initial, flags;
    bool used;              /* by a conditional node */
    _Atomic unsigned value; /* on the software device */
};

/* With the lock held. */
void rg_graph_condition_release(struct rg_graph_condition *condition);
/** The condition of this handle, of the graph or one that owns it, or NULL. */
struct rg_graph_condition *rg_graph_condition_find(const struct rg_graph *graph,
                                                   CUgraphConditionalHandle handle);
/** What kernels do to a handle; takes no lock that anything else holds. An unknown handle is ignored. */
void rg_graph_condition_set(CUgraphConditionalHandle handle, unsigned value);

/* --- user objects: user_object.c --- */

/* With the lock held. */
CUresult rg_graph_users_share(struct rg_graph *to, const struct rg_graph *from);
void rg_graph_users_release(struct rg_user_reference *users);

#endif
