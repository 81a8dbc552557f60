/*
 * work.c - what nodes do: parameters, copied with all they point to, and kept (checked: work_check.c). See graph.h.
 */
#include "common/cuda/graph/graph.h"

#include "common/base/limits.h"

#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 32768 /* more than any kernel has */

static struct rg_graph_work *new_work(const CUgraphNodeParams *params, size_t room)
{
    struct rg_graph_work *work = calloc(1, sizeof *work + room);
    if (!work)
        return NULL;
    atomic_init(&work->references, 1);
    work->params = *params;
    return work;
}

void rg_graph_work_inherit(struct rg_graph_work *work, const struct rg_graph_work *from)
{
    work->cooperative = from->cooperative;
    work->priority = from->priority;
    work->n_attributes = from->n_attributes;
    memcpy(work->attributes, from->attributes, sizeof work->attributes);
}

bool rg_graph_work_attribute(struct rg_graph_work *work, const CUlaunchAttribute *attribute)
{
    unsigned i = 0;
    while (i < work->n_attributes && work->attributes[i].id != attribute->id)
        i++;
    if (i == RG_GRAPH_ATTRIBUTES_MAX)
        return false;
    work->attributes[i] = *attribute;
    work->n_attributes += i == work->n_attributes;
    return true;
}

struct rg_graph_work *rg_graph_work_with_condition(struct rg_graph_work *from,
                                                   struct rg_graph_condition *condition)
{
    const size_t size = from->n_children * sizeof(void *);
    struct rg_graph_work *work = new_work(&from->params, size);
    if (!work)
        return NULL;
    work->context = from->context;
    work->children = (struct rg_graph **)(void *)work->data;
    memcpy(work->data, from->data, size);
    work->n_children = from->n_children;
    from->n_children = 0;
    atomic_fetch_add(&condition->references, 1);
    work->condition = condition;
    work->params.conditional.handle = condition->handle;
    work->params.conditional.phGraph_out = (CUgraph *)(void *)work->data;
    return work;
}

void rg_graph_work_release(struct rg_graph_work *work)
{
    if (!work || atomic_fetch_sub(&work->references, 1) != 1)
        return;
    for (unsigned i = 0; i < work->n_children; i++)
        rg_graph_free(work->children[i]);
    if (work->memory)
        rg_graph_memory_release(work->memory);
    if (work->condition)
        rg_graph_condition_release(work->condition);
    if (work->captured)
        rg_captured_release(work->captured);
    free(work);
}

/* The kernel's parameters, one after another as it sees them, and a pointer to each. */
static CUresult kernel_work(const CUgraphNodeParams *params, struct rg_graph_work **out)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    CUfunction function = kernel->func ? kernel->func : (CUfunction)kernel->kern;
    size_t offset, size, n = 0, end = 0, last = 0, given = 0;
    CUresult found;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    while ((found = cuFuncGetParamInfo(function, n, &offset, &size)) == CUDA_SUCCESS) {
        end = offset + size > end ? offset + size : end;
        last = offset;
        n++;
    }
    if (found != CUDA_ERROR_INVALID_VALUE)
        return found;
    const unsigned char *packed = NULL;
    if (kernel->extra) {
        for (void **e = kernel->extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
            if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
                packed = e[1];
            else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE)
                given = *(const size_t *)e[1];
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (kernel->kernelParams || (end && (!packed || given <= last)))
            return CUDA_ERROR_INVALID_VALUE;
    } else if (n && !kernel->kernelParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t head = (n * sizeof(void *) + 15) & ~(size_t)15;
    if (end > PARAMETERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_work *work = new_work(params, head + end);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->params.kernel.func = function;
    /* Who asks finds it by either name: the runtime knows its kernels by `kern`. */
    work->params.kernel.kern = rg_graph_backend_kernel(function);
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
        if (packed) /* it may end within the last one */
            memcpy(pointers[i], packed + offset, given - offset < size ? given - offset : size);
        else
            memcpy(pointers[i], kernel->kernelParams[i], size);
    }
    *out = work;
    return CUDA_SUCCESS;
}

static CUresult memops_work(const CUgraphNodeParams *params, struct rg_graph_work **out)
{
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *m = &params->memOp;
    struct rg_graph_work *work = new_work(params, m->count * sizeof *m->paramArray);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->params.memOp.paramArray = (void *)work->data;
    memcpy(work->data, m->paramArray, m->count * sizeof *m->paramArray);
    *out = work;
    return CUDA_SUCCESS;
}

