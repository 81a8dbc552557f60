/*
 * graph.c - the structure of graphs: objects and their handles, nodes, edges, copies, order. See graph.h.
 */
#include "common/cuda/graph/graph.h"

#include <stdlib.h>

struct rg_graph *rg_graph_new(void)
{
    struct rg_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->id = rg_graph_next_id();
    rg_graph_register(&graph->object, RG_GRAPH_KIND_GRAPH);
    return graph;
}

static void free_node(struct rg_graph_node *node)
{
    rg_graph_unregister(&node->object);
    for (unsigned i = 0; i < node->work->n_children; i++)
        node->work->children[i]->parent = NULL; /* a plan may keep them a while */
    rg_graph_work_release(node->work);
    free(node->dependencies);
    free(node);
}

void rg_graph_free(struct rg_graph *graph)
{
    if (!graph)
        return;
    rg_graph_unregister(&graph->object);
    for (size_t i = 0; i < graph->n; i++)
        free_node(graph->nodes[i]);
    while (graph->conditions) {
        struct rg_graph_condition *gone = graph->conditions;
        graph->conditions = gone->next;
        rg_graph_condition_release(gone);
    }
    rg_graph_users_release(graph->users);
    free(graph->nodes);
    free(graph->order);
    free(graph);
}

/* Room for one more element in an array that grows by doubling. */
static bool grow(void *array, size_t n, size_t *room, size_t element)
{
    if (n < *room)
        return true;
    size_t more = *room ? *room * 2 : 8;
    void *bigger = realloc(*(void **)array, more * element);
    if (!bigger)
        return false;
    *(void **)array = bigger;
    *room = more;
    return true;
}

struct rg_graph_edge *rg_graph_edge(const struct rg_graph_node *to, const struct rg_graph_node *from)
{
    for (size_t i = 0; i < to->n_dependencies; i++)
        if (to->dependencies[i].from == from)
            return &to->dependencies[i];
    return NULL;
}

CUresult rg_graph_connect(struct rg_graph_node *from, struct rg_graph_node *to, const CUgraphEdgeData *data)
{
    if (rg_graph_edge(to, from))
        return CUDA_SUCCESS;
    if (!grow(&to->dependencies, to->n_dependencies, &to->room, sizeof *to->dependencies))
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->dependencies[to->n_dependencies++] =
        (struct rg_graph_edge){from, data ? *data : (CUgraphEdgeData){0}};
    return CUDA_SUCCESS;
}

