/*
 * graph.c - the structure of graphs: objects and their handles, nodes, edges, copies, order. See graph.h.
 */
#include "common/cuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024

pthread_mutex_t rg_graph_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_graph_object *living[BUCKETS];
static uint64_t next_id = 1;

static struct rg_graph_object **bucket(const void *handle)
{
    return &living[((uintptr_t)handle >> 5) * 0x9e3779b97f4a7c15ull >> 54];
}

void rg_graph_register(struct rg_graph_object *object, enum rg_graph_kind kind)
{
    struct rg_graph_object **at = bucket(object);
    object->kind = kind;
    object->next = *at;
    *at = object;
}

void *rg_graph_find(const void *handle, enum rg_graph_kind kind)
{
    for (struct rg_graph_object *object = *bucket(handle); object; object = object->next)
        if (object == handle)
            return object->kind == kind ? object : NULL;
    return NULL;
}

void rg_graph_unregister(struct rg_graph_object *object)
{
    for (struct rg_graph_object **at = bucket(object); *at; at = &(*at)->next)
        if (*at == object) {
            *at = object->next;
            return;
        }
}

uint64_t rg_graph_next_id(void)
{
    return next_id++;
}

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
    free(graph->nodes);
    free(graph->order);
    free(graph);
}

/* Room for one more pointer in an array that grows by doubling. */
static bool grow(void *array, size_t n, size_t *room)
{
    if (n < *room)
        return true;
    size_t more = *room ? *room * 2 : 8;
    void *bigger = realloc(*(void **)array, more * sizeof(void *));
    if (!bigger)
        return false;
    *(void **)array = bigger;
    *room = more;
    return true;
}

CUresult rg_graph_connect(struct rg_graph_node *from, struct rg_graph_node *to)
{
    for (size_t i = 0; i < to->n_dependencies; i++)
        if (to->dependencies[i] == from)
            return CUDA_SUCCESS;
    if (!grow(&to->dependencies, to->n_dependencies, &to->room))
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->dependencies[to->n_dependencies++] = from;
    return CUDA_SUCCESS;
}

