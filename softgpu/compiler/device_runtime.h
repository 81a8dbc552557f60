/*
 * device_runtime.h - functions of the CUDA device runtime library (cudadevrt) that programs call without
 * having linked them. Those of cooperative groups come as PTX that is linked in where it is wanted (numba's
 * grid.sync() is one); those by which kernels launch others (dynamic parallelism) are calls of the engine.
 */
#ifndef SG_COMPILER_DEVICE_RUNTIME_H
#define SG_COMPILER_DEVICE_RUNTIME_H

#include "softgpu/compiler/compiler.h"
#include "softgpu/compiler/ir/ir.h"
#include "softgpu/device_calls.h"

/**
 * PTX to be linked in after these texts, with weak definitions, or NULL if they name none of its functions.
 */
const char *sg_device_runtime(const struct sg_source *sources, size_t count);

/**
 * Which of the functions that the engine serves this one is; else SG_CALL_COUNT. Those of nvcc's library are
 * served even where the library is linked in: what it defines are calls of NVIDIA's system for devices.
 */
enum sg_device_call sg_device_call_find(const struct sg_ptx_function *function);

#endif
