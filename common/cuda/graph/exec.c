/*
 * exec.c - executable graphs: made from graphs, launched, destroyed. See graph.h.
 *
 * A launch gives the plan's steps to streams in a turn (turn.c), so that two launches never mix; on the
 * device a launch of a graph waits for the one before it. The plan is made with the executable graph, and
 * again after a change.
 */
#include "common/cuda/graph/call.h"
#include "common/cuda/graph/plan.h"

#include <stdlib.h>
#include <string.h>

#define FLAGS                                                                                                \
    ((unsigned long long)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |                                  \
                          CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |   \
                          CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY))

/* --- making --- */

/* Why instantiation failed, beside the result. */
struct failure {
    CUgraphInstantiateResult kind;
    CUgraphNode node;
};

/* Whether the graph could be executed as it is; the lock is held. */
static CUresult check_structure(const struct rg_graph *graph, struct failure *failure)
{
    if (!graph || graph->captures || graph->body)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->executables && rg_graph_has(graph, RG_GRAPH_MEMORY_NODES))
        return CUDA_ERROR_NOT_SUPPORTED; /* its memory is that of one */
    for (const struct rg_graph_condition *c = graph->conditions; c; c = c->next)
        if (!c->used) {
            failure->kind = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return CUDA_ERROR_INVALID_VALUE;
        }
    return CUDA_SUCCESS;
}

/* The node of the application's graph that `node` of its copy is made from. */
static CUgraphNode original(const struct rg_graph *graph, const struct rg_graph_node *node)
{
    for (size_t i = 0; node && i < graph->n; i++)
        if (graph->nodes[i]->id == node->origin)
            return (CUgraphNode)graph->nodes[i];
    return NULL;
}

/* The exec's graph and its first plan, in parts; what there is of it is freed by the caller. */
static CUresult copy_graph(struct rg_graph_exec *exec, CUgraph handle, struct failure *failure)
{
    struct rg_graph_node *offender = NULL;
    RG_GRAPH_LOCKED;
    struct rg_graph *graph = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);
    CUresult result = check_structure(graph, failure);
    if (result == CUDA_SUCCESS)
        result = rg_graph_clone(graph, &exec->graph);
    if (result == CUDA_SUCCESS) {
        exec->graph->owned = true;
        exec->source = graph;
        exec->source_id = graph->id;
        graph->executables++;
        result = rg_graph_sort(exec->graph, &offender);
    }
    if (offender) {
        failure->kind = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        failure->node = original(graph, offender);
    }
    return result;
}

/* Makes the plan for launches in streams of `context`, unless there is one; in a turn. */
static CUresult make_plan(struct rg_graph_exec *exec, CUcontext context)
{
    if (exec->plan && exec->plan->branches[0].context == context)
        return CUDA_SUCCESS;
    rg_graph_plan_release(exec->plan);
    pthread_mutex_lock(&rg_graph_lock);
    CUresult result = rg_graph_plan_new(
        exec->graph, context, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, &exec->plan);
    pthread_mutex_unlock(&rg_graph_lock);
    if (result == CUDA_SUCCESS && exec->plan->conditional)
        result = rg_graph_backend_plan_prepare(exec->plan);
    if (result == CUDA_SUCCESS)
        result = rg_graph_plan_distribute(exec->plan, context);
    if (result != CUDA_SUCCESS) {
        rg_graph_plan_release(exec->plan);
        exec->plan = NULL;
    }
    return result;
}

static void CUDA_CB free_graph(void *graph)
{
    RG_GRAPH_LOCKED;
    rg_graph_free(graph);
}

/* Frees a graph whose user objects the last launch may still need when that has ended. */
static void free_behind(struct rg_graph *graph, CUevent event, CUcontext context)
{
    CUstream stream = NULL;
    CUcontext none;
    CUresult result = cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        if (result == CUDA_SUCCESS)
            result = cuStreamWaitEvent(stream, event, 0);
        if (result == CUDA_SUCCESS)
            result = cuLaunchHostFunc(stream, free_graph, graph);
        if (stream)
            (void)cuStreamDestroy_v2(stream);
        (void)cuCtxPopCurrent_v2(&none);
    }
    if (result != CUDA_SUCCESS)
        free_graph(graph); /* nothing runs in such a context any more */
}

void rg_graph_users_replace(struct rg_graph_exec *exec, struct rg_graph *holder)
{
    if (exec->last)
        free_behind(holder, exec->last, exec->last_context);
    else
        free_graph(holder);
}

static bool has_users(const struct rg_graph *graph)
{
    if (graph->users)
        return true;
    for (size_t i = 0; i < graph->n; i++)
        for (unsigned c = 0; c < graph->nodes[i]->work->n_children; c++)
            if (has_users(graph->nodes[i]->work->children[c]))
                return true;
    return false;
}

