/*
 * launch.c - a plan's steps given to streams, through the layer's own functions. See plan.h.
 */
#include "common/cuda/graph/call.h"
#include "common/cuda/graph/plan.h"

#include <string.h>

/* --- single nodes --- */

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

static CUresult launch_kernel(const struct rg_graph_work *work, bool priorities, CUstream stream)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &work->params.kernel;
    CUlaunchAttribute attributes[RG_GRAPH_ATTRIBUTES_MAX + 2];
    unsigned n = work->n_attributes;
    memcpy(attributes, work->attributes, n * sizeof *attributes);
    if (work->cooperative)
        attributes[n++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    if (priorities && work->priority)
        attributes[n++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = work->priority};
    if (!n)
        return cuLaunchKernel(k->func, k->gridDimX, k->gridDimY, k->gridDimZ, k->blockDimX, k->blockDimY,
                              k->blockDimZ, k->sharedMemBytes, stream, k->kernelParams, NULL);
    CUlaunchConfig config = {k->gridDimX,  k->gridDimY,       k->gridDimZ, k->blockDimX, k->blockDimY,
                             k->blockDimZ, k->sharedMemBytes, stream,      attributes,   n};
    return cuLaunchKernelEx(&config, k->func, k->kernelParams, NULL);
}

static CUresult memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *m, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < m->count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *op = &m->paramArray[i];
        switch (op->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            result = cuStreamWaitValue32_v2(stream, op->waitValue.address, op->waitValue.value,
                                            op->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            result = cuStreamWaitValue64_v2(stream, op->waitValue.address, op->waitValue.value64,
                                            op->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            result = cuStreamWriteValue32_v2(stream, op->writeValue.address, op->writeValue.value,
                                             op->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            result = cuStreamWriteValue64_v2(stream, op->writeValue.address, op->writeValue.value64,
                                             op->writeValue.flags);
            break;
        default: /* a barrier: work of a stream sees what came before it */
            break;
        }
    }
    return result;
}

static CUresult perform(struct rg_graph_plan *plan, const struct rg_graph_step *step, CUstream stream)
{
    if (step->native)
        return rg_graph_backend_native_launch(step->native, stream);
    if (!step->work)
        return CUDA_SUCCESS;
    if (step->work->captured)
        return step->work->captured->run(step->work->captured, stream);
    const CUgraphNodeParams *p = &step->work->params;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return launch_kernel(step->work, plan->priorities, stream);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return rg_graph_backend_copy(&p->memcpy.copyParams, stream);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill(&p->memset, stream);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuLaunchHostFunc(stream, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuEventRecord(p->eventRecord.event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuStreamWaitEvent(stream, p->eventWait.event, 0);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return memops(&p->memOp, stream);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return rg_graph_backend_conditional(plan, step, stream);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* --- branches --- */

/* Calls of a branch are made with its context current, if that is another than the stream's of the launch. */
static CUresult enter(const struct rg_graph_plan *plan, unsigned branch)
{
    return plan->branches[branch].context == plan->branches[0].context
               ? CUDA_SUCCESS
               : cuCtxPushCurrent_v2(plan->branches[branch].context);
}

static void leave(const struct rg_graph_plan *plan, unsigned branch)
{
    CUcontext none;
    if (plan->branches[branch].context != plan->branches[0].context)
        (void)cuCtxPopCurrent_v2(&none);
}

static CUresult mark(CUevent *event, CUstream stream)
{
    if (!*event)
        RG_TRY(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    return cuEventRecord(*event, stream);
}

static CUresult run_step(struct rg_graph_plan *plan, struct rg_graph_step *step, CUstream launch)
{
    struct rg_graph_branch *branch = &plan->branches[step->branch];
    if (step->branch && !branch->stream)
        RG_TRY(cuStreamCreate(&branch->stream, CU_STREAM_NON_BLOCKING));
    CUstream stream = step->branch ? branch->stream : launch;
    if (step->starts)
        RG_TRY(cuStreamWaitEvent(stream, plan->begin, 0));
    for (size_t i = 0; i < step->n_waits; i++)
        RG_TRY(cuStreamWaitEvent(stream, plan->steps[plan->waits[step->waits + i]].event, 0));
    RG_TRY(perform(plan, step, stream));
    return step->records ? mark(&step->event, stream) : CUDA_SUCCESS;
}

CUresult rg_graph_plan_run(struct rg_graph_plan *plan, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    if (plan->n_branches > 1)
        result = mark(&plan->begin, stream);
    for (size_t i = 0; i < plan->n && result == CUDA_SUCCESS; i++) {
        struct rg_graph_step *step = &plan->steps[i];
        result = enter(plan, step->branch);
        if (result != CUDA_SUCCESS)
            break;
        result = run_step(plan, step, stream);
        leave(plan, step->branch);
    }
    /* The stream of the launch goes on behind all branches, also where one of them was given only a part. */
    for (unsigned i = 1; i < plan->n_branches; i++) {
        struct rg_graph_branch *branch = &plan->branches[i];
        if (!branch->stream || (branch->joined && result == CUDA_SUCCESS) || enter(plan, i) != CUDA_SUCCESS)
            continue;
        CUresult ended = mark(&branch->end, branch->stream);
        leave(plan, i);
        if (ended == CUDA_SUCCESS)
            ended = cuStreamWaitEvent(stream, branch->end, 0);
        if (result == CUDA_SUCCESS)
            result = ended;
    }
    return result;
}

/* --- conditional nodes of layers that know the values --- */

void rg_graph_conditions_begin(const struct rg_graph_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        if (!step->n_bodies)
            continue;
        struct rg_graph_condition *condition = step->work->condition;
        if (condition->flags & CU_GRAPH_COND_ASSIGN_DEFAULT)
            atomic_store(&condition->value, condition->initial);
        for (unsigned b = 0; b < step->n_bodies; b++)
            rg_graph_conditions_begin(step->bodies[b]);
    }
}

/* The body that runs for a value, or NULL. */
static struct rg_graph_plan *body_for(const struct rg_graph_step *step, unsigned value)
{
    unsigned index = value;
    switch (step->work->params.conditional.type) {
    case CU_GRAPH_COND_TYPE_IF:
        index = value ? 0 : 1;
        break;
    case CU_GRAPH_COND_TYPE_WHILE:
        index = value ? 0 : UINT32_MAX;
        break;
    default:
        break;
    }
    return index < step->n_bodies ? step->bodies[index] : NULL;
}

CUresult rg_graph_conditional_run(const struct rg_graph_step *step, CUstream stream)
{
    struct rg_graph_plan *body;
    do {
        body = body_for(step, atomic_load(&step->work->condition->value));
        if (body) {
            RG_TRY(rg_graph_plan_run(body, stream));
            RG_TRY(cuStreamSynchronize(stream));
        }
    } while (body && step->work->params.conditional.type == CU_GRAPH_COND_TYPE_WHILE);
    return CUDA_SUCCESS;
}
