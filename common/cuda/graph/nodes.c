/*
 * nodes.c - the calls that make graphs, nodes and edges, and end them. See graph.h.
 *
 * Each checks with the layer that calls are possible, then its arguments, then works under the graphs' lock.
 */
#include "common/cuda/graph/call.h"

#include <stddef.h>

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    RG_TRY(rg_graph_backend_enter());
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_new();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUgraph)graph;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph handle)
{
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    if (graph->owned || graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    rg_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    RG_TRY(rg_graph_backend_enter());
    RG_TRY(destroy(handle));
    rg_graph_memory_collect();
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph handle)
{
    RG_TRY(rg_graph_backend_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    if (rg_graph_has(graph, RG_GRAPH_MEMORY_NODES | 1u << CU_GRAPH_NODE_TYPE_CONDITIONAL))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct rg_graph *clone;
    RG_TRY(rg_graph_clone(graph, &clone));
    *out = (CUgraph)clone;
    return CUDA_SUCCESS;
}

/* --- adding nodes --- */

/* The work joins the graph; it is taken over. */
static CUresult join(CUgraph handle, struct rg_graph_work *work, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *edges, size_t n, struct rg_graph_node **out)
{
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    CUresult result = graph ? rg_graph_nodes(graph, dependencies, edges, n) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && work->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        result = rg_graph_memory_freed_by(work->params.free.dptr, graph);
    if (result != CUDA_SUCCESS) {
        rg_graph_work_release(work);
        return result;
    }
    if (work->memory)
        rg_graph_memory_made_by(work->memory, graph);
    return rg_graph_add(graph, work, (struct rg_graph_node *const *)(const void *)dependencies, edges, n,
                        out);
}

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies,
                    const CUgraphEdgeData *edges, size_t n, const CUgraphNodeParams *params)
{
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    RG_TRY(rg_graph_backend_enter());
    if (!out || !params)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_graph_work_new(params, handle, &work));
    CUresult result = join(handle, work, dependencies, edges, n, &node);
    if (result != CUDA_SUCCESS) {
        rg_graph_memory_collect();
        return result;
    }
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

/* Whether what the parameters do not use is zero. */
static bool rest_is_zero(const CUgraphNodeParams *p)
{
    static const size_t used[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = sizeof p->kernel,
        [CU_GRAPH_NODE_TYPE_MEMCPY] = sizeof p->memcpy,
        [CU_GRAPH_NODE_TYPE_MEMSET] = sizeof p->memset,
        [CU_GRAPH_NODE_TYPE_HOST] = sizeof p->host,
        [CU_GRAPH_NODE_TYPE_GRAPH] = sizeof p->graph,
        [CU_GRAPH_NODE_TYPE_EMPTY] = 0,
        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = sizeof p->eventWait,
        [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = sizeof p->eventRecord,
        [CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL] = sizeof p->extSemSignal,
        [CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT] = sizeof p->extSemWait,
        [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = sizeof p->alloc,
        [CU_GRAPH_NODE_TYPE_MEM_FREE] = sizeof p->free,
        [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = sizeof p->memOp,
        [CU_GRAPH_NODE_TYPE_CONDITIONAL] = sizeof p->conditional,
    };
    if ((unsigned)p->type >= sizeof used / sizeof *used || p->reserved0[0] || p->reserved0[1] ||
        p->reserved0[2] || p->reserved2)
        return false;
    const unsigned char *bytes = (const unsigned char *)p;
    for (size_t i = offsetof(CUgraphNodeParams, kernel) + used[p->type];
         i < offsetof(CUgraphNodeParams, reserved2); i++)
        if (bytes[i])
            return false;
    return true;
}

/* Some parameters are outputs. */
static void report(CUgraphNode handle, CUgraphNodeParams *params)
{
    RG_GRAPH_LOCKED;
    const struct rg_graph_node *node = rg_graph_find(handle, RG_GRAPH_KIND_NODE);
    if (!node)
        return;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        params->graph.graph = node->work->params.graph.graph;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        params->alloc.dptr = node->work->params.alloc.dptr;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        params->conditional.phGraph_out = node->work->params.conditional.phGraph_out;
        break;
    default:
        break;
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
    RG_TRY(rg_graph_backend_enter());
    if (!params || !rest_is_zero(params))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(add(out, graph, dependencies, edges, n, params));
    report(*out, params);
    return CUDA_SUCCESS;
}

/* Adds a node whose `size` bytes of parameters stand at `offset` in those of any node. */
static CUresult add_kind(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                         CUgraphNodeType type, const void *argument, size_t size, size_t offset)
{
    CUgraphNodeParams params = {.type = type};
    RG_TRY(rg_graph_backend_enter());
    if (!argument)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((unsigned char *)&params + offset, argument, size);
    return add(out, graph, dependencies, NULL, n, &params);
}

/* The older forms of parameters begin the newer ones. */
#define ADDS(name, type, kind, member)                                                                       \
    CUresult name(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,                \
                  const type *argument)                                                                      \
    {                                                                                                        \
        return add_kind(out, graph, dependencies, n, kind, argument, sizeof *argument,                       \
                        offsetof(CUgraphNodeParams, member));                                                \
    }

ADDS(cuGraphAddKernelNode, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
ADDS(cuGraphAddKernelNode_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
ADDS(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
ADDS(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp)
ADDS(cuGraphAddExternalSemaphoresSignalNode, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, extSemSignal)
ADDS(cuGraphAddExternalSemaphoresWaitNode, CUDA_EXT_SEM_WAIT_NODE_PARAMS, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
     extSemWait)

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                                  CUgraph child)
{
    return add_kind(out, graph, dependencies, n, CU_GRAPH_NODE_TYPE_GRAPH, &child, sizeof child,
                    offsetof(CUgraphNodeParams, graph));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                                   CUevent event)
{
    return add_kind(out, graph, dependencies, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventRecord));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                                 CUevent event)
{
    return add_kind(out, graph, dependencies, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventWait));
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                               CUdeviceptr address)
{
    return add_kind(out, graph, dependencies, n, CU_GRAPH_NODE_TYPE_MEM_FREE, &address, sizeof address,
                    offsetof(CUgraphNodeParams, free));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                                CUDA_MEM_ALLOC_NODE_PARAMS *argument)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    RG_TRY(add_kind(out, graph, dependencies, n, CU_GRAPH_NODE_TYPE_MEM_ALLOC, argument, sizeof *argument,
                    offsetof(CUgraphNodeParams, alloc)));
    report(*out, &params);
    argument->dptr = params.alloc.dptr;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(out, graph, dependencies, NULL, n, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                              const CUDA_MEMCPY3D *copy, CUcontext context)
{
    RG_TRY(rg_graph_backend_enter());
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    const CUgraphNodeParams params = rg_graph_copy_params(copy, context);
    return add(out, graph, dependencies, NULL, n, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t n,
                              const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    RG_TRY(rg_graph_backend_enter());
    if (!fill)
        return CUDA_ERROR_INVALID_VALUE;
    const CUgraphNodeParams params = rg_graph_fill_params(fill, context);
    return add(out, graph, dependencies, NULL, n, &params);
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    return rg_capture_needs(node) ? CUDA_ERROR_INVALID_VALUE : rg_graph_remove(node);
}

/* --- edges --- */

/* One edge of a list. */
static CUresult change_edge(struct rg_graph_node *from, struct rg_graph_node *to, const CUgraphEdgeData *data,
                            bool adding)
{
    static const CUgraphEdgeData plain;
    struct rg_graph_edge *edge = rg_graph_edge(to, from);
    if (from == to || !edge != adding)
        return CUDA_ERROR_INVALID_VALUE;
    if (adding) {
        RG_TRY(rg_graph_check_edge(from, data));
        return rg_graph_connect(from, to, data);
    }
    if (!rg_graph_edge_same(&edge->data, data ? data : &plain))
        return CUDA_ERROR_INVALID_VALUE;
    const size_t at = (size_t)(edge - to->dependencies);
    to->n_dependencies--;
    memmove(edge, edge + 1, (to->n_dependencies - at) * sizeof *edge);
    return CUDA_SUCCESS;
}

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *edges, size_t n, bool adding)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    if (n && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    if (n && !adding && rg_graph_has(graph, RG_GRAPH_MEMORY_NODES))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < n; i++) {
        struct rg_graph_node *first = rg_graph_find(from[i], RG_GRAPH_KIND_NODE),
                             *second = rg_graph_find(to[i], RG_GRAPH_KIND_NODE);
        if (!first || !second || first->graph != graph || second->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        RG_TRY(change_edge(first, second, edges ? &edges[i] : NULL, adding));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t n)
{
    return change_edges(graph, from, to, edges, n, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edges, size_t n)
{
    return change_edges(graph, from, to, edges, n, false);
}
