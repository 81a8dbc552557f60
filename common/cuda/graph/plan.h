/*
 * plan.h - what a launch of an executable graph does: a flat list of steps, each behind those it depends on,
 * and the streams they go to.
 *
 * Child graphs are dissolved, nodes that do nothing left out where they only pass an order on. Steps are
 * distributed to branches: branch 0 is the stream of the launch, the others are streams of the plan's own, so
 * that branches of the graph overlap. A step in another branch than one it depends on waits for an event
 * behind that one; at the end branch 0 waits for all.
 *
 * A plan is immutable but for its branches' streams and events, which the first launch makes (launches of one
 * executable graph are made one after another). It is counted: what the device still does keeps it.
 */
#ifndef RG_COMMON_CUDA_GRAPH_PLAN_H
#define RG_COMMON_CUDA_GRAPH_PLAN_H

#include "common/cuda/graph/graph.h"

#define RG_GRAPH_BRANCHES_MAX 8u

struct rg_graph_step {
    struct rg_graph_work *work; /* a reference; NULL: only an order */
    size_t before, n_before;    /* the steps it depends on: in plan->edges */
    struct rg_graph_plan **bodies;
    unsigned n_bodies; /* conditional nodes */
    uint64_t native;   /* a graph that the layer has made of several steps; 0: none */
    CUcontext context;
    unsigned branch;
    size_t waits, n_waits; /* the steps whose events it waits for: in plan->waits */
    bool starts;           /* waits for the beginning of the launch */
    bool records;          /* another branch waits for it */
    CUevent event;
};

struct rg_graph_branch {
    CUcontext context;
    CUstream stream; /* not of branch 0 */
    bool joined;     /* branch 0 waits for it anyway */
    CUevent end;
};

/* An allocation or free, in the order of the steps. */
struct rg_graph_plan_memory {
    CUdeviceptr address;
    bool allocates;
};

struct rg_graph_plan {
    _Atomic unsigned references;
    struct rg_graph_step *steps;
    size_t n, room;
    size_t *edges;
    size_t n_edges, edges_room;
    size_t *waits;
    size_t n_waits, waits_room;
    struct rg_graph_plan_memory *memory;
    size_t n_memory, memory_room;
    struct rg_graph_branch branches[RG_GRAPH_BRANCHES_MAX];
    unsigned n_branches;
    CUevent begin; /* of the launch, for branches that start with it */
    bool conditional;
    bool priorities; /* kernels have those of their nodes */
};

/**
 * A plan for a sorted graph whose launches come in a stream of `context`; with the lock held. *out is to be
 * released, after a failure too.
 */
CUresult rg_graph_plan_new(const struct rg_graph *graph, CUcontext context, bool priorities,
                           struct rg_graph_plan **out);
/** Deals the steps to branches; after rg_graph_backend_plan_prepare. */
CUresult rg_graph_plan_distribute(struct rg_graph_plan *plan, CUcontext context);
/** Without the lock. */
void rg_graph_plan_release(struct rg_graph_plan *plan);
/** Adds a step behind those of `before`; takes over the reference to `work`, also on failure. */
CUresult rg_graph_plan_add(struct rg_graph_plan *plan, struct rg_graph_work *work, const size_t *before,
                           size_t n, size_t *out);
/** Gives a plan's work to a stream. */
CUresult rg_graph_plan_run(struct rg_graph_plan *plan, CUstream stream);
/** Runs a conditional step to its end, on a thread that may wait: for layers whose conditions are here. */
CUresult rg_graph_conditional_run(const struct rg_graph_step *step, CUstream stream);
/** Gives the conditions of the plan their initial values. */
void rg_graph_conditions_begin(const struct rg_graph_plan *plan);

#endif