CUresult rg_graph_add(struct rg_graph *graph, struct rg_graph_work *work,
                      struct rg_graph_node *const *dependencies, size_t n, struct rg_graph_node **out)
{
    struct rg_graph_node *node = calloc(1, sizeof *node);
    if (!node || !grow(&graph->nodes, graph->n, &graph->room)) {
        free(node);
        rg_graph_work_release(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->work = work;
    node->id = rg_graph_next_id();
    for (size_t i = 0; i < n; i++)
        if (rg_graph_connect(dependencies[i], node) != CUDA_SUCCESS) {
            free(node->dependencies);
            free(node);
            rg_graph_work_release(work);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
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
    if (graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->n; i++) {
        struct rg_graph_node *other = graph->nodes[i];
        size_t kept = 0;
        for (size_t d = 0; d < other->n_dependencies; d++)
            if (other->dependencies[d] != node)
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

/* The copy of a child graph's node gets a child of its own, so that it can be changed apart. */
static CUresult clone_work(struct rg_graph_work *from, struct rg_graph_work **out)
{
    if (!from->child) {
        *out = rg_graph_work_acquire(from);
        return CUDA_SUCCESS;
    }
    struct rg_graph_work *work = calloc(1, sizeof *work);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&work->references, 1);
    work->params = from->params;
    CUresult result = rg_graph_clone(from->child, &work->child);
    if (result != CUDA_SUCCESS) {
        free(work);
        return result;
    }
    work->child->owned = true;
    work->params.graph.graph = (CUgraph)work->child;
    *out = work;
    return CUDA_SUCCESS;
}

CUresult rg_graph_clone(const struct rg_graph *from, struct rg_graph **out)
{
    struct rg_graph *graph = rg_graph_new();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->origin = from->id;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < from->n && result == CUDA_SUCCESS; i++) {
        struct rg_graph_work *work;
        struct rg_graph_node *node;
        result = clone_work(from->nodes[i]->work, &work);
        if (result == CUDA_SUCCESS)
            result = rg_graph_add(graph, work, NULL, 0, &node);
        if (result == CUDA_SUCCESS)
            node->origin = from->nodes[i]->id;
    }
    for (size_t i = 0; i < from->n && result == CUDA_SUCCESS; i++)
        for (size_t d = 0; d < from->nodes[i]->n_dependencies && result == CUDA_SUCCESS; d++)
            result = rg_graph_connect(graph->nodes[from->nodes[i]->dependencies[d]->index], graph->nodes[i]);
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
            if (!at->dependencies[i]->mark) {
                at->dependencies[i]->mark = true;
                stack[n++] = at->dependencies[i];
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

CUresult rg_graph_sort(struct rg_graph *graph)
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
                first[graph->nodes[i]->dependencies[d]->index + 2]++;
        }
        for (size_t i = 2; i < n + 2; i++)
            first[i] += first[i - 1];
        for (size_t i = 0; i < n; i++)
            for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
                dependents[first[graph->nodes[i]->dependencies[d]->index + 1]++] = i;
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
    }
    free(missing);
    free(first);
    free(dependents);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (graph->nodes[i]->work->child)
            result = rg_graph_sort(graph->nodes[i]->work->child);
    return result;
}

CUresult rg_graph_nodes(const struct rg_graph *graph, const CUgraphNode *handles, size_t n)
{
    if (n && !handles)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        const struct rg_graph_node *node = rg_graph_find(handles[i], RG_GRAPH_KIND_NODE);
        if (!node || node->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* --- what nodes do ------------------------------------------------------------------------------------------- */

void rg_graph_work_inherit(struct rg_graph_work *work, const struct rg_graph_work *from)
{
    work->cooperative = from->cooperative;
    work->priority = from->priority;
    work->n_attributes = from->n_attributes;
    memcpy(work->attributes, from->attributes, sizeof work->attributes);
}

void rg_graph_work_release(struct rg_graph_work *work)
{
    if (!work || atomic_fetch_sub(&work->references, 1) != 1)
        return;
    rg_graph_free(work->child);
    free(work);
}

#define PARAMETERS_MAX 4096

/* The kernel's parameters, one after another as it sees them, and a pointer to each. */
static CUresult kernel_work(const CUgraphNodeParams *params, struct rg_graph_work **out)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    CUfunction function = kernel->func ? kernel->func : (CUfunction)kernel->kern;
    size_t offset, size, n = 0, end = 0;
    CUresult found;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    while ((found = cuFuncGetParamInfo(function, n, &offset, &size)) == CUDA_SUCCESS) {
        end = offset + size > end ? offset + size : end;
        n++;
    }
    if (found != CUDA_ERROR_INVALID_VALUE)
        return found;
    const unsigned char *packed = NULL;
    if (kernel->extra) {
        size_t given = 0;
        for (void **e = kernel->extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
            if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
                packed = e[1];
            else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE)
                given = *(const size_t *)e[1];
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (kernel->kernelParams || (end && (!packed || given < end)))
            return CUDA_ERROR_INVALID_VALUE;
    } else if (n && !kernel->kernelParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t head = (n * sizeof(void *) + 15) & ~(size_t)15;
    struct rg_graph_work *work = calloc(1, sizeof *work + head + end);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&work->references, 1);
    work->params = *params;
    work->params.kernel.func = function;
    work->params.kernel.kern = NULL;
    work->params.kernel.extra = NULL;
    void **pointers = (void **)(void *)work->data;
    work->params.kernel.kernelParams = n ? pointers : NULL;
    for (size_t i = 0; i < n; i++) {
        if (cuFuncGetParamInfo(function, i, &offset, &size) != CUDA_SUCCESS ||
            (!packed && !kernel->kernelParams[i])) {
            free(work);
            return CUDA_ERROR_INVALID_VALUE;
        }
        pointers[i] = work->data + head + offset;
        memcpy(pointers[i], packed ? packed + offset : kernel->kernelParams[i], size);
    }
    *out = work;
    return CUDA_SUCCESS;
}

static CUresult check_kernel(const CUDA_KERNEL_NODE_PARAMS_v3 *k)
{
    return k->gridDimX && k->gridDimY && k->gridDimZ && k->blockDimX && k->blockDimY && k->blockDimZ
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_copy(const CUDA_MEMCPY3D *c)
{
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return rg_graph_unsupported("copies of arrays in graphs");
    if (c->srcMemoryType < CU_MEMORYTYPE_HOST || c->srcMemoryType > CU_MEMORYTYPE_UNIFIED ||
        c->dstMemoryType < CU_MEMORYTYPE_HOST || c->dstMemoryType > CU_MEMORYTYPE_UNIFIED || c->srcLOD ||
        c->dstLOD || c->reserved0 || c->reserved1)
        return CUDA_ERROR_INVALID_VALUE;
    const bool from = c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost != NULL : c->srcDevice != 0;
    const bool to = c->dstMemoryType == CU_MEMORYTYPE_HOST ? c->dstHost != NULL : c->dstDevice != 0;
    return (from && to) || !c->WidthInBytes || !c->Height || !c->Depth ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *m)
{
    const unsigned e = m->elementSize;
    if ((e != 1 && e != 2 && e != 4) || !m->dst || m->dst % e || !m->width || !m->height)
        return CUDA_ERROR_INVALID_VALUE;
    return m->height > 1 && (m->pitch / e < m->width || m->pitch % e) ? CUDA_ERROR_INVALID_VALUE
                                                                      : CUDA_SUCCESS;
}

CUresult rg_graph_work_new(const CUgraphNodeParams *params, struct rg_graph_work **out)
{
    CUresult result = CUDA_SUCCESS;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        result = check_kernel(&params->kernel);
        return result == CUDA_SUCCESS ? kernel_work(params, out) : result;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        result = check_copy(&params->memcpy.copyParams);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        result = check_fill(&params->memset);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        result = params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: /* both have the event first */
        result = rg_graph_event_known(params->eventRecord.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return rg_graph_unsupported("memory allocation in graphs");
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return rg_graph_unsupported("conditional nodes of graphs");
    default:
        return rg_graph_unsupported("a kind of graph node");
    }
    if (result != CUDA_SUCCESS)
        return result;
    struct rg_graph_work *work = calloc(1, sizeof *work);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&work->references, 1);
    work->params = *params;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        pthread_mutex_lock(&rg_graph_lock);
        const struct rg_graph *graph = rg_graph_find(params->graph.graph, RG_GRAPH_KIND_GRAPH);
        result = graph ? rg_graph_clone(graph, &work->child) : CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_unlock(&rg_graph_lock);
        if (result != CUDA_SUCCESS) {
            free(work);
            return result;
        }
        work->child->owned = true;
        work->params.graph.graph = (CUgraph)work->child;
    }
    *out = work;
    return CUDA_SUCCESS;
}
