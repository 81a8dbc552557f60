/*
 * api.c - the driver's functions that make graphs and ask about them. See graph.h.
 *
 * Each checks with the layer that calls are possible, then its arguments, then works under the graphs' lock. Edges are
 * kept without their data: programmatic ones are full dependencies, which order no less.
 */
#include "common/cuda/graph/graph.h"

#include <stdio.h>
#include <string.h>

#define RETURN_IF(expression)                                                                                \
    do {                                                                                                     \
        CUresult result_ = (expression);                                                                     \
        if (result_ != CUDA_SUCCESS)                                                                         \
            return result_;                                                                                  \
    } while (0)

/* The lock until the end of the scope. */
static void unlock(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}
static pthread_mutex_t *lock(void)
{
    pthread_mutex_lock(&rg_graph_lock);
    return &rg_graph_lock;
}
#define LOCKED __attribute__((cleanup(unlock), unused)) pthread_mutex_t *locked_ = lock()

/* An object of the living, or return. */
#define GRAPH_OR_RETURN(var, handle)                                                                         \
    struct rg_graph *var = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);                                       \
    if (!var)                                                                                                \
    return CUDA_ERROR_INVALID_VALUE
#define NODE_OR_RETURN(var, handle)                                                                          \
    struct rg_graph_node *var = rg_graph_find(handle, RG_GRAPH_KIND_NODE);                                   \
    if (!var)                                                                                                \
    return CUDA_ERROR_INVALID_VALUE

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    RETURN_IF(rg_graph_enter());
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    struct rg_graph *graph = rg_graph_new();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    RETURN_IF(rg_graph_enter());
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    if (graph->owned || graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    rg_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph handle)
{
    RETURN_IF(rg_graph_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    struct rg_graph *clone;
    RETURN_IF(rg_graph_clone(graph, &clone));
    *out = (CUgraph)clone;
    return CUDA_SUCCESS;
}

/* --- adding nodes --- */

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t n,
                    const CUgraphNodeParams *params, bool cooperative)
{
    struct rg_graph_work *work;
    RETURN_IF(rg_graph_enter());
    if (!out || !params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH && (CUgraph)params->graph.graph == handle)
        return CUDA_ERROR_INVALID_VALUE;
    RETURN_IF(rg_graph_work_new(params, &work));
    work->cooperative = cooperative;
    LOCKED;
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    CUresult result = graph ? rg_graph_nodes(graph, dependencies, n) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        rg_graph_work_release(work);
        return result;
    }
    struct rg_graph_node *node;
    RETURN_IF(rg_graph_add(graph, work, (struct rg_graph_node *const *)(const void *)dependencies, n, &node));
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
    (void)edges;
    RETURN_IF(add(out, graph, dependencies, n, params, false));
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return cuGraphChildGraphNodeGetGraph(*out, &params->graph.graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                        CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(out, graph, dependencies, NULL, n, params);
}

static CUgraphNodeParams kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, p, sizeof *p); /* the newer forms begin with it */
    return params;
}

static CUgraphNodeParams kernel_v2(const CUDA_KERNEL_NODE_PARAMS *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, p, sizeof *p);
    return params;
}

static CUgraphNodeParams copy_params(const CUDA_MEMCPY3D *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = *p;
    return params;
}

static CUgraphNodeParams fill_params(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&params.memset, p, sizeof *p);
    params.memset.ctx = context;
    return params;
}

static CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    params.host.fn = p->fn;
    params.host.userData = p->userData;
    return params;
}

static CUgraphNodeParams event_params(CUgraphNodeType type, CUevent event)
{
    CUgraphNodeParams params = {.type = type};
    params.eventRecord.event = event;
    return params;
}

static CUgraphNodeParams child_params(CUgraph graph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = graph;
    return params;
}

/* The forms with a type of their own: NAME(…, argument) adds the node that `make` describes. */
#define ADDS(name, type, make)                                                                               \
    CUresult name(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n, type argument) \
    {                                                                                                        \
        CUgraphNodeParams params = make;                                                                     \
        return add(out, graph, dependencies, n, &params, false);                                             \
    }

static CUresult add_described(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                              const void *given, const CUgraphNodeParams *params)
{
    return given ? add(out, graph, dependencies, n, params, false) : CUDA_ERROR_INVALID_VALUE;
}

#define ADDS_DESCRIBED(name, type, make)                                                                     \
    CUresult name(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,                \
                  const type *argument)                                                                      \
    {                                                                                                        \
        CUgraphNodeParams params = {0};                                                                      \
        if (argument)                                                                                        \
            params = make(argument);                                                                         \
        return add_described(out, graph, dependencies, n, argument, &params);                                \
    }

