/*
 * work_check.c - whether what a node is to do can be: its parameters, and its place in a graph. What is wrong is refused as CUDA refuses it,
 * before anything is made of it. Any thread.
 */
#include "common/base/status.h"
#include "common/cuda/errors.h"
#include "common/cuda/graph/graph.h"

#define MEMOPS_MAX 256

static CUresult check_kernel(const CUDA_KERNEL_NODE_PARAMS_v3 *k)
{
    return k->gridDimX && k->gridDimY && k->gridDimZ && k->blockDimX && k->blockDimY && k->blockDimZ
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* Whether so many bytes from an address on are device memory; true of what is not known, as what a node is to allocate. */
static bool fits(CUdeviceptr address, size_t size)
{
    CUdeviceptr end;
    bool mapping = true, known = false;
    while (mapping && rg_graph_backend_device_memory(address, &end, &mapping)) {
        if (end - address >= size)
            return true;
        size -= end - address;
        address = end; /* mappings may lie side by side */
        known = true;
    }
    return !known;
}

/* One side of a copy. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, rows;
};

/* Whether the part of linear memory that is copied is memory. */
static bool side_fits(const struct side *side, const CUDA_MEMCPY3D *c)
{
    size_t row_end, slice, first, end, skip;
    if (__builtin_add_overflow(side->x, c->WidthInBytes, &row_end))
        return false;
    const size_t pitch = side->pitch ? side->pitch : row_end;
    const size_t rows = side->rows ? side->rows : side->y + c->Height;
    return !__builtin_mul_overflow(pitch, rows, &slice) &&
           !__builtin_mul_overflow(slice, side->z + c->Depth - 1, &first) &&
           !__builtin_mul_overflow(pitch, side->y + c->Height - 1, &skip) &&
           !__builtin_add_overflow(first, skip, &end) && !__builtin_add_overflow(end, row_end, &end) &&
           fits(side->device, end);
}

static bool good_side(const struct side *side, const CUDA_MEMCPY3D *c)
{
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        return side->host != NULL;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return side->device != 0 && side_fits(side, c);
    case CU_MEMORYTYPE_ARRAY:
        return rg_graph_backend_array_known(side->array);
    default:
        return false;
    }
}

static CUresult check_copy(const CUDA_MEMCPY3D *c)
{
    if (c->srcLOD || c->dstLOD || !c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    const struct side from = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes,
                              c->srcY,          c->srcZ,    c->srcPitch,  c->srcHeight};
    const struct side to = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes,
                            c->dstY,          c->dstZ,    c->dstPitch,  c->dstHeight};
    return good_side(&from, c) && good_side(&to, c) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *m)
{
    const unsigned e = m->elementSize;
    size_t row, end = 0;
    if ((e != 1 && e != 2 && e != 4) || !m->dst || m->dst % e || !m->width || !m->height ||
        __builtin_mul_overflow(m->width, e, &row))
        return CUDA_ERROR_INVALID_VALUE;
    if (m->height > 1 &&
        (m->pitch < row || m->pitch % e || __builtin_mul_overflow(m->pitch, m->height - 1, &end)))
        return CUDA_ERROR_INVALID_VALUE;
    return !__builtin_add_overflow(end, row, &end) && fits(m->dst, end) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
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
        return rg_graph_backend_event_known(params->eventRecord.event)
                   ? CUDA_SUCCESS
                   : rg_cuda_no_object(params->eventRecord.event);
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
