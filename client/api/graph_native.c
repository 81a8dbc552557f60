/*
 * graph_native.c - graphs with conditional nodes: the worker runs them.
 *
 * Which body of a conditional node runs is decided on the device, by a value that kernels of the same graph
 * set. So the steps of a plan around its conditional nodes are sent to the worker once, which makes a graph
 * of its driver of them (proto/graph.h); a launch then sends one record for all of them.
 *
 * Steps that need the client (host functions, copies of host memory, events, arrays) stay ordinary calls.
 * They divide the plan into phases, even ones of the client's steps and odd ones of the worker's, which
 * follow each other. A kernel that sets a condition must be in the phase of the node that reads it; other
 * plans are refused.
 */
#include "client/api/implied_context.h"
#include "client/cache/image.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/managed/pinned.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/cuda/graph/plan.h"
#include "generated/client/operations.h"
#include "proto/graph.h"

#include <stdlib.h>
#include <string.h>

/* --- what goes where --- */

static bool is_native(const struct rg_graph_step *step)
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

/* The phase of each step: the first of its parity that is not before what it is behind. */
static size_t divide(const struct rg_graph_plan *plan, size_t *phases)
{
    size_t last = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        size_t phase = 0;
        for (size_t b = 0; b < step->n_before; b++) {
            const size_t from = phases[plan->edges[step->before + b]];
            phase = from > phase ? from : phase;
        }
        if (step->work && (phase & 1) != is_native(step))
            phase++;
        phases[i] = phase;
        last = phase > last ? phase : last;
    }
    return last;
}

/* The parameters of a kernel as they travel, up to RG_PARAMS_MAX bytes; how many there are. */
static size_t pack(const CUDA_KERNEL_NODE_PARAMS_v3 *k, unsigned char *parameters)
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

/*
 * Whether the parameters of the step's kernel hold the handle: where the worker would find it
 * (proto/graph.h).
 */
static bool names(const struct rg_graph_work *work, CUgraphConditionalHandle handle)
{
    unsigned char parameters[RG_PARAMS_MAX];
    const size_t size = pack(&work->params.kernel, parameters);
    return memmem(parameters, size, &handle, sizeof handle) != NULL;
}

static bool names_in(const struct rg_graph_plan *plan, const size_t *phases, size_t but,
                     CUgraphConditionalHandle handle)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        if (phases && phases[i] == but)
            continue;
        if (step->work && step->work->params.type == CU_GRAPH_NODE_TYPE_KERNEL && names(step->work, handle))
            return true;
        for (unsigned b = 0; b < step->n_bodies; b++)
            if (names_in(step->bodies[b], NULL, 0, handle))
                return true;
    }
    return false;
}

/* Whether no condition of the steps in `inside` is set outside of `phase` of `plan`. */
static bool conditions_stay(const struct rg_graph_plan *plan, const size_t *phases, size_t phase,
                            const struct rg_graph_plan *inside)
{
    for (size_t i = 0; i < inside->n; i++) {
        const struct rg_graph_step *step = &inside->steps[i];
        if (!step->n_bodies || (inside == plan && phases[i] != phase))
            continue;
        if (names_in(plan, phases, phase, step->work->condition->handle))
            return false;
        for (unsigned b = 0; b < step->n_bodies; b++)
            if (!conditions_stay(plan, phases, phase, step->bodies[b]))
                return false;
    }
    return true;
}

/* --- what travels --- */

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
    const size_t end = pack(k, parameters);
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
        if (phases ? phases[i] != phase : step->work && !is_native(step)) {
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

/* The steps of a phase as a graph of the worker's; *native names it. */
static CUresult make_native(const struct rg_graph_plan *plan, const size_t *phases, size_t phase,
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
    if (result == CUDA_SUCCESS)
        *native = (uint64_t)graph;
    else if (graph)
        rg_handle_delete(RG_KIND_GRAPH, (uint64_t)graph);
    return result;
}

/* --- the plan by phases --- */

/* Where the new plan stands. */
struct rebuilt {
    struct rg_graph_plan *plan;
    size_t *places; /* of the old plan's client steps in the new one */
    size_t *before; /* room for what a step is behind */
    size_t native;  /* the last native step; SIZE_MAX: none yet */
};

/* The client's steps of a phase; each is behind the native step before it. */
static CUresult add_own(struct rebuilt *r, struct rg_graph_plan *old, const size_t *phases, size_t phase)
{
    for (size_t i = 0; i < old->n; i++) {
        struct rg_graph_step *step = &old->steps[i];
        size_t n = 0;
        if (phases[i] != phase)
            continue;
        if (r->native != SIZE_MAX)
            r->before[n++] = r->native;
        for (size_t d = 0; d < step->n_before; d++) {
            const size_t from = old->edges[step->before + d];
            if (!(phases[from] & 1))
                r->before[n++] = r->places[from];
        }
        RG_TRY(rg_graph_plan_add(r->plan, step->work, r->before, n, &r->places[i]));
        step->work = NULL; /* the reference went along */
    }
    return CUDA_SUCCESS;
}

/* The context that the worker makes a phase's steps in, where the thread has none: theirs. */
static uint64_t context_of(const struct rg_graph_plan *plan, const size_t *phases, size_t phase)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct rg_graph_work *work = phases[i] == phase ? plan->steps[i].work : NULL;
        const CUcontext context = !work ? NULL : work->condition ? work->condition->context : work->context;
        if (context)
            return (uint64_t)context;
    }
    return 0;
}

