/*
 * plan.c - from an executable graph to the steps of its launch. See plan.h.
 */
#include "common/cuda/graph/plan.h"

#include "common/base/status.h"

#include <stdlib.h>

#define NONE SIZE_MAX

static void *more(void *array, size_t n, size_t *room, size_t element)
{
    if (n < *room)
        return array;
    const size_t wanted = *room ? *room * 2 : 16;
    void *bigger = realloc(array, wanted * element);
    if (bigger)
        *room = wanted;
    return bigger;
}

#define PUSH(array, n, room, value)                                                                          \
    ({                                                                                                       \
        void *array_ = more(array, n, &(room), sizeof *(array));                                             \
        if (array_) {                                                                                        \
            (array) = array_;                                                                                \
            (array)[(n)++] = (value);                                                                        \
        }                                                                                                    \
        array_ != NULL;                                                                                      \
    })

CUresult rg_graph_plan_add(struct rg_graph_plan *plan, struct rg_graph_work *work, const size_t *before,
                           size_t n, size_t *out)
{
    struct rg_graph_step step = {.work = work, .before = plan->n_edges, .n_before = n};
    if (work)
        step.context = work->context;
    for (size_t i = 0; i < n; i++)
        if (!PUSH(plan->edges, plan->n_edges, plan->edges_room, before[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (!PUSH(plan->steps, plan->n, plan->room, step))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = plan->n - 1;
    return CUDA_SUCCESS;
}

/* The steps that a node waits for: those of the nodes it depends on, or of what its graph waits for. */
struct behind {
    size_t *steps;
    size_t n, room;
};

static CUresult flatten(struct rg_graph_plan *plan, const struct rg_graph *graph, size_t entry, size_t *exit);

static CUresult note_memory(struct rg_graph_plan *plan, const CUgraphNodeParams *params)
{
    struct rg_graph_plan_memory step = {.allocates = params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    step.address = step.allocates ? params->alloc.dptr : params->free.dptr;
    return PUSH(plan->memory, plan->n_memory, plan->memory_room, step) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_conditional(struct rg_graph_plan *plan, struct rg_graph_work *work,
                                const struct behind *behind, size_t *out)
{
    CUresult result = rg_graph_plan_add(plan, work, behind->steps, behind->n, out);
    if (result != CUDA_SUCCESS)
        return result;
    rg_graph_work_acquire(work);
    struct rg_graph_plan **bodies = calloc(work->n_children, sizeof(void *));
    if (!bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    plan->conditional = true;
    plan->steps[*out].bodies = bodies;
    plan->steps[*out].n_bodies = work->n_children;
    for (unsigned i = 0; i < work->n_children && result == CUDA_SUCCESS; i++)
        result = rg_graph_plan_new(work->children[i], work->context, plan->priorities, &bodies[i]);
    return result;
}

/* What one node adds; *out is the step behind which its dependents come, NONE if they need not wait. */
static CUresult add_node(struct rg_graph_plan *plan, const struct rg_graph_node *node,
                         const struct behind *behind, size_t *out)
{
    struct rg_graph_work *work = node->work;
    CUresult result = CUDA_SUCCESS;
    bool nothing = node->disabled;
    switch (work->params.type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        result = note_memory(plan, &work->params);
        nothing = true;
        break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
        nothing = true;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return add_conditional(plan, work, behind, out);
    default:
        break;
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (!nothing) {
        result = rg_graph_plan_add(plan, work, behind->steps, behind->n, out);
        if (result == CUDA_SUCCESS)
            rg_graph_work_acquire(work);
        return result;
    }
    *out = NONE;
    if (behind->n == 1)
        *out = behind->steps[0];
    else if (behind->n)
        result = rg_graph_plan_add(plan, NULL, behind->steps, behind->n, out);
    if (result == CUDA_SUCCESS && work->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
        result = flatten(plan, work->children[0], *out, out);
    return result;
}

/* Adds all of a graph behind the step `entry`; *exit is behind all of it. */
static CUresult flatten(struct rg_graph_plan *plan, const struct rg_graph *graph, size_t entry, size_t *exit)
{
    size_t *steps = malloc((graph->n + 1) * sizeof *steps); /* of each node, by index */
    bool *inner = calloc(graph->n + 1, sizeof *inner);      /* something depends on the node */
    struct behind behind = {0};
    CUresult result = steps && inner ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < graph->n && result == CUDA_SUCCESS; i++) {
        const struct rg_graph_node *node = graph->order[i];
        behind.n = 0;
        bool good = node->n_dependencies || entry == NONE || PUSH(behind.steps, behind.n, behind.room, entry);
        for (size_t d = 0; d < node->n_dependencies && good; d++) {
            const size_t from = node->dependencies[d].from->index;
            size_t k = 0;
            inner[from] = true;
            while (k < behind.n && behind.steps[k] != steps[from])
                k++;
            if (steps[from] != NONE && k == behind.n)
                good = PUSH(behind.steps, behind.n, behind.room, steps[from]);
        }
        result = good ? add_node(plan, node, &behind, &steps[node->index]) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    behind.n = 0;
    for (size_t i = 0; i < graph->n && result == CUDA_SUCCESS; i++)
        if (!inner[i] && steps[i] != NONE && !PUSH(behind.steps, behind.n, behind.room, steps[i]))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *exit = behind.n ? behind.steps[0] : entry;
        if (behind.n > 1)
            result = rg_graph_plan_add(plan, NULL, behind.steps, behind.n, exit);
    }
    free(behind.steps);
    free(steps);
    free(inner);
    return result;
}

CUresult rg_graph_plan_new(const struct rg_graph *graph, CUcontext context, bool priorities,
                           struct rg_graph_plan **out)
{
    size_t end;
    struct rg_graph_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&plan->references, 1);
    plan->branches[0].context = context;
    plan->priorities = priorities;
    *out = plan;
    return flatten(plan, graph, NONE, &end);
}

void rg_graph_plan_release(struct rg_graph_plan *plan)
{
    if (!plan || atomic_fetch_sub(&plan->references, 1) != 1)
        return;
    for (size_t i = 0; i < plan->n; i++) {
        struct rg_graph_step *step = &plan->steps[i];
        if (step->event)
            (void)cuEventDestroy_v2(step->event);
        for (unsigned b = 0; b < step->n_bodies; b++)
            rg_graph_plan_release(step->bodies[b]);
        if (step->native)
            rg_graph_backend_native_drop(step->native);
        free(step->bodies);
    }
    for (unsigned i = 0; i < plan->n_branches; i++) {
        if (plan->branches[i].end)
            (void)cuEventDestroy_v2(plan->branches[i].end);
        if (plan->branches[i].stream)
            (void)cuStreamDestroy_v2(plan->branches[i].stream);
    }
    if (plan->begin)
        (void)cuEventDestroy_v2(plan->begin);
    pthread_mutex_lock(&rg_graph_lock);
    for (size_t i = 0; i < plan->n; i++)
        rg_graph_work_release(plan->steps[i].work);
    pthread_mutex_unlock(&rg_graph_lock);
    free(plan->steps);
    free(plan->edges);
    free(plan->waits);
    free(plan->memory);
    free(plan);
}

/* --- branches --- */

/*
 * While branches are distributed: the last step of each, and up to which step of each other branch it has
 * waited (index + 1).
 */
struct dealing {
    size_t last[RG_GRAPH_BRANCHES_MAX];
    size_t seen[RG_GRAPH_BRANCHES_MAX][RG_GRAPH_BRANCHES_MAX];
    unsigned turn;
};

/* The branch for a step: that of one it continues, else an unused one, else another of its context. */
static unsigned choose(struct rg_graph_plan *plan, struct dealing *d, const struct rg_graph_step *step)
{
    for (size_t i = 0; i < step->n_before; i++) {
        const size_t from = plan->edges[step->before + i];
        const unsigned branch = plan->steps[from].branch;
        if (d->last[branch] == from && plan->branches[branch].context == step->context)
            return branch;
    }
    if (d->last[0] == NONE && plan->branches[0].context == step->context)
        return 0;
    if (plan->n_branches < RG_GRAPH_BRANCHES_MAX) {
        plan->branches[plan->n_branches].context = step->context;
        return plan->n_branches++;
    }
    for (unsigned tries = 0; tries < RG_GRAPH_BRANCHES_MAX; tries++) {
        const unsigned branch = d->turn++ % RG_GRAPH_BRANCHES_MAX;
        if (plan->branches[branch].context == step->context)
            return branch;
    }
    return RG_GRAPH_BRANCHES_MAX; /* more contexts than branches */
}

/* Lane `to` has waited for what step `from` of another branch waited for and did. */
static void has_waited(struct dealing *d, const struct rg_graph_plan *plan, unsigned to, size_t from)
{
    const unsigned branch = plan->steps[from].branch;
    if (d->seen[to][branch] < from + 1)
        d->seen[to][branch] = from + 1;
}

CUresult rg_graph_plan_distribute(struct rg_graph_plan *plan, CUcontext context)
{
    struct dealing d = {0};
    plan->branches[0].context = context;
    plan->n_branches = 1;
    for (unsigned i = 0; i < RG_GRAPH_BRANCHES_MAX; i++)
        d.last[i] = NONE;
    for (size_t i = 0; i < plan->n; i++) {
        struct rg_graph_step *step = &plan->steps[i];
        if (!step->context) /* an order goes with what it is behind */
            step->context = step->n_before ? plan->steps[plan->edges[step->before]].context : context;
        const unsigned branch = choose(plan, &d, step);
        if (branch == RG_GRAPH_BRANCHES_MAX)
            return CUDA_ERROR_NOT_SUPPORTED;
        step->branch = branch;
        step->starts = branch != 0 && d.last[branch] == NONE && !step->n_before;
        step->waits = plan->n_waits;
        for (size_t b = 0; b < step->n_before; b++) {
            const size_t from = plan->edges[step->before + b];
            if (plan->steps[from].branch == branch || d.seen[branch][plan->steps[from].branch] > from)
                continue;
            if (!PUSH(plan->waits, plan->n_waits, plan->waits_room, from))
                return CUDA_ERROR_OUT_OF_MEMORY;
            plan->steps[from].records = true;
            has_waited(&d, plan, branch, from);
        }
        step->n_waits = plan->n_waits - step->waits;
        d.last[branch] = i;
        for (unsigned b = 0; b < step->n_bodies; b++) {
            RG_TRY(rg_graph_plan_distribute(step->bodies[b], step->context));
        }
    }
    for (unsigned branch = 1; branch < plan->n_branches; branch++)
        plan->branches[branch].joined = d.seen[0][branch] > d.last[branch];
    return CUDA_SUCCESS;
}
