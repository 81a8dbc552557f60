/*
 * capture_kernel.c - kernels that are launched in streams that capture: the node keeps the launch's
 * attributes, but for those that say how it stands to what is before and behind it, which become edges and
 * events.
 */
#include "common/base/status.h"
#include "common/cuda/graph/capture.h"

/* What a captured launch asks for beside its node's attributes. */
struct launch_order {
    bool programmatic;                    /* may begin before what it follows has ended */
    CUevent when_triggered, when_started; /* events to record at the kernel's ports */
};

/* The attributes of a captured launch that its node keeps; false for those that it could not. */
static bool keep_attributes(struct rg_graph_work *work, const CUlaunchConfig *config,
                            struct launch_order *order)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch ((int)attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: /* told apart */
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            work->priority = attribute->value.priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            order->programmatic = attribute->value.programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            order->when_triggered = attribute->value.programmaticEvent.event;
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            order->when_started = attribute->value.launchCompletionEvent.event;
            break;
        default:
            if (!rg_graph_work_attribute(work, attribute))
                return false;
        }
    }
    return true;
}

CUresult rg_capture_kernel(const CUlaunchConfig *config, CUfunction function, bool cooperative, void **params,
                           void **extra)
{
    CUgraphNodeParams described = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    described.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
        .func = function,
        .gridDimX = config->gridDimX,
        .gridDimY = config->gridDimY,
        .gridDimZ = config->gridDimZ,
        .blockDimX = config->blockDimX,
        .blockDimY = config->blockDimY,
        .blockDimZ = config->blockDimZ,
        .sharedMemBytes = config->sharedMemBytes,
        .kernelParams = params,
        .extra = extra,
    };
    struct rg_graph_work *work;
    struct rg_graph_node *node;
    struct launch_order order = {0};
    RG_TRY(rg_graph_work_new(&described, NULL, &work));
    work->cooperative = cooperative;
    (void)cuStreamGetPriority(rg_graph_backend_stream(config->hStream), &work->priority);
    if (!keep_attributes(work, config, &order)) {
        pthread_mutex_lock(&rg_graph_lock);
        rg_graph_work_release(work);
        pthread_mutex_unlock(&rg_graph_lock);
        (void)rg_graph_backend_unsupported("a captured launch with so many attributes");
        return rg_capture_refuse(config->hStream);
    }
    CUresult result = rg_capture_add_work(work, order.programmatic, config->hStream, &node);
    if (result == CUDA_SUCCESS && order.when_triggered)
        result = rg_capture_note_event(order.when_triggered, node, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                       config->hStream);
    if (result == CUDA_SUCCESS && order.when_started)
        result = rg_capture_note_event(order.when_started, node, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER,
                                       config->hStream);
    return result;
}
