/*
 * native_image.c - steps of a plan as they travel to the worker (proto/graph.h), which makes a graph of its driver of them.
 */
#include "client/api/graph/native.h"
#include "client/cache/image.h"
#include "client/core/handle.h"
#include "client/managed/pinned.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"
#include "proto/graph.h"

#include <stdlib.h>
#include <string.h>

bool rg_graph_step_is_native(const struct rg_graph_step *step)
{
    const CUgraphNodeParams *p = &step->work->params;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return p->memcpy.copyParams.srcMemoryType == CU_MEMORYTYPE_DEVICE &&
               p->memcpy.copyParams.dstMemoryType == CU_MEMORYTYPE_DEVICE;
    default:
        return false;
    }
}

size_t rg_graph_pack_parameters(const CUDA_KERNEL_NODE_PARAMS_v3 *k, unsigned char *parameters)
{
    size_t offset, size, end = 0;
    memset(parameters, 0, RG_PARAMS_MAX);
    for (size_t i = 0; cuFuncGetParamInfo(k->func, i, &offset, &size) == CUDA_SUCCESS; i++)
        if (offset + size <= RG_PARAMS_MAX) {
            memcpy(parameters + offset, k->kernelParams[i], size);
            end = offset + size > end ? offset + size : end;
        }
    return end;
}

struct buffer {
    unsigned char *data;
    size_t size, room;
    bool failed;
};

static void put(struct buffer *b, const void *data, size_t size)
{
    if (b->size + size > b->room) {
        size_t room = b->room * 2 > b->size + size ? b->room * 2 : b->size + size + 4096;
        unsigned char *bigger = realloc(b->data, room);
        if (!bigger) {
            b->failed = true;
            return;
        }
        b->data = bigger;
        b->room = room;
    }
    if (size && !b->failed)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_u32(struct buffer *b, uint32_t value)
{
    put(b, &value, sizeof value);
}

static void put_u64(struct buffer *b, uint64_t value)
{
    put(b, &value, sizeof value);
}

static void put_kernel(struct buffer *b, const struct rg_graph_work *work)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &work->params.kernel;
    unsigned char parameters[RG_PARAMS_MAX];
    const size_t end = rg_graph_pack_parameters(k, parameters);
    put_u64(b, (uint64_t)k->func);
    const uint32_t numbers[] = {k->gridDimX,       k->gridDimY,       k->gridDimZ,
                                k->blockDimX,      k->blockDimY,      k->blockDimZ,
                                k->sharedMemBytes, work->cooperative, work->n_attributes};
    put(b, numbers, sizeof numbers);
    put(b, work->attributes, work->n_attributes * sizeof *work->attributes);
    put_u32(b, (uint32_t)end);
    if (rg_pinned_scan(parameters, end) != CUDA_SUCCESS)
        b->failed = true;
    put(b, parameters, end);
}

static void put_fill(struct buffer *b, const CUDA_MEMSET_NODE_PARAMS_v2 *m)
{
    put_u64(b, m->dst);
    put_u64(b, m->pitch);
    put_u64(b, m->width);
    put_u64(b, m->height);
    put_u32(b, m->value);
    put_u32(b, m->elementSize);
}

/* The steps of one phase (phases NULL: all), whose places in the list are left in `places`. */
static CUresult put_steps(struct buffer *b, const struct rg_graph_plan *plan, const size_t *phases,
                          size_t phase);

static CUresult put_conditional(struct buffer *b, const struct rg_graph_step *step)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *c = &step->work->params.conditional;
    put_u64(b, c->handle);
    put_u32(b, c->type);
    put_u32(b, step->n_bodies);
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < step->n_bodies && result == CUDA_SUCCESS; i++)
        result = put_steps(b, step->bodies[i], NULL, 0);
    return result;
}

static CUresult put_step(struct buffer *b, const struct rg_graph_step *step)
{
    if (!step->work)
        return CUDA_SUCCESS;
    const CUgraphNodeParams *p = &step->work->params;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        put_kernel(b, step->work);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        put_fill(b, &p->memset);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        put(b, &p->memcpy.copyParams, sizeof p->memcpy.copyParams);
        return CUDA_SUCCESS;
    default:
        return put_conditional(b, step);
    }
}

static enum rg_graph_wire_step kind_of(const struct rg_graph_step *step)
{
    if (!step->work)
        return RG_GRAPH_WIRE_NOTHING;
    switch (step->work->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return RG_GRAPH_WIRE_KERNEL;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return RG_GRAPH_WIRE_FILL;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return RG_GRAPH_WIRE_COPY;
    default:
        return RG_GRAPH_WIRE_CONDITIONAL;
    }
}

static CUresult put_steps(struct buffer *b, const struct rg_graph_plan *plan, const size_t *phases,
                          size_t phase)
{
    uint32_t *places = calloc(plan->n + 1, sizeof *places), n = 0;
    if (!places)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t count_at = b->size;
    put_u32(b, 0);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < plan->n && result == CUDA_SUCCESS; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        if (phases ? phases[i] != phase : step->work && !rg_graph_step_is_native(step)) {
            if (!phases) /* a body with host memory or arrays: the driver could not either */
                result = CUDA_ERROR_NOT_SUPPORTED;
            continue;
        }
        uint32_t behind = 0;
        put_u32(b, kind_of(step));
        const size_t behind_at = b->size;
        put_u32(b, 0);
        for (size_t d = 0; d < step->n_before; d++) {
            const size_t from = plan->edges[step->before + d];
            if (phases && phases[from] != phase)
                continue; /* the phase is behind it as a whole */
            put_u32(b, places[from]);
            behind++;
        }
        if (!b->failed)
            memcpy(b->data + behind_at, &behind, sizeof behind);
        places[i] = n++;
        result = put_step(b, step);
    }
    if (!b->failed)
        memcpy(b->data + count_at, &n, sizeof n);
    free(places);
    return result;
}

static void put_conditions(struct buffer *b, const struct rg_graph_plan *plan, const size_t *phases,
                           size_t phase, uint32_t *n)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        if (!step->n_bodies || (phases && phases[i] != phase))
            continue;
        put_u64(b, step->work->condition->handle);
        put_u32(b, step->work->condition->initial);
        put_u32(b, step->work->condition->flags);
        ++*n;
        for (unsigned k = 0; k < step->n_bodies; k++)
            put_conditions(b, step->bodies[k], NULL, 0, n);
    }
}

CUresult rg_graph_native_make(const struct rg_graph_plan *plan, const size_t *phases, size_t phase,
                              uint64_t *native)
{
    struct buffer b = {0};
    uint32_t conditions = 0;
    uint64_t image;
    put_u32(&b, 0);
    put_conditions(&b, plan, phases, phase, &conditions);
    if (!b.failed)
        memcpy(b.data, &conditions, sizeof conditions);
    CUresult result = put_steps(&b, plan, phases, phase);
    if (result == CUDA_SUCCESS && b.failed)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphExec graph = (CUgraphExec)rg_handle_create(RG_KIND_GRAPH);
    if (!graph)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = rg_image_send_bytes(b.data, b.size, &image);
    if (result == CUDA_SUCCESS)
        result = rg_op_rgGraphMake(&graph, image, plan->priorities);
    free(b.data);
    return rg_handle_made(RG_KIND_GRAPH, (uint64_t)graph, result, native);
}
