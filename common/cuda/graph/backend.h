/*
 * backend.h - what graphs need of the program that they are compiled into: the client (client/api/graph/) or
 * the software device (softgpu/driver/launch/graph.c). Each supplies all functions of this header.
 *
 * Besides, the functions of the API that put work into streams, and those about streams, events and contexts,
 * are the includer's: a launch calls them as an application would. Where one gets a stream that captures
 * (rg_capture_takes), it gives its work to rg_capture_… instead (graph.h).
 */
#ifndef RG_COMMON_CUDA_GRAPH_BACKEND_H
#define RG_COMMON_CUDA_GRAPH_BACKEND_H

#include "common/cuda/api.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_graph_plan;
struct rg_graph_step;

/** What every call checks first: the library is in use, a context is current, it is not lost. */
CUresult rg_graph_backend_enter(void);
/** The stream that a handle means in this call: NULL may be the thread's own. */
CUstream rg_graph_backend_stream(CUstream stream);
bool rg_graph_backend_event_known(CUevent event);
/**
 * Puts a copy into a stream. Host memory is read and written when the stream gets there, as page-locked
 * memory is; returns without waiting.
 */
CUresult rg_graph_backend_copy(const CUDA_MEMCPY3D *copy, CUstream stream);
bool rg_graph_backend_array_known(CUarray array);
/**
 * Where the device memory ends that an address is in, and whether it is mapped there (cuMemMap), so that other memory may follow. False,
 * and nothing is written: there is none, or it is the host's.
 */
bool rg_graph_backend_device_memory(CUdeviceptr address, CUdeviceptr *end, bool *mapping);
/** The kernel of a library that the handle is, as it may stand for a function, or is a function of; or NULL. */
CUkernel rg_graph_backend_kernel(CUfunction function);
/** The device of a context; false if there is none such. */
bool rg_graph_backend_context_device(CUcontext context, CUdevice *device);
/** Says once that `what` is not supported; CUDA_ERROR_NOT_SUPPORTED. */
CUresult rg_graph_backend_unsupported(const char *what);
/**
 * From now on calls of this thread fail with CUDA_ERROR_NOT_PERMITTED: it runs the application's destructors.
 */
void rg_graph_backend_destructor_thread(void);

/* --- conditional nodes: exec.c and launch.c call these for plans that have some --- */

/**
 * Called with a plan that has conditional steps before it is distributed to branches: the layer may replace
 * steps.
 */
CUresult rg_graph_backend_plan_prepare(struct rg_graph_plan *plan);
/** Puts a conditional step, or the beginning of a plan that has some (step NULL), into the stream. */
CUresult rg_graph_backend_conditional(struct rg_graph_plan *plan, const struct rg_graph_step *step,
                                      CUstream stream);
CUresult rg_graph_backend_native_launch(uint64_t native, CUstream stream);
void rg_graph_backend_native_drop(uint64_t native);

#endif
