/* call.h - what the functions of the API about graphs begin with. */
#ifndef RG_COMMON_CUDA_GRAPH_CALL_H
#define RG_COMMON_CUDA_GRAPH_CALL_H

#include "common/base/status.h"
#include "common/cuda/graph/graph.h"

#include <string.h>

/* An object of the living, or return. */
#define GRAPH_OR_RETURN(var, handle)                                                                         \
    struct rg_graph *var = rg_graph_find(handle, RG_GRAPH_KIND_GRAPH);                                       \
    if (!var)                                                                                                \
    return CUDA_ERROR_INVALID_VALUE
#define NODE_OR_RETURN(var, handle)                                                                          \
    struct rg_graph_node *var = rg_graph_find(handle, RG_GRAPH_KIND_NODE);                                   \
    if (!var)                                                                                                \
    return CUDA_ERROR_INVALID_VALUE

/* The parameters of the forms with a type of their own as those of any node. */
static inline CUgraphNodeParams rg_graph_copy_params(const CUDA_MEMCPY3D *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = *p;
    return params;
}

static inline CUgraphNodeParams rg_graph_fill_params(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&params.memset, p, sizeof *p);
    params.memset.ctx = context;
    return params;
}

#endif
