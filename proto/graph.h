/*
 * graph.h - how a part of a graph travels to the worker, which makes a graph of its driver from it (rgGraphMake).
 *
 *   u32 count of conditions, for each: u64 handle as the client named it, u32 initial value, u32 flags
 *   a list of steps:
 *     u32 count, for each: u32 kind, u32 count of steps it is behind, their places in the list (u32, below its own), then
 *     KERNEL       u64 function, u32 grid[3], block[3], shared memory, cooperative, count of attributes;
 *                  the attributes (CUlaunchAttribute); u32 size of the parameters, the parameters
 *     FILL         u64 address, pitch, width, height, u32 value, element size
 *     COPY         CUDA_MEMCPY3D between device memory
 *     NOTHING
 *     CONDITIONAL  u64 handle, u32 type, u32 count of bodies, and a list of steps for each
 *
 * Where the parameters of a kernel hold the client's handle of a condition, wherever in a structure that is, the worker puts
 * that of its driver. The client's handles are numbers that nothing else is (common/cuda/graph/condition.c).
 */
#ifndef RG_PROTO_GRAPH_H
#define RG_PROTO_GRAPH_H

#include "common/base/limits.h"

enum rg_graph_wire_step {
    RG_GRAPH_WIRE_NOTHING,
    RG_GRAPH_WIRE_KERNEL,
    RG_GRAPH_WIRE_FILL,
    RG_GRAPH_WIRE_COPY,
    RG_GRAPH_WIRE_CONDITIONAL,
};

#endif
