/*
 * update.c - changes of executable graphs: by another graph of the same form, and of single nodes. See
 * graph.h.
 *
 * What may change is what the driver documents. Later launches have the change; those under way keep their
 * plan.
 */
#include "common/cuda/graph/call.h"

#include <stddef.h>
#include <string.h>

/* --- what may change --- */

static bool same_sides(const CUDA_MEMCPY3D *a, const CUDA_MEMCPY3D *b)
{
    return a->srcMemoryType == b->srcMemoryType && a->dstMemoryType == b->dstMemoryType;
}

static bool one_row(const CUDA_MEMCPY3D *c)
{
    return c->Height == 1 && c->Depth == 1 && c->srcMemoryType != CU_MEMORYTYPE_ARRAY &&
           c->dstMemoryType != CU_MEMORYTYPE_ARRAY;
}

static bool same_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *a, const CUDA_MEMSET_NODE_PARAMS_v2 *b)
{
    if (a->height != b->height)
        return false;
    return a->height == 1 ||
           (a->width == b->width && a->elementSize == b->elementSize && a->pitch == b->pitch);
}

static bool same_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *a, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *b)
{
    if (a->count != b->count)
        return false;
    for (unsigned i = 0; i < a->count; i++) {
        const unsigned changed = a->paramArray[i].waitValue.flags ^ b->paramArray[i].waitValue.flags;
        if (a->paramArray[i].operation != b->paramArray[i].operation ||
            (changed & (unsigned)CU_STREAM_WAIT_VALUE_FLUSH))
            return false;
    }
    return true;
}

