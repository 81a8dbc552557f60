/*
 * native.c - graphs with conditional nodes: the worker runs them.
 *
 * Which body of a conditional node runs is decided on the device, by a value that kernels of the same graph
 * set. So the steps of a plan around its conditional nodes are sent to the worker once (native_image.c), which
 * makes a graph of its driver of them; a launch then sends one record for all of them.
 *
 * Steps that need the client (host functions, copies of host memory, events, arrays) stay ordinary calls.
 * They divide the plan into phases, even ones of the client's steps and odd ones of the worker's, which
 * follow each other. A kernel that sets a condition must be in the phase of the node that reads it; other
 * plans are refused.
 */
#include "client/api/graph/native.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/handle.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/cuda/graph/plan.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

/* --- what goes where --- */

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
        if (step->work && (phase & 1) != rg_graph_step_is_native(step))
            phase++;
        phases[i] = phase;
        last = phase > last ? phase : last;
    }
    return last;
}

/*
 * Whether the parameters of the step's kernel hold the handle: where the worker would find it
 * (proto/graph.h).
 */
static bool names(const struct rg_graph_work *work, CUgraphConditionalHandle handle)
{
    unsigned char parameters[RG_PARAMS_MAX];
    const size_t size = rg_graph_pack_parameters(&work->params.kernel, parameters);
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

/* The context of the first kernel, or of the first condition (`kernels` false), of a phase (phases NULL: of all); 0: there is none. */
static uint64_t first_context(const struct rg_graph_plan *plan, const size_t *phases, size_t phase,
                              bool kernels)
{
    uint64_t context = 0;
    for (size_t i = 0; i < plan->n && !context; i++) {
        const struct rg_graph_step *step = &plan->steps[i];
        const struct rg_graph_work *work = !phases || phases[i] == phase ? step->work : NULL;
        if (work && kernels && work->params.type == CU_GRAPH_NODE_TYPE_KERNEL)
            context = (uint64_t)work->context;
        else if (work && !kernels)
            context = (uint64_t)(work->condition ? work->condition->context : work->context);
        for (unsigned b = 0; work && b < step->n_bodies && !context; b++)
            context = first_context(step->bodies[b], NULL, 0, kernels);
    }
    return context;
}

/* The context that the worker makes a phase's steps in: that of kernels says which multiprocessors they get. */
static uint64_t context_of(const struct rg_graph_plan *plan, const size_t *phases, size_t phase)
{
    const uint64_t context = first_context(plan, phases, phase, true);
    return context ? context : first_context(plan, phases, phase, false);
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
    const bool entered = rg_context_scope_enter(context_of(old, phases, phase)) == CUDA_SUCCESS;
    CUresult result = rg_graph_native_make(old, phases, phase, &native);
    if (entered)
        rg_context_scope_leave();
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