static CUresult allocation_work(const CUgraphNodeParams *params, struct rg_graph_work **out)
{
    const size_t size = params->alloc.accessDescCount * sizeof *params->alloc.accessDescs;
    if (params->alloc.accessDescCount > 64 || (size && !params->alloc.accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_work *work = new_work(params, size);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (size)
        memcpy(work->data, params->alloc.accessDescs, size);
    work->params.alloc.accessDescs = size ? (const CUmemAccessDesc *)(const void *)work->data : NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    memcpy(&wanted, &params->alloc, sizeof wanted);
    CUresult result = rg_graph_memory_new(&wanted, &work->memory, &work->params.alloc.dptr);
    if (result != CUDA_SUCCESS) {
        free(work);
        return result;
    }
    *out = work;
    return CUDA_SUCCESS;
}

/* A copy of the child graph, or the child itself if it is given away. */
static CUresult child_work(const CUgraphNodeParams *params, CUgraph into, struct rg_graph_work **out)
{
    const bool move = params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (params->graph.graph == into ||
        (!move && params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_work *work = new_work(params, sizeof(void *));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->children = (struct rg_graph **)(void *)work->data;
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph *graph = rg_graph_find(params->graph.graph, RG_GRAPH_KIND_GRAPH);
    CUresult result = CUDA_SUCCESS;
    if (!graph || (move && (graph->owned || graph->captures || graph->executables)))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!move && rg_graph_has(graph, RG_GRAPH_MEMORY_NODES | 1u << CU_GRAPH_NODE_TYPE_CONDITIONAL))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (move)
        work->children[0] = graph;
    else
        result = rg_graph_clone(graph, &work->children[0]);
    if (result == CUDA_SUCCESS) {
        work->n_children = 1;
        work->children[0]->owned = true;
        work->params.graph.graph = (CUgraph)work->children[0];
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (result != CUDA_SUCCESS) {
        free(work);
        return result;
    }
    *out = work;
    return CUDA_SUCCESS;
}

static CUresult conditional_work(const CUgraphNodeParams *params, CUgraph into, struct rg_graph_work **out)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *c = &params->conditional;
    const unsigned most = c->type == CU_GRAPH_COND_TYPE_WHILE ? 1
                          : c->type == CU_GRAPH_COND_TYPE_IF  ? 2
                                                              : RG_GRAPH_BODIES_MAX;
    if (c->type > CU_GRAPH_COND_TYPE_SWITCH || !c->size || c->size > most)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_graph_work *work = new_work(params, c->size * sizeof(void *));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->children = (struct rg_graph **)(void *)work->data;
    RG_GRAPH_LOCKED;
    const struct rg_graph *graph = rg_graph_find(into, RG_GRAPH_KIND_GRAPH);
    struct rg_graph_condition *condition = graph ? rg_graph_condition_find(graph, c->handle) : NULL;
    CUresult result = condition && !condition->used && (!c->ctx || c->ctx == condition->context)
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < c->size && result == CUDA_SUCCESS; i++) {
        work->children[i] = rg_graph_new();
        if (!work->children[i]) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        work->n_children = i + 1;
        work->children[i]->owned = work->children[i]->body = true;
    }
    if (result == CUDA_SUCCESS) {
        condition->used = true;
        atomic_fetch_add(&condition->references, 1);
        work->condition = condition;
        work->params.conditional.ctx = condition->context;
        work->params.conditional.phGraph_out = (CUgraph *)(void *)work->data;
        *out = work;
    } else {
        rg_graph_work_release(work);
    }
    return result;
}

/* The context of the node: what the parameters name, or the current one. */
static CUcontext context_of(const CUgraphNodeParams *params)
{
    CUcontext context = NULL;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        context = params->kernel.ctx;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        context = params->memcpy.copyCtx;
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        context = params->memset.ctx;
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        context = params->memOp.ctx;
        break;
    default:
        break;
    }
    if (!context)
        (void)cuCtxGetCurrent(&context);
    return context;
}

CUresult rg_graph_work_new(const CUgraphNodeParams *params, CUgraph into, struct rg_graph_work **out)
{
    struct rg_graph_work *work = NULL;
    CUresult result = rg_graph_work_check(params, into);
    if (result != CUDA_SUCCESS)
        return result;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        result = kernel_work(params, &work);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        result = child_work(params, into, &work);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        result = memops_work(params, &work);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        result = allocation_work(params, &work);
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        result = conditional_work(params, into, &work);
        break;
    default:
        if (!(work = new_work(params, 0)))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        return result;
    work->context = context_of(params);
    *out = work;
    return CUDA_SUCCESS;
}
