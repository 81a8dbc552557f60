/* stream.c - streams: waiting for them, their end, attributes, operations on memory, host functions of the client. */
#include "generated/server/serve.h"
#include "proto/launch_attribute.h"
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

/* Attributes of streams are some of those of launches; those that name objects are no stream's. */
CUresult rg_serve_cuStreamSetAttribute(struct rg_job *job, CUstream stream, CUstreamAttrID attribute,
                                       const CUstreamAttrValue *value)
{
    (void)job;
    if (!rg_driver.cuStreamSetAttribute)
        return CUDA_ERROR_NOT_SUPPORTED;
    return rg_launch_attribute_kind(attribute) == RG_LAUNCH_ATTRIBUTE_PLAIN
               ? rg_driver.cuStreamSetAttribute(stream, attribute, value)
               : CUDA_ERROR_INVALID_VALUE;
}

/* Of each operation what is its own: the alias is an address that only a driver knows. */
CUresult rg_translate_CUstreamBatchMemOpParams(struct rg_job *job, CUstreamBatchMemOpParams *operations,
                                               size_t n)
{
    (void)job;
    for (size_t i = 0; i < n; i++) {
        const CUstreamBatchMemOpParams given = operations[i];
        CUstreamBatchMemOpParams *own = &operations[i];
        *own = (CUstreamBatchMemOpParams){0};
        switch ((int)given.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            own->waitValue = given.waitValue;
            own->waitValue.alias = 0;
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            own->writeValue = given.writeValue;
            own->writeValue.alias = 0;
            break;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            own->flushRemoteWrites = given.flushRemoteWrites;
            break;
        case CU_STREAM_MEM_OP_BARRIER:
            own->memoryBarrier = given.memoryBarrier;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult rg_serve_rgHostCall(struct rg_job *job, CUstream stream, unsigned long long call,
                             unsigned int callback)
{
    return rg_late_host_call(job, stream, call, callback != 0);
}
