/*
 * cooperative_groups.h - functions of the CUDA device runtime library (cudadevrt) that programs call without
 * having linked them. Those of cooperative groups come as PTX that is linked in where it is wanted (numba's
 * grid.sync() is one); those by which kernels launch others (dynamic parallelism) are calls of the engine.
 */
#ifndef SG_COMPILER_COOPERATIVE_GROUPS_H
#define SG_COMPILER_COOPERATIVE_GROUPS_H

#include "softgpu/compiler/compiler.h"

/**
 * PTX to be linked in after these texts, with weak definitions, or NULL if they name none of its functions.
 */
const char *sg_cooperative_groups(const struct sg_source *sources, size_t count);

#endif
