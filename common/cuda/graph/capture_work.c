/*
 * capture_work.c - what is put into streams that capture, as nodes of their graphs: the work is made without
 * the lock, then becomes a node behind what the stream has, which from then on has that node alone. What no
 * node can do, or no memory, invalidates the capture. Any thread.
 */
#include "common/base/status.h"
#include "common/cuda/graph/capture.h"

#include <stdlib.h>
#include <string.h>

/* A kernel that may begin before those it follows have ended depends on them by their programmatic port. */
static void make_programmatic(struct rg_capture_nodes *last)
{
    for (size_t i = 0; i < last->n; i++)
        if (last->at[i]->work->params.type == CU_GRAPH_NODE_TYPE_KERNEL &&
            rg_graph_edge_plain(&last->edges[i]))
            last->edges[i] = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                               .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

CUresult rg_capture_add_work(struct rg_graph_work *work, bool programmatic, CUstream stream,
                             struct rg_graph_node **out)
{
    struct rg_capture_place place;
    CUcontext context = NULL;
    if (cuStreamGetCtx(rg_graph_backend_stream(stream), &context) == CUDA_SUCCESS)
        work->context = context;
    CUresult result = rg_capture_enter(stream, &place);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_lock(&rg_graph_lock);
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        return result;
    }
    struct rg_capture_nodes *last = &place.stream->last;
    struct rg_graph *graph = place.capture->graph;
    if (work->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        result = rg_graph_memory_freed_by(work->params.free.dptr, graph);
    if (result != CUDA_SUCCESS) {
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        return result;
    }
    if (work->memory)
        rg_graph_memory_made_by(work->memory, graph);
    if (programmatic)
        make_programmatic(last);
    result = rg_graph_add(graph, work, last->at, last->edges, last->n, out);
    if (result == CUDA_SUCCESS && !rg_capture_nodes_set(last, out, NULL, 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        place.capture->invalid = true;
    pthread_mutex_unlock(&rg_graph_lock);
    return result;
}

CUresult rg_capture_add(const CUgraphNodeParams *params, CUstream stream)
{
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    struct rg_capture_place place;
    RG_TRY(rg_capture_enter(stream, &place));
    CUgraph into = (CUgraph)place.capture->graph;
    pthread_mutex_unlock(&rg_graph_lock);
    CUresult result = rg_graph_work_new(params, into, &work);
    if (result == CUDA_SUCCESS)
        return rg_capture_add_work(work, false, stream, &node);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        (void)rg_capture_refuse(stream);
    return result;
}

/* --- what the layers' functions call --- */

CUresult rg_capture_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return CUDA_SUCCESS;
    node.memcpy.copyParams = *copy;
    return rg_capture_add(&node, stream);
}

CUresult rg_capture_copy_1d(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                            size_t size, CUstream stream)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = size, .Height = 1, .Depth = 1};
    if (from_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = (const void *)(uintptr_t)from;
    else
        copy.srcDevice = from;
    if (to_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = (void *)(uintptr_t)to;
    else
        copy.dstDevice = to;
    return rg_capture_copy(&copy, stream);
}

CUresult rg_capture_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                         size_t height, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!width || !height)
        return CUDA_SUCCESS;
    node.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
        .dst = to, .pitch = pitch, .value = value, .elementSize = element, .width = width, .height = height};
    return rg_capture_add(&node, stream);
}

CUresult rg_capture_host(CUhostFn function, void *user, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_HOST};
    node.host.fn = function;
    node.host.userData = user;
    return rg_capture_add(&node, stream);
}

CUresult rg_capture_memops(const CUstreamBatchMemOpParams *operations, unsigned n, unsigned flags,
                           CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    node.memOp.count = n;
    node.memOp.flags = flags;
    node.memOp.paramArray = (CUstreamBatchMemOpParams *)(uintptr_t)operations;
    return rg_capture_add(&node, stream);
}

CUresult rg_capture_memop(CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
                          unsigned flags, CUstream stream)
{
    CUstreamBatchMemOpParams op = {.operation = operation};
    if (operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        op.waitValue.address = address;
        op.waitValue.value64 = value; /* the low half is the 32-bit value */
        op.waitValue.flags = flags;
    } else {
        op.writeValue.address = address;
        op.writeValue.value64 = value;
        op.writeValue.flags = flags;
    }
    return rg_capture_memops(&op, 1, 0, stream);
}

CUresult rg_capture_allocate(CUdeviceptr *out, size_t size, CUdevice device, CUstream stream)
{
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    CUgraphNodeParams described = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!size) { /* as where nothing is captured; it needs no node */
        *out = 0;
        return CUDA_SUCCESS;
    }
    described.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    described.alloc.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    described.alloc.bytesize = size;
    RG_TRY(rg_graph_work_new(&described, NULL, &work));
    const CUdeviceptr address = work->params.alloc.dptr;
    CUresult result = rg_capture_add_work(work, false, stream, &node);
    if (result == CUDA_SUCCESS)
        *out = address;
    else
        rg_graph_memory_collect();
    return result;
}

CUresult rg_capture_free(CUdeviceptr address, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    node.free.dptr = address;
    return rg_capture_add(&node, stream);
}

CUresult rg_capture_launch(CUgraph graph, CUstream stream)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    node.graph.graph = graph;
    return rg_capture_add(&node, stream);
}
