/*
 * query.c - the calls that ask for the structure of graphs. See graph.h.
 */
#include "common/cuda/graph/call.h"

/*
 * Questions. Lists are returned into the caller's array, whose length *n becomes what was written (the number
 * there is, without an array); entries beyond it are NULL.
 */

struct list {
    CUgraphNode *to, *second;
    CUgraphEdgeData *edges;
    size_t room, n;
    bool lossy; /* edges are not told, though some say something */
};

static void put(struct list *list, const struct rg_graph_node *node, const struct rg_graph_node *second,
                const CUgraphEdgeData *data)
{
    if (list->to && list->n < list->room)
        list->to[list->n] = (CUgraphNode)(uintptr_t)node;
    if (list->second && list->n < list->room)
        list->second[list->n] = (CUgraphNode)(uintptr_t)second;
    if (list->edges && data && list->n < list->room)
        list->edges[list->n] = *data;
    if (list->to && list->n < list->room)
        list->lossy |= !list->edges && !rg_graph_edge_plain(data);
    list->n++;
}

static CUresult end_list(struct list *list, size_t *n)
{
    if (!list->to) {
        *n = list->n;
        return CUDA_SUCCESS;
    }
    for (size_t i = list->n; i < list->room; i++) {
        list->to[i] = NULL;
        if (list->second)
            list->second[i] = NULL;
    }
    *n = list->n < list->room ? list->n : list->room;
    return list->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *n, bool roots)
{
    RG_TRY(rg_graph_backend_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    struct list list = {.to = nodes, .room = *n};
    for (size_t i = 0; i < graph->n; i++)
        if (!roots || !graph->nodes[i]->n_dependencies)
            put(&list, graph->nodes[i], NULL, NULL);
    return end_list(&list, n);
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
    RG_TRY(rg_graph_backend_enter());
    if (!n || !from != !to || (edges && !from))
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    struct list list = {.to = from, .second = to, .edges = edges, .room = *n};
    for (size_t i = 0; i < graph->n; i++)
        for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
            put(&list, graph->nodes[i]->dependencies[d].from, graph->nodes[i],
                &graph->nodes[i]->dependencies[d].data);
    return end_list(&list, n);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                       size_t *n)
{
    RG_TRY(rg_graph_backend_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    struct list list = {.to = nodes, .edges = edges, .room = *n};
    for (size_t i = 0; i < node->n_dependencies; i++)
        put(&list, node->dependencies[i].from, NULL, &node->dependencies[i].data);
    return end_list(&list, n);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                         size_t *n)
{
    RG_TRY(rg_graph_backend_enter());
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    struct list list = {.to = nodes, .edges = edges, .room = *n};
    for (size_t i = 0; i < node->graph->n; i++) {
        const struct rg_graph_edge *edge = rg_graph_edge(node->graph->nodes[i], node);
        if (edge)
            put(&list, node->graph->nodes[i], NULL, &edge->data);
    }
    return end_list(&list, n);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    RG_TRY(rg_graph_backend_enter());
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    *type = node->work->params.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode handle, CUgraph clone)
{
    RG_TRY(rg_graph_backend_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    GRAPH_OR_RETURN(graph, clone);
    for (size_t i = 0; i < graph->n; i++)
        if (graph->nodes[i]->origin == node->id) {
            *out = (CUgraphNode)graph->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
