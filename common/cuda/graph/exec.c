/*
 * exec.c - executable graphs: made from graphs, changed, launched. See graph.h.
 *
 * A launch collects what the nodes do under the lock, and then, under a lock of launches, gives it to the stream one
 * after another. Two launches never mix; a launch of a graph waits on the device for the one before it.
 */
#include "common/cuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t launches = PTHREAD_MUTEX_INITIALIZER;

#define RETURN_IF(expression)                                                                                \
    do {                                                                                                     \
        CUresult result_ = (expression);                                                                     \
        if (result_ != CUDA_SUCCESS)                                                                         \
            return result_;                                                                                  \
    } while (0)

/* --- making --- */

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    RETURN_IF(rg_graph_enter());
    if (!out || (flags & ~15ull))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return rg_graph_unsupported("graphs that the device launches");
    struct rg_graph_exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    CUresult result = cuEventCreate(&exec->last, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        free(exec);
        return result;
    }
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    result = graph && !graph->captures ? rg_graph_clone(graph, &exec->graph) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = rg_graph_sort(exec->graph);
    if (result == CUDA_SUCCESS) {
        exec->graph->owned = true;
        rg_graph_register(&exec->object, RG_GRAPH_KIND_EXEC);
    } else {
        rg_graph_free(exec->graph);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (result != CUDA_SUCCESS) {
        cuEventDestroy_v2(exec->last);
        free(exec);
        return result;
    }
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    return instantiate(out, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(out, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    if (error)
        *error = NULL;
    if (log && size)
        *log = 0;
    return instantiate(out, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    return cuGraphInstantiate(out, graph, error, log, size);
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    RETURN_IF(rg_graph_enter());
    pthread_mutex_lock(&launches);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    if (exec) {
        rg_graph_unregister(&exec->object);
        rg_graph_free(exec->graph);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    pthread_mutex_unlock(&launches);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    cuEventDestroy_v2(exec->last);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    RETURN_IF(rg_graph_enter());
    pthread_mutex_lock(&rg_graph_lock);
    const struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    CUresult result = exec && flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags = exec->flags;
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

/* --- launching --- */

struct program {
    struct rg_graph_work **works;
    size_t n, room;
};

static CUresult collect(struct program *program, const struct rg_graph *graph)
{
    for (size_t i = 0; i < graph->n; i++) {
        const struct rg_graph_node *node = graph->order[i];
        if (node->disabled || node->work->params.type == CU_GRAPH_NODE_TYPE_EMPTY)
            continue;
        if (node->work->child) {
            RETURN_IF(collect(program, node->work->child));
            continue;
        }
        if (program->n == program->room) {
            size_t room = program->room ? program->room * 2 : 32;
            void *bigger = realloc(program->works, room * sizeof(void *));
            if (!bigger)
                return CUDA_ERROR_OUT_OF_MEMORY;
            program->works = bigger;
            program->room = room;
        }
        program->works[program->n++] = rg_graph_work_acquire(node->work);
    }
    return CUDA_SUCCESS;
}

static CUresult fill(const CUDA_MEMSET_NODE_PARAMS_v2 *m, CUstream stream)
{
    const bool rows = m->height > 1;
    switch (m->elementSize) {
    case 1:
        return rows
                   ? cuMemsetD2D8Async(m->dst, m->pitch, (unsigned char)m->value, m->width, m->height, stream)
                   : cuMemsetD8Async(m->dst, (unsigned char)m->value, m->width, stream);
    case 2:
        return rows ? cuMemsetD2D16Async(m->dst, m->pitch, (unsigned short)m->value, m->width, m->height,
                                         stream)
                    : cuMemsetD16Async(m->dst, (unsigned short)m->value, m->width, stream);
    default:
        return rows ? cuMemsetD2D32Async(m->dst, m->pitch, m->value, m->width, m->height, stream)
                    : cuMemsetD32Async(m->dst, m->value, m->width, stream);
    }
}

static CUresult launch_kernel(const struct rg_graph_work *work, CUstream stream)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &work->params.kernel;
    if (!work->cooperative && !work->n_attributes)
        return cuLaunchKernel(k->func, k->gridDimX, k->gridDimY, k->gridDimZ, k->blockDimX, k->blockDimY,
                              k->blockDimZ, k->sharedMemBytes, stream, k->kernelParams, NULL);
    CUlaunchAttribute attributes[RG_GRAPH_ATTRIBUTES_MAX + 1];
    unsigned n = work->n_attributes;
    memcpy(attributes, work->attributes, n * sizeof *attributes);
    if (work->cooperative)
        attributes[n++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {k->gridDimX,  k->gridDimY,       k->gridDimZ, k->blockDimX, k->blockDimY,
                             k->blockDimZ, k->sharedMemBytes, stream,      attributes,   n};
    return cuLaunchKernelEx(&config, k->func, k->kernelParams, NULL);
}

static CUresult perform(const struct rg_graph_work *work, CUstream stream)
{
    const CUgraphNodeParams *p = &work->params;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return launch_kernel(work, stream);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return rg_graph_copy(&p->memcpy.copyParams, stream);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill(&p->memset, stream);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuLaunchHostFunc(stream, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuEventRecord(p->eventRecord.event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuStreamWaitEvent(stream, p->eventWait.event, 0);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    RETURN_IF(rg_graph_enter());
    struct program program = {0};
    const bool captured = rg_capture_takes(stream);
    pthread_mutex_lock(&launches);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    CUresult result = exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (exec && !captured)
        result = collect(&program, exec->graph);
    pthread_mutex_unlock(&rg_graph_lock);
    if (result == CUDA_SUCCESS && captured)
        result = rg_capture_launch(exec, stream);
    if (result == CUDA_SUCCESS && !captured && exec->launched)
        result = cuStreamWaitEvent(stream, exec->last, 0);
    for (size_t i = 0; i < program.n; i++) {
        if (result == CUDA_SUCCESS)
            result = perform(program.works[i], stream);
        rg_graph_work_release(program.works[i]);
    }
    if (result == CUDA_SUCCESS && !captured) {
        result = cuEventRecord(exec->last, stream);
        exec->launched = true;
    }
    pthread_mutex_unlock(&launches);
    free(program.works);
    return result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream)
{
    (void)stream;
    RETURN_IF(rg_graph_enter());
    pthread_mutex_lock(&rg_graph_lock);
    const bool there = rg_graph_find(handle, RG_GRAPH_KIND_EXEC) != NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- changing --- */

/* The node of the executable graph that was made from `id`, in child graphs too. */
static struct rg_graph_node *find_node(const struct rg_graph *graph, uint64_t id)
{
    for (size_t i = 0; i < graph->n; i++) {
        struct rg_graph_node *node = graph->nodes[i];
        if (node->origin == id)
            return node;
        struct rg_graph_node *inside = node->work->child ? find_node(node->work->child, id) : NULL;
        if (inside)
            return inside;
    }
    return NULL;
}

static struct rg_graph_node *exec_node(CUgraphExec handle, CUgraphNode node_handle)
{
    const struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    const struct rg_graph_node *node = rg_graph_find(node_handle, RG_GRAPH_KIND_NODE);
    return exec && node ? find_node(exec->graph, node->id) : NULL;
}

/* Whether two graphs have the same nodes and edges, in the same order of creation. */
static CUgraphExecUpdateResult compare(const struct rg_graph *a, const struct rg_graph *b, CUgraphNode *error)
{
    if (a->n != b->n)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < a->n; i++) {
        const struct rg_graph_node *x = a->nodes[i], *y = b->nodes[i];
        *error = (CUgraphNode)(uintptr_t)y;
        if (x->work->params.type != y->work->params.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (x->n_dependencies != y->n_dependencies)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t d = 0; d < x->n_dependencies; d++) {
            size_t at = 0;
            while (at < y->n_dependencies && y->dependencies[at]->index != x->dependencies[d]->index)
                at++;
            if (at == y->n_dependencies)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        if (x->work->child) {
            CUgraphExecUpdateResult inside = compare(x->work->child, y->work->child, error);
            if (inside != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return inside;
        }
    }
    *error = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void take_over(struct rg_graph *to, const struct rg_graph *from)
{
    for (size_t i = 0; i < to->n; i++) {
        if (to->nodes[i]->work->child) {
            take_over(to->nodes[i]->work->child, from->nodes[i]->work->child);
            continue;
        }
        rg_graph_work_release(to->nodes[i]->work);
        to->nodes[i]->work = rg_graph_work_acquire(from->nodes[i]->work);
    }
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info)
{
    RETURN_IF(rg_graph_enter());
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    const struct rg_graph *graph = rg_graph_find(graph_handle, RG_GRAPH_KIND_GRAPH);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (exec && graph) {
        info->result = compare(exec->graph, graph, &info->errorNode);
        result = info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                              : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    if (result == CUDA_SUCCESS)
        take_over(exec->graph, graph);
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *out)
{
    CUgraphExecUpdateResultInfo info = {0};
    if (!node || !out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    *node = info.errorNode;
    *out = info.result;
    return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams *params)
{
    struct rg_graph_work *work;
    RETURN_IF(rg_graph_enter());
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    RETURN_IF(rg_graph_work_new(params, &work));
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_node *node = exec_node(exec, handle);
    CUgraphNode error;
    bool good = node && node->work->params.type == params->type;
    if (good && work->child) {
        good = compare(node->work->child, work->child, &error) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
        if (good)
            take_over(node->work->child, work->child);
        rg_graph_work_release(work);
    } else if (good) {
        rg_graph_work_inherit(work, node->work);
        rg_graph_work_release(node->work);
        node->work = work;
    } else {
        rg_graph_work_release(work);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *argument,
                         size_t size, size_t offset)
{
    CUgraphNodeParams params = {.type = type};
    if (!argument)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((unsigned char *)&params + offset, argument, size);
    return cuGraphExecNodeSetParams(exec, node, &params);
}

#define EXEC_SETS(name, type, kind, member)                                                                  \
    CUresult name(CUgraphExec exec, CUgraphNode node, const type *argument)                                  \
    {                                                                                                        \
        return set_exec(exec, node, kind, argument, sizeof *argument, offsetof(CUgraphNodeParams, member));  \
    }

EXEC_SETS(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
EXEC_SETS(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
EXEC_SETS(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
    (void)context;
    return set_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy, sizeof *copy,
                    offsetof(CUgraphNodeParams, memcpy.copyParams));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    (void)context;
    return set_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, params, sizeof *params,
                    offsetof(CUgraphNodeParams, memset));
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    return set_exec(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &child, sizeof child,
                    offsetof(CUgraphNodeParams, graph));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set_exec(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventRecord));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set_exec(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventWait));
}

static bool can_be_disabled(const struct rg_graph_node *node)
{
    return node->work->params.type <= CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int enabled)
{
    RETURN_IF(rg_graph_enter());
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_node *node = exec_node(exec, handle);
    const bool good = node && can_be_disabled(node);
    if (good)
        node->disabled = !enabled;
    pthread_mutex_unlock(&rg_graph_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int *enabled)
{
    RETURN_IF(rg_graph_enter());
    pthread_mutex_lock(&rg_graph_lock);
    const struct rg_graph_node *node = exec_node(exec, handle);
    const bool good = node && enabled && can_be_disabled(node);
    if (good)
        *enabled = !node->disabled;
    pthread_mutex_unlock(&rg_graph_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
