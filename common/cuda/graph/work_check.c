/*
 * work_check.c - whether what a node is to do can be: its parameters, and its place in a graph. What is wrong is refused as CUDA refuses it,
 * before anything is made of it. Any thread.
 */
#include "common/base/status.h"
#include "common/cuda/graph/graph.h"

#define MEMOPS_MAX 256

static CUresult check_kernel(const CUDA_KERNEL_NODE_PARAMS_v3 *k)
{
    return k->gridDimX && k->gridDimY && k->gridDimZ && k->blockDimX && k->blockDimY && k->blockDimZ
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static bool good_side(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        return host != NULL;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return device != 0;
    case CU_MEMORYTYPE_ARRAY:
        return rg_graph_backend_array_known(array);
    default:
        return false;
    }
}

static CUresult check_copy(const CUDA_MEMCPY3D *c)
{
    if (c->srcLOD || c->dstLOD || !c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    return good_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray) &&
                   good_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray)
               ? CUDA_SUCCESS
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

static CUresult check_memory_operation(const CUstreamBatchMemOpParams *operation)
{
    const CUdeviceptr address = operation->waitValue.address;
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return address && address % 4 == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return address && address % 8 == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_BARRIER: /* nodes see what those before them wrote */
        return CUDA_SUCCESS;
    default:
        return operation->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES
                   ? rg_graph_backend_unsupported("flushing of remote writes in graphs")
                   : CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_memory_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *m)
{
    if (!m->count || m->count > MEMOPS_MAX || !m->paramArray || m->flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < m->count; i++)
        RG_TRY(check_memory_operation(&m->paramArray[i]));
    return CUDA_SUCCESS;
}

/* What is not looked at here is seen when the work is made of it. */
static CUresult check_parameters(const CUgraphNodeParams *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return check_kernel(&params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return check_copy(&params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return check_fill(&params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: /* both have the event first */
        return rg_graph_backend_event_known(params->eventRecord.event) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_HANDLE;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return params->free.dptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return check_memory_operations(&params->memOp);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return rg_graph_backend_unsupported("external semaphores in graphs");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/*
 * Whether a node of this type may be in `into`: bodies of conditional nodes take only what the device does
 * alone.
 */
static CUresult check_place(const CUgraphNodeParams *params, CUgraph into)
{
    const unsigned allowed = 1u << CU_GRAPH_NODE_TYPE_KERNEL | 1u << CU_GRAPH_NODE_TYPE_MEMCPY |
                             1u << CU_GRAPH_NODE_TYPE_MEMSET | 1u << CU_GRAPH_NODE_TYPE_GRAPH |
                             1u << CU_GRAPH_NODE_TYPE_EMPTY | 1u << CU_GRAPH_NODE_TYPE_CONDITIONAL;
    RG_GRAPH_LOCKED;
    const struct rg_graph *graph = rg_graph_find(into, RG_GRAPH_KIND_GRAPH), *child = NULL;
    bool body = false;
    for (const struct rg_graph *g = graph; g; g = g->parent)
        body |= g->body;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        child = rg_graph_find(params->graph.graph, RG_GRAPH_KIND_GRAPH);
    return body && (!(allowed & 1u << params->type) || (child && rg_graph_has(child, ~allowed)))
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

CUresult rg_graph_work_check(const CUgraphNodeParams *params, CUgraph into)
{
    if (into)
        RG_TRY(check_place(params, into));
    return check_parameters(params);
}