/* Whether a node that does `from` may do `to` instead. */
static CUgraphExecUpdateResult allowed(const struct rg_graph_work *from, const struct rg_graph_work *to,
                                       bool priorities)
{
    const CUgraphNodeParams *a = &from->params, *b = &to->params;
    bool good = true;
    if (from->captured || to->captured)
        return from->captured && to->captured && from->context == to->context
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    switch (a->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (from->context != to->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        if (!from->cooperative != !to->cooperative || (priorities && from->priority != to->priority))
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        good = same_sides(&a->memcpy.copyParams, &b->memcpy.copyParams) && from->context == to->context;
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        good = same_fill(&a->memset, &b->memset) && from->context == to->context;
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        good = same_memops(&a->memOp, &b->memOp) && from->context == to->context;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (a->alloc.dptr != b->alloc.dptr)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (a->free.dptr != b->free.dptr)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        good = a->conditional.type == b->conditional.type && a->conditional.size == b->conditional.size;
        break;
    default:
        break;
    }
    return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* --- whole graphs --- */

static CUgraphExecUpdateResult compare(const struct rg_graph *a, const struct rg_graph *b, bool priorities,
                                       CUgraphExecUpdateResultInfo *info);

static CUgraphExecUpdateResult compare_edges(const struct rg_graph_node *x, const struct rg_graph_node *y,
                                             CUgraphExecUpdateResultInfo *info)
{
    if (x->n_dependencies != y->n_dependencies)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t d = 0; d < y->n_dependencies; d++) {
        const struct rg_graph_edge *edge = &y->dependencies[d], *other = NULL;
        for (size_t i = 0; i < x->n_dependencies && !other; i++)
            if (x->dependencies[i].from->index == edge->from->index)
                other = &x->dependencies[i];
        if (!other || !rg_graph_edge_same(&other->data, &edge->data)) {
            info->errorFromNode = (CUgraphNode)edge->from;
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult compare_nodes(const struct rg_graph_node *x, const struct rg_graph_node *y,
                                             bool priorities, CUgraphExecUpdateResultInfo *info)
{
    info->errorNode = (CUgraphNode)(uintptr_t)y;
    if (x->work->params.type != y->work->params.type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    CUgraphExecUpdateResult result = compare_edges(x, y, info);
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        result = allowed(x->work, y->work, priorities);
    for (unsigned i = 0; i < x->work->n_children && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
        result = compare(x->work->children[i], y->work->children[i], priorities, info);
    return result;
}

/* Whether `b` can take the place of `a`: nodes are paired by the order in which they were made. */
static CUgraphExecUpdateResult compare(const struct rg_graph *a, const struct rg_graph *b, bool priorities,
                                       CUgraphExecUpdateResultInfo *info)
{
    info->errorNode = NULL;
    if (a->n != b->n)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < a->n; i++) {
        CUgraphExecUpdateResult result = compare_nodes(a->nodes[i], b->nodes[i], priorities, info);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
    }
    info->errorNode = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* False: memory ran out on the way. */
static bool take_over(struct rg_graph *to, const struct rg_graph *from)
{
    for (size_t i = 0; i < to->n; i++) {
        struct rg_graph_work **mine = &to->nodes[i]->work, *theirs = from->nodes[i]->work, *other;
        for (unsigned c = 0; c < theirs->n_children; c++)
            if (!take_over((*mine)->children[c], theirs->children[c]))
                return false;
        if (theirs->condition) /* the kernels that were taken over set that one */
            other = rg_graph_work_with_condition(*mine, theirs->condition);
        else if (theirs->n_children)
            continue;
        else
            other = rg_graph_work_acquire(theirs);
        if (!other)
            return false;
        rg_graph_work_release(*mine);
        *mine = other;
    }
    return true;
}

/*
 * The executable graph holds the user objects of the graph it now does the work of. What held the old ones.
 */
static struct rg_graph *exchange_users(struct rg_graph_exec *exec, const struct rg_graph *graph)
{
    struct rg_graph *holder = exec->graph->users || graph->users ? rg_graph_new() : NULL;
    if (!holder)
        return NULL; /* without memory the old ones stay as well */
    holder->owned = true;
    holder->users = exec->graph->users;
    exec->graph->users = NULL;
    if (rg_graph_users_share(exec->graph, graph) != CUDA_SUCCESS)
        exec->graph->users = NULL;
    return holder;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info)
{
    struct rg_graph_turn turn = {.exec = handle};
    struct rg_graph *holder = NULL;
    RG_TRY(rg_graph_backend_enter());
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    rg_graph_turn_begin(&turn);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    const struct rg_graph *graph = rg_graph_find(graph_handle, RG_GRAPH_KIND_GRAPH);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (exec && graph && !graph->captures) {
        info->result =
            compare(exec->graph, graph, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, info);
        result = info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                              : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    if (result == CUDA_SUCCESS) {
        if (!take_over(exec->graph, graph)) {
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        holder = exchange_users(exec, graph);
    }
    pthread_mutex_unlock(&rg_graph_lock);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        rg_graph_exec_changed(exec);
    if (holder)
        rg_graph_users_replace(exec, holder);
    rg_graph_turn_end(&turn);
    rg_captured_collect();
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *out)
{
    CUgraphExecUpdateResultInfo info = {0};
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    if (node)
        *node = info.errorNode;
    *out = info.result;
    return result;
}

/* --- single nodes --- */

/* The node of the executable graph that was made from `id`, in graphs inside it too. */
static struct rg_graph_node *find_node(const struct rg_graph *graph, uint64_t id)
{
    for (size_t i = 0; i < graph->n; i++) {
        struct rg_graph_node *node = graph->nodes[i];
        if (node->origin == id)
            return node;
        for (unsigned c = 0; c < node->work->n_children; c++) {
            struct rg_graph_node *inside = find_node(node->work->children[c], id);
            if (inside)
                return inside;
        }
    }
    return NULL;
}

static struct rg_graph_node *exec_node(CUgraphExec handle, CUgraphNode node_handle)
{
    const struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    const struct rg_graph_node *node = rg_graph_find(node_handle, RG_GRAPH_KIND_NODE);
    return exec && node ? find_node(exec->graph, node->id) : NULL;
}

/* Single nodes may change less than a whole update: copies only from a row to a row. */
static bool change_allowed(const struct rg_graph_work *from, const struct rg_graph_work *to)
{
    if (from->params.type != to->params.type)
        return false;
    if (from->params.type == CU_GRAPH_NODE_TYPE_MEMCPY &&
        !(one_row(&from->params.memcpy.copyParams) && one_row(&to->params.memcpy.copyParams)))
        return false;
    return allowed(from, to, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, CUgraphNodeParams *params)
{
    struct rg_graph_turn turn = {.exec = handle};
    struct rg_graph_work *work;
    CUgraphExecUpdateResultInfo info = {0};
    RG_TRY(rg_graph_backend_enter());
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(rg_graph_work_new(params, NULL, &work));
    rg_graph_turn_begin(&turn);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_node *node = exec_node(handle, node_handle);
    if (node && work->params.type == CU_GRAPH_NODE_TYPE_KERNEL &&
        node->work->params.type == work->params.type)
        rg_graph_work_inherit(work, node->work);
    bool good = node && change_allowed(node->work, work);
    if (good && work->n_children) {
        good =
            compare(node->work->children[0], work->children[0], false, &info) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
        if (good)
            good = take_over(node->work->children[0], work->children[0]);
        rg_graph_work_release(work);
    } else if (good) {
        rg_graph_work_release(node->work);
        node->work = work;
    } else {
        rg_graph_work_release(work);
    }
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    pthread_mutex_unlock(&rg_graph_lock);
    if (good)
        rg_graph_exec_changed(exec);
    rg_graph_turn_end(&turn);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *argument,
                    size_t size, size_t offset, CUcontext context)
{
    CUgraphNodeParams params = {.type = type};
    if (!argument)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((unsigned char *)&params + offset, argument, size);
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
        params.memcpy.copyCtx = context;
    else if (type == CU_GRAPH_NODE_TYPE_MEMSET)
        params.memset.ctx = context;
    return cuGraphExecNodeSetParams(exec, node, &params);
}

#define SETS(name, type, kind, member)                                                                       \
    CUresult name(CUgraphExec exec, CUgraphNode node, const type *argument)                                  \
    {                                                                                                        \
        return set(exec, node, kind, argument, sizeof *argument, offsetof(CUgraphNodeParams, member), NULL); \
    }

SETS(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
SETS(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
SETS(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
SETS(cuGraphExecBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
     memOp)
SETS(cuGraphExecExternalSemaphoresSignalNodeSetParams, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, extSemSignal)
SETS(cuGraphExecExternalSemaphoresWaitNodeSetParams, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, extSemWait)

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
    return set(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy, sizeof *copy,
               offsetof(CUgraphNodeParams, memcpy.copyParams), context);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    return set(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, params, sizeof *params,
               offsetof(CUgraphNodeParams, memset), context);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    return set(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &child, sizeof child, offsetof(CUgraphNodeParams, graph),
               NULL);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof event,
               offsetof(CUgraphNodeParams, eventRecord), NULL);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof event,
               offsetof(CUgraphNodeParams, eventWait), NULL);
}

static bool can_be_disabled(const struct rg_graph_node *node)
{
    return node->work->params.type <= CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node_handle, unsigned int enabled)
{
    struct rg_graph_turn turn = {.exec = handle};
    RG_TRY(rg_graph_backend_enter());
    rg_graph_turn_begin(&turn);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_node *node = exec_node(handle, node_handle);
    const bool good = node && can_be_disabled(node), changes = good && node->disabled != !enabled;
    if (good)
        node->disabled = !enabled;
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    pthread_mutex_unlock(&rg_graph_lock);
    if (changes)
        rg_graph_exec_changed(exec);
    rg_graph_turn_end(&turn);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int *enabled)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    const struct rg_graph_node *node = exec_node(exec, handle);
    const bool good = node && enabled && can_be_disabled(node);
    if (good)
        *enabled = !node->disabled;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