CUresult rg_graph_add(struct rg_graph *graph, struct rg_graph_work *work,
                      struct rg_graph_node *const *dependencies, const CUgraphEdgeData *edges, size_t n,
                      struct rg_graph_node **out)
{
    struct rg_graph_node *node = calloc(1, sizeof *node);
    bool good = node && grow(&graph->nodes, graph->n, &graph->room, sizeof(void *));
    for (size_t i = 0; i < n && good; i++)
        good = rg_graph_connect(dependencies[i], node, edges ? &edges[i] : NULL) == CUDA_SUCCESS;
    if (!good) {
        free(node ? node->dependencies : NULL);
        free(node);
        rg_graph_work_release(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->work = work;
    node->id = rg_graph_next_id();
    for (unsigned i = 0; i < work->n_children; i++)
        work->children[i]->parent = graph;
    rg_graph_register(&node->object, RG_GRAPH_KIND_NODE);
    node->index = graph->n;
    graph->nodes[graph->n++] = node;
    if (out)
        *out = node;
    return CUDA_SUCCESS;
}

CUresult rg_graph_remove(struct rg_graph_node *node)
{
    struct rg_graph *graph = node->graph;
    if (rg_graph_has(graph, RG_GRAPH_MEMORY_NODES))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->n; i++) {
        struct rg_graph_node *other = graph->nodes[i];
        size_t kept = 0;
        for (size_t d = 0; d < other->n_dependencies; d++)
            if (other->dependencies[d].from != node)
                other->dependencies[kept++] = other->dependencies[d];
        other->n_dependencies = kept;
    }
    graph->n--;
    for (size_t i = node->index; i < graph->n; i++) {
        graph->nodes[i] = graph->nodes[i + 1];
        graph->nodes[i]->index = i;
    }
    free_node(node);
    return CUDA_SUCCESS;
}

bool rg_graph_has(const struct rg_graph *graph, unsigned types)
{
    for (size_t i = 0; i < graph->n; i++) {
        const struct rg_graph_work *work = graph->nodes[i]->work;
        if (types & 1u << work->params.type)
            return true;
        for (unsigned c = 0; c < work->n_children; c++)
            if (rg_graph_has(work->children[c], types))
                return true;
    }
    return false;
}

/* The copy of a node with graphs inside gets copies of its own, so that they can be changed apart. */
static CUresult clone_work(struct rg_graph_work *from, struct rg_graph_work **out)
{
    if (!from->n_children) {
        *out = rg_graph_work_acquire(from);
        return CUDA_SUCCESS;
    }
    struct rg_graph_work *work = calloc(1, sizeof *work + from->n_children * sizeof(void *));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&work->references, 1);
    work->params = from->params;
    work->context = from->context;
    work->children = (struct rg_graph **)(void *)work->data;
    for (unsigned i = 0; i < from->n_children; i++) {
        CUresult result = rg_graph_clone(from->children[i], &work->children[i]);
        if (result != CUDA_SUCCESS) {
            rg_graph_work_release(work);
            return result;
        }
        work->n_children = i + 1;
        work->children[i]->owned = true;
        work->children[i]->body = from->children[i]->body;
    }
    if (work->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
        work->params.graph.graph = (CUgraph)work->children[0];
    else
        work->params.conditional.phGraph_out = (CUgraph *)(void *)work->data;
    if (from->condition) {
        work->condition = from->condition;
        atomic_fetch_add(&work->condition->references, 1);
    }
    *out = work;
    return CUDA_SUCCESS;
}

CUresult rg_graph_clone(const struct rg_graph *from, struct rg_graph **out)
{
    struct rg_graph *graph = rg_graph_new();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->origin = from->id;
    CUresult result = rg_graph_users_share(graph, from);
    for (size_t i = 0; i < from->n && result == CUDA_SUCCESS; i++) {
        struct rg_graph_work *work;
        struct rg_graph_node *node;
        result = clone_work(from->nodes[i]->work, &work);
        if (result == CUDA_SUCCESS)
            result = rg_graph_add(graph, work, NULL, NULL, 0, &node);
        if (result == CUDA_SUCCESS) {
            node->origin = from->nodes[i]->id;
            node->disabled = from->nodes[i]->disabled;
        }
    }
    for (size_t i = 0; i < from->n && result == CUDA_SUCCESS; i++)
        for (size_t d = 0; d < from->nodes[i]->n_dependencies && result == CUDA_SUCCESS; d++) {
            const struct rg_graph_edge *edge = &from->nodes[i]->dependencies[d];
            result = rg_graph_connect(graph->nodes[edge->from->index], graph->nodes[i], &edge->data);
        }
    if (result != CUDA_SUCCESS) {
        rg_graph_free(graph);
        return result;
    }
    *out = graph;
    return CUDA_SUCCESS;
}

/* Marks `node` and all it depends on; without recursion, as chains may be long. */
static bool mark_ancestors(struct rg_graph_node *node)
{
    struct rg_graph_node **stack = calloc(node->graph->n + 1, sizeof(void *));
    size_t n = 0;
    if (!stack)
        return false;
    node->mark = true;
    stack[n++] = node;
    while (n) {
        struct rg_graph_node *at = stack[--n];
        for (size_t i = 0; i < at->n_dependencies; i++)
            if (!at->dependencies[i].from->mark) {
                at->dependencies[i].from->mark = true;
                stack[n++] = at->dependencies[i].from;
            }
    }
    free(stack);
    return true;
}

bool rg_graph_depends(const struct rg_graph_node *node, const struct rg_graph_node *on)
{
    for (size_t i = 0; i < node->graph->n; i++)
        node->graph->nodes[i]->mark = false;
    return mark_ancestors((struct rg_graph_node *)(uintptr_t)node) && on->mark;
}

CUresult rg_graph_sort(struct rg_graph *graph, struct rg_graph_node **offender)
{
    /* Kahn's way: nodes become ready when all they depend on are in the order. */
    const size_t n = graph->n;
    size_t *missing = calloc(n + 1, sizeof *missing), *first = calloc(n + 2, sizeof *first), edges = 0,
           done = 0;
    for (size_t i = 0; i < n; i++)
        edges += graph->nodes[i]->n_dependencies;
    size_t *dependents = calloc(edges + 1, sizeof *dependents);
    free(graph->order);
    graph->order = calloc(n + 1, sizeof(void *));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (missing && first && dependents && graph->order) {
        for (size_t i = 0; i < n; i++) {
            missing[i] = graph->nodes[i]->n_dependencies;
            for (size_t d = 0; d < missing[i]; d++)
                first[graph->nodes[i]->dependencies[d].from->index + 2]++;
        }
        for (size_t i = 2; i < n + 2; i++)
            first[i] += first[i - 1];
        for (size_t i = 0; i < n; i++)
            for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
                dependents[first[graph->nodes[i]->dependencies[d].from->index + 1]++] = i;
        size_t ready = 0;
        for (size_t i = 0; i < n; i++)
            if (!missing[i])
                graph->order[ready++] = graph->nodes[i];
        for (; done < ready; done++)
            for (size_t at = first[graph->order[done]->index]; at < first[graph->order[done]->index + 1];
                 at++)
                if (--missing[dependents[at]] == 0)
                    graph->order[ready++] = graph->nodes[dependents[at]];
        result = done == n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < n && done != n; i++)
            if (missing[i]) {
                *offender = graph->nodes[i];
                break;
            }
    }
    free(missing);
    free(first);
    free(dependents);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        for (unsigned c = 0; c < graph->nodes[i]->work->n_children && result == CUDA_SUCCESS; c++)
            result = rg_graph_sort(graph->nodes[i]->work->children[c], offender);
    return result;
}

CUresult rg_graph_check_edge(const struct rg_graph_node *from, const CUgraphEdgeData *data)
{
    if (!data)
        return CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof data->reserved; i++)
        if (data->reserved[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (data->to_port || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
        data->from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)
        return CUDA_ERROR_INVALID_VALUE;
    /* Ports are kernels'; a programmatic edge leaves by one. */
    if ((data->from_port || data->type) && from->work->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    return data->type && !data->from_port ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult rg_graph_nodes(const struct rg_graph *graph, const CUgraphNode *handles,
                        const CUgraphEdgeData *edges, size_t n)
{
    if (n && !handles)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->n; i++)
        graph->nodes[i]->mark = false;
    for (size_t i = 0; i < n; i++) {
        struct rg_graph_node *node = rg_graph_find(handles[i], RG_GRAPH_KIND_NODE);
        if (!node || node->graph != graph || node->mark ||
            rg_graph_check_edge(node, edges ? &edges[i] : NULL) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
        node->mark = true;
    }
    return CUDA_SUCCESS;
}