static void free_exec(struct rg_graph_exec *exec)
{
    rg_graph_plan_release(exec->plan);
    pthread_mutex_lock(&rg_graph_lock);
    if (exec->source && rg_graph_find(exec->source, RG_GRAPH_KIND_GRAPH) &&
        exec->source->id == exec->source_id)
        exec->source->executables--;
    const bool later = exec->graph && exec->last && has_users(exec->graph);
    if (exec->graph && !later)
        rg_graph_free(exec->graph);
    pthread_mutex_unlock(&rg_graph_lock);
    if (later)
        free_behind(exec->graph, exec->last, exec->last_context);
    if (exec->last)
        (void)cuEventDestroy_v2(exec->last);
    free(exec);
    rg_graph_memory_collect();
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags,
                            struct failure *failure)
{
    CUcontext context;
    failure->kind = CUDA_GRAPH_INSTANTIATE_ERROR;
    RG_TRY(rg_graph_backend_enter());
    const unsigned long long both =
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (!out || (flags & ~FLAGS) || (flags & both) == both)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return rg_graph_backend_unsupported("graphs that the device launches");
    RG_TRY(cuCtxGetCurrent(&context));
    struct rg_graph_exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags & ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUresult result = copy_graph(exec, handle, failure);
    if (result == CUDA_SUCCESS)
        result = make_plan(exec, context);
    if (result != CUDA_SUCCESS) {
        free_exec(exec);
        return result;
    }
    pthread_mutex_lock(&rg_graph_lock);
    rg_graph_register(&exec->object, RG_GRAPH_KIND_EXEC);
    pthread_mutex_unlock(&rg_graph_lock);
    failure->kind = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    struct failure failure = {0};
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) /* there is no stream for it */
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(out, graph, flags, &failure);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    struct failure failure = {0};
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(out, graph, params->flags, &failure);
    if (result == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        result = cuGraphUpload(*out, params->hUploadStream);
    params->hErrNode_out = failure.node;
    params->result_out = failure.kind;
    return result;
}

/* The older form says what went wrong by a node and a text. */
CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    struct failure failure = {0};
    CUresult result = instantiate(out, graph, 0, &failure);
    if (error)
        *error = failure.node;
    if (log && size) {
        strncpy(log, failure.node ? "the graph has a cycle" : "", size);
        log[size - 1] = 0;
    }
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    struct rg_graph_turn turn = {.exec = handle};
    RG_TRY(rg_graph_backend_enter());
    rg_graph_turn_begin(&turn);
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    if (exec)
        rg_graph_unregister(&exec->object);
    pthread_mutex_unlock(&rg_graph_lock);
    rg_graph_turn_end(&turn);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    free_exec(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    RG_TRY(rg_graph_backend_enter());
    RG_GRAPH_LOCKED;
    const struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* --- launching --- */

/* Puts the launch behind the one before it, and remembers it. */
static CUresult run(struct rg_graph_exec *exec, CUcontext context, CUstream stream)
{
    if (exec->last)
        RG_TRY(cuStreamWaitEvent(stream, exec->last, 0));
    if (exec->last &&
        exec->last_context != context) { /* an event is recorded in streams of its own context */
        (void)cuEventDestroy_v2(exec->last);
        exec->last = NULL;
    }
    CUresult result =
        exec->plan->conditional ? rg_graph_backend_conditional(exec->plan, NULL, stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = rg_graph_plan_run(exec->plan, stream);
    if (!exec->last) {
        RG_TRY(cuEventCreate(&exec->last, CU_EVENT_DISABLE_TIMING));
        exec->last_context = context;
    }
    CUresult recorded = cuEventRecord(exec->last, stream);
    return result == CUDA_SUCCESS ? recorded : result;
}

/* The executable graph, alive and with a plan, or the error; in a turn. */
static CUresult get(CUgraphExec handle, CUcontext context, struct rg_graph_exec **out)
{
    pthread_mutex_lock(&rg_graph_lock);
    struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    pthread_mutex_unlock(&rg_graph_lock);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    *out = exec;
    return make_plan(exec, context);
}

static CUresult launch(CUgraphExec handle, CUstream stream)
{
    struct rg_graph_exec *exec;
    CUcontext context, current = NULL, none;
    RG_TRY(cuStreamGetCtx(stream, &context));
    RG_TRY(get(handle, context, &exec));
    pthread_mutex_lock(&rg_graph_lock);
    CUresult result =
        rg_graph_memory_launch(exec->plan, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    pthread_mutex_unlock(&rg_graph_lock);
    if (result != CUDA_SUCCESS)
        return result;
    (void)cuCtxGetCurrent(&current);
    if (current != context)
        RG_TRY(cuCtxPushCurrent_v2(context));
    const CUstreamCaptureMode mode = rg_capture_relax();
    result = run(exec, context, stream);
    rg_capture_restore(mode);
    if (current != context)
        (void)cuCtxPopCurrent_v2(&none);
    return result;
}

/* The stream takes part in a capture: the graph becomes a node. */
static CUresult capture(CUgraphExec handle, CUstream stream)
{
    pthread_mutex_lock(&rg_graph_lock);
    const struct rg_graph_exec *exec = rg_graph_find(handle, RG_GRAPH_KIND_EXEC);
    CUgraph graph = exec ? (CUgraph)exec->graph : NULL;
    pthread_mutex_unlock(&rg_graph_lock);
    return graph ? rg_capture_launch(graph, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    struct rg_graph_turn turn = {.exec = handle};
    RG_TRY(rg_graph_backend_enter());
    stream = rg_graph_backend_stream(stream);
    turn.launches = !rg_capture_takes(stream);
    if (turn.launches)
        RG_TRY(cuStreamGetId(stream, &turn.stream));
    rg_graph_turn_begin(&turn);
    CUresult result = turn.launches ? launch(handle, stream) : capture(handle, stream);
    rg_graph_turn_end(&turn);
    return result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream)
{
    struct rg_graph_turn turn = {.exec = handle};
    struct rg_graph_exec *exec;
    CUcontext context;
    RG_TRY(rg_graph_backend_enter());
    stream = rg_graph_backend_stream(stream);
    if (rg_capture_takes(stream))
        return rg_capture_refuse(stream);
    RG_TRY(cuStreamGetCtx(stream, &context));
    rg_graph_turn_begin(&turn);
    CUresult result = get(handle, context, &exec);
    rg_graph_turn_end(&turn);
    return result;
}

void rg_graph_exec_changed(struct rg_graph_exec *exec)
{
    rg_graph_plan_release(exec->plan);
    exec->plan = NULL;
}