/* The worker's steps of a phase as one, behind all that came before. */
static CUresult add_native(struct rebuilt *r, const struct rg_graph_plan *old, const size_t *phases,
                           size_t phase)
{
    uint64_t native;
    size_t step, n = 0;
    bool any = false;
    for (size_t i = 0; i < old->n; i++) {
        if (phases[i] == phase - 1)
            r->before[n++] = r->places[i];
        any |= phases[i] == phase;
    }
    if (!any)
        return CUDA_SUCCESS;
    if (r->native != SIZE_MAX)
        r->before[n++] = r->native;
    const bool brought = rg_implied_context_begin(RG_KIND_CONTEXT, context_of(old, phases, phase));
    CUresult result = make_native(old, phases, phase, &native);
    if (brought)
        rg_implied_context_end();
    RG_TRY(result);
    result = rg_graph_plan_add(r->plan, NULL, r->before, n, &step);
    if (result != CUDA_SUCCESS) {
        rg_graph_backend_native_drop(native);
        return result;
    }
    r->plan->steps[step].native = native;
    r->native = step;
    return CUDA_SUCCESS;
}

static CUresult rebuild(struct rg_graph_plan *plan, const size_t *phases, size_t last, struct rebuilt *r)
{
    for (size_t phase = 1; phase <= last; phase += 2)
        if (!conditions_stay(plan, phases, phase, plan))
            return rg_unsupported(
                "a graph with a condition that is set before work of the host and read behind it");
    for (size_t phase = 0; phase <= last; phase++)
        RG_TRY(phase & 1 ? add_native(r, plan, phases, phase) : add_own(r, plan, phases, phase));
    return CUDA_SUCCESS;
}

CUresult rg_graph_backend_plan_prepare(struct rg_graph_plan *plan)
{
    size_t *phases = calloc(plan->n + 1, sizeof *phases);
    struct rebuilt r = {.places = calloc(plan->n + 1, sizeof *r.places),
                        .before = calloc(plan->n + plan->n_edges + 2, sizeof *r.before),
                        .native = SIZE_MAX,
                        .plan = calloc(1, sizeof *r.plan)};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (phases && r.places && r.before && r.plan) {
        atomic_init(&r.plan->references, 1);
        const size_t last = divide(plan, phases);
        result = rebuild(plan, phases, last, &r);
    }
    if (result == CUDA_SUCCESS) { /* the plan gets the new steps, and the old ones end with the other */
        struct rg_graph_plan old = *plan;
        plan->steps = r.plan->steps;
        plan->n = r.plan->n;
        plan->room = r.plan->room;
        plan->edges = r.plan->edges;
        plan->n_edges = r.plan->n_edges;
        plan->edges_room = r.plan->edges_room;
        plan->conditional = false;
        r.plan->steps = old.steps;
        r.plan->n = old.n;
        r.plan->edges = old.edges;
    }
    free(phases);
    free(r.places);
    free(r.before);
    rg_graph_plan_release(r.plan);
    return result;
}

CUresult rg_graph_backend_conditional(struct rg_graph_plan *plan, const struct rg_graph_step *step,
                                      CUstream stream)
{
    (void)plan; /* the plan's steps are native ones by now */
    (void)step;
    (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_graph_backend_native_launch(uint64_t native, CUstream stream)
{
    return rg_op_rgGraphRun((CUgraphExec)native, rg_effective_stream(stream));
}

void rg_graph_backend_native_drop(uint64_t native)
{
    (void)rg_op_rgGraphDrop((CUgraphExec)native);
    rg_handle_delete(RG_KIND_GRAPH, native);
}