ADDS_DESCRIBED(cuGraphAddKernelNode, CUDA_KERNEL_NODE_PARAMS_v1, kernel_v1)
ADDS_DESCRIBED(cuGraphAddKernelNode_v2, CUDA_KERNEL_NODE_PARAMS, kernel_v2)
ADDS_DESCRIBED(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS, host_params)
ADDS(cuGraphAddChildGraphNode, CUgraph, child_params(argument))
ADDS(cuGraphAddEventRecordNode, CUevent, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, argument))
ADDS(cuGraphAddEventWaitNode, CUevent, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, argument))

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(out, graph, dependencies, n, &params, false);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                              const CUDA_MEMCPY3D *copy, CUcontext context)
{
    CUgraphNodeParams params = {0};
    if (copy)
        params = copy_params(copy, context);
    return add_described(out, graph, dependencies, n, copy, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                              const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    CUgraphNodeParams params = {0};
    if (fill)
        params = fill_params(fill, context);
    return add_described(out, graph, dependencies, n, fill, &params);
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    RETURN_IF(rg_graph_enter());
    LOCKED;
    NODE_OR_RETURN(node, handle);
    return rg_graph_remove(node);
}

/* --- edges --- */

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t n,
                             bool adding)
{
    RETURN_IF(rg_graph_enter());
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    RETURN_IF(rg_graph_nodes(graph, from, n));
    RETURN_IF(rg_graph_nodes(graph, to, n));
    for (size_t i = 0; i < n; i++) {
        struct rg_graph_node *first = (struct rg_graph_node *)from[i],
                             *second = (struct rg_graph_node *)to[i];
        size_t at = 0;
        while (at < second->n_dependencies && second->dependencies[at] != first)
            at++;
        const bool there = at < second->n_dependencies;
        if (first == second || there == adding)
            return CUDA_ERROR_INVALID_VALUE;
        if (adding) {
            RETURN_IF(rg_graph_connect(first, second));
        } else {
            second->n_dependencies--;
            memmove(&second->dependencies[at], &second->dependencies[at + 1],
                    (second->n_dependencies - at) * sizeof(void *));
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
    return change_edges(graph, from, to, n, true);
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t n)
{
    (void)edges;
    return change_edges(graph, from, to, n, true);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
    return change_edges(graph, from, to, n, false);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edges, size_t n)
{
    (void)edges;
    return change_edges(graph, from, to, n, false);
}

/* --- questions: lists are returned into the caller's array, whose length *n becomes what was written (the number there
 * is, without an array); entries beyond it are NULL. --- */

struct list {
    CUgraphNode *to, *second;
    CUgraphEdgeData *edges;
    size_t room, n;
};

static void put(struct list *list, const struct rg_graph_node *node, const struct rg_graph_node *second)
{
    if (list->to && list->n < list->room)
        list->to[list->n] = (CUgraphNode)(uintptr_t)node;
    if (list->second && list->n < list->room)
        list->second[list->n] = (CUgraphNode)(uintptr_t)second;
    if (list->edges && list->n < list->room)
        memset(&list->edges[list->n], 0, sizeof *list->edges);
    list->n++;
}

static void end_list(struct list *list, size_t *n)
{
    if (!list->to) {
        *n = list->n;
        return;
    }
    for (size_t i = list->n; i < list->room; i++) {
        list->to[i] = NULL;
        if (list->second)
            list->second[i] = NULL;
    }
    *n = list->n < list->room ? list->n : list->room;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *n, bool roots)
{
    RETURN_IF(rg_graph_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    struct list list = {.to = nodes, .room = *n};
    for (size_t i = 0; i < graph->n; i++)
        if (!roots || !graph->nodes[i]->n_dependencies)
            put(&list, graph->nodes[i], NULL);
    end_list(&list, n);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    return list_nodes(graph, nodes, n, false);
}
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    return list_nodes(graph, nodes, n, true);
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                            size_t *n)
{
    RETURN_IF(rg_graph_enter());
    if (!n || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    struct list list = {.to = from, .second = to, .edges = edges, .room = *n};
    for (size_t i = 0; i < graph->n; i++)
        for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
            put(&list, graph->nodes[i]->dependencies[d], graph->nodes[i]);
    end_list(&list, n);
    return CUDA_SUCCESS;
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, n);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                       size_t *n)
{
    RETURN_IF(rg_graph_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    struct list list = {.to = nodes, .edges = edges, .room = *n};
    for (size_t i = 0; i < node->n_dependencies; i++)
        put(&list, node->dependencies[i], NULL);
    end_list(&list, n);
    return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, n);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                         size_t *n)
{
    RETURN_IF(rg_graph_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    struct list list = {.to = nodes, .edges = edges, .room = *n};
    for (size_t i = 0; i < node->graph->n; i++)
        for (size_t d = 0; d < node->graph->nodes[i]->n_dependencies; d++)
            if (node->graph->nodes[i]->dependencies[d] == node)
                put(&list, node->graph->nodes[i], NULL);
    end_list(&list, n);
    return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, n);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    RETURN_IF(rg_graph_enter());
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    *type = node->work->params.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode handle, CUgraph clone)
{
    RETURN_IF(rg_graph_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    GRAPH_OR_RETURN(graph, clone);
    for (size_t i = 0; i < graph->n; i++)
        if (graph->nodes[i]->origin == node->id) {
            *out = (CUgraphNode)graph->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- parameters --- */

static CUresult get(CUgraphNode handle, CUgraphNodeType type, const void *out, CUgraphNodeParams *params)
{
    RETURN_IF(rg_graph_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    if (node->work->params.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->work->params;
    return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode handle, const void *given, const CUgraphNodeParams *params)
{
    struct rg_graph_work *work;
    RETURN_IF(rg_graph_enter());
    if (!given)
        return CUDA_ERROR_INVALID_VALUE;
    RETURN_IF(rg_graph_work_new(params, &work));
    LOCKED;
    struct rg_graph_node *node = rg_graph_find(handle, RG_GRAPH_KIND_NODE);
    if (!node || node->work->params.type != params->type) {
        rg_graph_work_release(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    rg_graph_work_inherit(work, node->work);
    rg_graph_work_release(node->work);
    node->work = work;
    return CUDA_SUCCESS;
}

#define SETS(name, type, make)                                                                               \
    CUresult name(CUgraphNode node, const type *argument)                                                    \
    {                                                                                                        \
        CUgraphNodeParams params = {0};                                                                      \
        if (argument)                                                                                        \
            params = make(argument);                                                                         \
        return set(node, argument, &params);                                                                 \
    }
#define GETS(name, type, kind, member)                                                                       \
    CUresult name(CUgraphNode node, type *out)                                                               \
    {                                                                                                        \
        CUgraphNodeParams params;                                                                            \
        RETURN_IF(get(node, kind, out, &params));                                                            \
        memcpy(out, &params.member, sizeof *out);                                                            \
        return CUDA_SUCCESS;                                                                                 \
    }
#define NO_CONTEXT(argument)      copy_params(argument, NULL)
#define NO_CONTEXT_FILL(argument) fill_params(argument, NULL)

SETS(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, kernel_v1)
SETS(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, kernel_v2)
SETS(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D, NO_CONTEXT)
SETS(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS, NO_CONTEXT_FILL)
SETS(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, host_params)
GETS(cuGraphKernelNodeGetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
GETS(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
GETS(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams)
GETS(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, memset)
GETS(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
GETS(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord.event)
GETS(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait.event)
GETS(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, graph.graph)

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams params = event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return set(node, &params, &params);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    CUgraphNodeParams params = event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return set(node, &params, &params);
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    return set(node, params, params);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value)
{
    RETURN_IF(rg_graph_enter());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    NODE_OR_RETURN(node, handle);
    if (node->work->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, sizeof *value);
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        value->cooperative = node->work->cooperative;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = node->work->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return CUDA_SUCCESS;
    default:
        return rg_graph_unsupported("an attribute of graphs' kernel nodes");
    }
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    RETURN_IF(rg_graph_enter());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || attribute == CU_LAUNCH_ATTRIBUTE_IGNORE)
        return CUDA_SUCCESS; /* a hint */
    if (attribute != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY)
        return rg_graph_unsupported("an attribute of graphs' kernel nodes");
    CUgraphNodeParams params;
    RETURN_IF(get(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &params));
    RETURN_IF(
        set(handle, value, &params)); /* what it does is shared with copies of the graph: one of its own */
    LOCKED;
    NODE_OR_RETURN(node, handle);
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        node->work->cooperative = value->cooperative != 0;
    else
        node->work->priority = value->priority;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    CUkernelNodeAttrValue value;
    RETURN_IF(cuGraphKernelNodeGetAttribute(from, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    RETURN_IF(cuGraphKernelNodeSetAttribute(to, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    RETURN_IF(cuGraphKernelNodeGetAttribute(from, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    return cuGraphKernelNodeSetAttribute(to, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
    static const char *const names[] = {"KERNEL", "MEMCPY", "MEMSET",     "HOST",
                                        "GRAPH",  "EMPTY",  "EVENT_WAIT", "EVENT_RECORD"};
    (void)flags;
    RETURN_IF(rg_graph_enter());
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    FILE *file = fopen(path, "we");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    for (size_t i = 0; i < graph->n; i++) {
        fprintf(file, "\"node_%zu\" [label=\"%zu %s\"];\n", i, i, names[graph->nodes[i]->work->params.type]);
        for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
            fprintf(file, "\"node_%zu\" -> \"node_%zu\";\n", graph->nodes[i]->dependencies[d]->index, i);
    }
    fprintf(file, "}\n");
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
