/* stream.c - streams: waiting for them, their end, host functions of the client. */
#include "generated/server/serve.h"
#include "server/late.h"
#include "server/output.h"
#include "server/staging.h"
#include "server/wait.h"

CUresult rg_serve_cuStreamSynchronize(struct rg_job *job, CUstream stream)
{
    if (!rg_driver.cuStreamSynchronize)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = !stream || stream == CU_STREAM_LEGACY ? rg_wait_legacy_stream(job, stream)
                                                            : rg_wait_stream(job, stream);
    rg_output_drain(job->worker);
    return result;
}

CUresult rg_serve_cuStreamDestroy_v2(struct rg_job *job, CUstream stream)
{
    struct rg_stream *state = stream ? rg_job_stream_state(job, stream) : NULL;
    if (!state || state->per_thread)
        return CUDA_ERROR_INVALID_HANDLE; /* the default streams are not created, so not destroyed */
    if (!rg_driver.cuStreamDestroy_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    rg_context_leave_stream(job, state->context, stream);
    rg_stream_give_slots(job->worker, state);
    rg_unified_remove_stream(job->worker, stream);
    return rg_driver.cuStreamDestroy_v2(stream);
}

CUresult rg_serve_rgHostCall(struct rg_job *job, CUstream stream, unsigned long long call,
                             unsigned int callback)
{
    return rg_late_host_call(job, stream, call, callback != 0);
}
