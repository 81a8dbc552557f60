/* native.h - the parts of a plan that the worker runs as a graph of its driver. Any thread, under the plan's own rules (plan.h). */
#ifndef RG_CLIENT_API_GRAPH_NATIVE_H
#define RG_CLIENT_API_GRAPH_NATIVE_H

#include "common/cuda/graph/plan.h"

/** Whether the worker can run the step in a graph of its driver: it needs nothing of this machine. */
bool rg_graph_step_is_native(const struct rg_graph_step *step);

/** The parameters of a kernel as they travel, into RG_PARAMS_MAX bytes: how many of them there are. */
size_t rg_graph_pack_parameters(const CUDA_KERNEL_NODE_PARAMS_v3 *kernel, unsigned char *parameters);

/**
 * Makes a graph of the worker's of the plan's steps that are in `phase` (phases[i]: of step i): *native names it, until
 * rg_graph_backend_native_drop. CUDA_ERROR_NOT_SUPPORTED: a body of a conditional node needs what is on this machine.
 */
CUresult rg_graph_native_make(const struct rg_graph_plan *plan, const size_t *phases, size_t phase,
                              uint64_t *native);

#endif
