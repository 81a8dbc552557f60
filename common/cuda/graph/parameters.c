/*
 * parameters.c - what nodes do, asked for and changed; attributes of kernel nodes. See graph.h.
 */
#include "common/cuda/graph/call.h"

#include <limits.h>
#include <stddef.h>

static CUresult get(CUgraphNode handle, CUgraphNodeType type, const void *out, CUgraphNodeParams *params)
{
    RG_TRY(rg_graph_backend_enter());
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    if (node->work->params.type != type)
        return CUDA_ERROR_INVALID_VALUE;
    if (node->work->captured)
        return CUDA_ERROR_NOT_SUPPORTED;
    *params = node->work->params;
    return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode handle, const void *given, const CUgraphNodeParams *params)
{
    struct rg_graph_work *work;
    RG_TRY(rg_graph_backend_enter());
    if (!given)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_NOT_SUPPORTED;
    RG_TRY(rg_graph_work_new(params, NULL, &work));
    RG_GRAPH_LOCKED;
    struct rg_graph_node *node = rg_graph_find(handle, RG_GRAPH_KIND_NODE);
    if (!node || node->work->params.type != params->type || node->work->captured) {
        rg_graph_work_release(work);
        return node && node->work->captured ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    rg_graph_work_inherit(work, node->work);
    rg_graph_work_release(node->work);
    node->work = work;
    return CUDA_SUCCESS;
}

static CUresult set_kind(CUgraphNode node, CUgraphNodeType type, const void *argument, size_t size,
                         size_t offset)
{
    CUgraphNodeParams params = {.type = type};
    RG_TRY(rg_graph_backend_enter());
    if (!argument)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((unsigned char *)&params + offset, argument, size);
    return set(node, argument, &params);
}

#define SETS(name, type, kind, member)                                                                       \
    CUresult name(CUgraphNode node, const type *argument)                                                    \
    {                                                                                                        \
        return set_kind(node, kind, argument, sizeof *argument, offsetof(CUgraphNodeParams, member));        \
    }
#define GETS(name, type, kind, member)                                                                       \
    CUresult name(CUgraphNode node, type *out)                                                               \
    {                                                                                                        \
        CUgraphNodeParams params;                                                                            \
        RG_TRY(get(node, kind, out, &params));                                                               \
        memcpy(out, &params.member, sizeof *out);                                                            \
        return CUDA_SUCCESS;                                                                                 \
    }

SETS(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
SETS(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
SETS(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams)
SETS(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, memset)
SETS(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
SETS(cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp)
SETS(cuGraphExternalSemaphoresSignalNodeSetParams, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, extSemSignal)
SETS(cuGraphExternalSemaphoresWaitNodeSetParams, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, extSemWait)
GETS(cuGraphKernelNodeGetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
GETS(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
GETS(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams)
GETS(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, memset)
GETS(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
GETS(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord.event)
GETS(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait.event)
GETS(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, graph.graph)
GETS(cuGraphBatchMemOpNodeGetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp)
GETS(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEM_ALLOC, alloc)
GETS(cuGraphMemFreeNodeGetParams, CUdeviceptr, CU_GRAPH_NODE_TYPE_MEM_FREE, free.dptr)
GETS(cuGraphExternalSemaphoresSignalNodeGetParams, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, extSemSignal)
GETS(cuGraphExternalSemaphoresWaitNodeGetParams, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
     CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, extSemWait)

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_kind(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventRecord));
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_kind(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof event,
                    offsetof(CUgraphNodeParams, eventWait));
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    return set(node, params, params);
}

/* --- attributes of kernel nodes --- */

/* Attributes that a kernel node can have beside the ones that are told apart. */
static bool kept(CUkernelNodeAttrID attribute)
{
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return true;
    default:
        return false;
    }
}

static CUresult get_attribute(const struct rg_graph_work *work, CUkernelNodeAttrID attribute,
                              CUkernelNodeAttrValue *value)
{
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        value->cooperative = work->cooperative;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = work->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: /* never asked for */
        return CUDA_SUCCESS;
    default:
        break;
    }
    if (!kept(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < work->n_attributes; i++)
        if (work->attributes[i].id == attribute)
            *value = work->attributes[i].value;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value)
{
    RG_TRY(rg_graph_backend_enter());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    if (node->work->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, sizeof *value);
    return get_attribute(node->work, attribute, value);
}

/* As NVIDIA's driver has it (docs/software-device.md, "Where documents are silent or disagree"). Without a context, of any device. */
static bool window_is_good(const CUaccessPolicyWindow *window)
{
    CUdevice device;
    int most = INT_MAX;
    if (cuCtxGetDevice(&device) == CUDA_SUCCESS)
        (void)cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, device);
    return window->num_bytes <= (size_t)most && window->hitRatio >= 0 && window->hitRatio <= 1 &&
           window->missProp != CU_ACCESS_PROPERTY_PERSISTING;
}

/* What the node does is shared with copies of the graph: it gets one of its own before it changes. */
static CUresult own_work(CUgraphNode handle, const void *given)
{
    CUgraphNodeParams params;
    RG_TRY(get(handle, CU_GRAPH_NODE_TYPE_KERNEL, given, &params));
    return set(handle, given, &params);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    RG_TRY(rg_graph_backend_enter());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_LAUNCH_ATTRIBUTE_IGNORE)
        return CUDA_SUCCESS;
    if (attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
        return rg_graph_backend_unsupported("kernel nodes that the device updates");
    if (attribute != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
        !kept(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && !window_is_good(&value->accessPolicyWindow))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(own_work(handle, value));
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(node, handle);
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        node->work->cooperative = value->cooperative;
    } else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        node->work->priority = value->priority;
    } else {
        const CUlaunchAttribute kept_value = {.id = attribute, .value = *value};
        if (!rg_graph_work_attribute(node->work, &kept_value))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    RG_TRY(rg_graph_backend_enter());
    RG_TRY(own_work(to, to));
    RG_GRAPH_LOCKED;
    NODE_OR_RETURN(target, to);
    NODE_OR_RETURN(source, from);
    if (source->work->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    rg_graph_work_inherit(target->work, source->work);
    return CUDA_SUCCESS;
}
