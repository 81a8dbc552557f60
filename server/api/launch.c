/*
 * launch.c - kernel launches. The client sends the parameter buffer as the kernel sees it, so it goes to the
 * driver as such; attributes are passed on if their values mean here what they meant there, or can be
 * translated.
 */
#include "common/base/log.h"
#include "generated/server/execute.h"
#include "proto/launch_attribute.h"
#include "server/core/worker.h"
#include "server/shares/worker/count.h"

#include <string.h>

/* The driver's event in the place of the client's handle. */
static void take_event(struct rg_request *request, CUevent *event)
{
    *event = rg_request_object(request, RG_KIND_EVENT, (uint64_t)*event);
}

CUresult rg_translate_CUlaunchAttribute(struct rg_request *request, CUlaunchAttribute *attributes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CUlaunchAttribute *at = &attributes[i];
        if (rg_launch_attribute_kind(at->id) == RG_LAUNCH_ATTRIBUTE_PLAIN)
            continue;
        switch ((int)at->id) {
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            take_event(request, &at->value.programmaticEvent.event);
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            take_event(request, &at->value.launchCompletionEvent.event);
            break;
        default:
            rg_warn("session %llu: a launch with attribute %d, which cannot be passed on",
                    (unsigned long long)request->worker->session, (int)at->id);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return request->result;
}

CUresult rg_execute_rgLaunch(struct rg_request *request, unsigned long long function, unsigned int grid_x,
                             unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                             unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream,
                             unsigned int cooperative, size_t size, const void *params, unsigned int count,
                             const CUlaunchAttribute *attributes)
{
    CUfunction object = rg_request_object(request, RG_KIND_FUNCTION, function);
    if (!object)
        return request->result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : request->result;
    if (size > RG_PARAMS_MAX) {
        rg_request_violation(request, "%zu bytes of kernel parameters", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)params, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    void **parameters = size ? extra : NULL;
    if (count == 0 && !cooperative)
        return rg_count_launch(rg_driver.cuLaunchKernel(object, grid_x, grid_y, grid_z, block_x, block_y,
                                                        block_z, shared, stream, NULL, parameters));
    CUlaunchAttribute *all = rg_request_memory(request, ((size_t)count + 1) * sizeof *all);
    if (!all)
        return request->result;
    memcpy(all, attributes, count * sizeof *all);
    if (cooperative) {
        /* cuLaunchCooperativeKernel takes no buffer of parameters; this is the same launch. */
        all[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        all[count].value.cooperative = 1;
        count++;
    }
    CUlaunchConfig config = {
        .gridDimX = grid_x,
        .gridDimY = grid_y,
        .gridDimZ = grid_z,
        .blockDimX = block_x,
        .blockDimY = block_y,
        .blockDimZ = block_z,
        .sharedMemBytes = shared,
        .hStream = stream,
        .attrs = all,
        .numAttrs = count,
    };
    return rg_count_launch(rg_driver.cuLaunchKernelEx(&config, object, NULL, parameters));
}
