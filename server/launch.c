/*
 * launch.c - kernel launches. The client sends the parameter buffer as the kernel sees it, so it goes to the driver as
 * such; attributes are passed on if their values mean here what they meant there.
 */
#include "common/log.h"
#include "generated/server/serve.h"
#include "proto/launch_attribute.h"
#include "server/worker.h"

/* Whether the attribute may be passed on; handles in it are translated. */
static bool translate(struct rg_job *job, CUlaunchAttribute *attribute)
{
    if (rg_launch_attribute_kind(attribute->id) == RG_LAUNCH_ATTRIBUTE_PLAIN)
        return true;
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        attribute->value.programmaticEvent.event =
            rg_job_object(job, RG_KIND_EVENT, (uint64_t)attribute->value.programmaticEvent.event);
        return true;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        attribute->value.launchCompletionEvent.event =
            rg_job_object(job, RG_KIND_EVENT, (uint64_t)attribute->value.launchCompletionEvent.event);
        return true;
    default:
        rg_warn("session %llu: a launch with attribute %d, which cannot be passed on",
                (unsigned long long)job->worker->session, (int)attribute->id);
        return false;
    }
}

CUresult rg_serve_rgLaunch(struct rg_job *job, unsigned long long function, unsigned int grid_x,
                           unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                           unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream,
                           unsigned int cooperative, size_t size, const void *params, unsigned int count,
                           const CUlaunchAttribute *attributes)
{
    CUfunction object = rg_job_object(job, RG_KIND_FUNCTION, function);
    if (!object)
        return job->result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : job->result;
    if (size > RG_PARAMS_MAX) {
        rg_job_violation(job, "%zu bytes of kernel parameters", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)params, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    void **parameters = size ? extra : NULL;
    if (count == 0 && !cooperative)
        return rg_driver.cuLaunchKernel(object, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                        stream, NULL, parameters);
    if (!rg_driver.cuLaunchKernelEx)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUlaunchAttribute *all = rg_job_memory(job, ((size_t)count + 1) * sizeof *all);
    if (!all)
        return job->result;
    for (unsigned i = 0; i < count; i++) {
        all[i] = attributes[i];
        if (!translate(job, &all[i]))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (job->result != CUDA_SUCCESS)
        return job->result;
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
    return rg_driver.cuLaunchKernelEx(&config, object, NULL, parameters);
}
