/*
 * stream.c - streams: waiting for them, their end, attributes, operations on memory, host functions of the
 * client.
 */
#include "generated/server/execute.h"
#include "proto/launch_attribute.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"

CUresult rg_execute_cuStreamSynchronize(struct rg_request *request, CUstream stream)
{
    CUresult result = !stream || stream == CU_STREAM_LEGACY ? rg_wait_legacy_stream(request, stream)
                                                            : rg_wait_stream(request, stream);
    rg_output_drain(request->worker);
    return result;
}

CUresult rg_execute_cuStreamDestroy_v2(struct rg_request *request, CUstream stream)
{
    struct rg_worker_stream *state = stream ? rg_request_stream_state(request, stream) : NULL;
    if (!state || state->per_thread)
        return CUDA_ERROR_INVALID_HANDLE; /* the default streams are not created, so not destroyed */
    rg_stream_drop(request, state);
    return rg_driver.cuStreamDestroy_v2(stream);
}

/* Attributes of streams are some of those of launches; those that name objects are no stream's. */
CUresult rg_execute_cuStreamSetAttribute(struct rg_request *request, CUstream stream,
                                         CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    (void)request;
    return rg_launch_attribute_kind(attribute) == RG_LAUNCH_ATTRIBUTE_PLAIN
               ? rg_driver.cuStreamSetAttribute(stream, attribute, value)
               : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t size_of(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8
                                                                                                       : 4;
}

/* Of each operation what is its own: the alias is an address that only a driver knows. */
CUresult rg_translate_CUstreamBatchMemOpParams(struct rg_request *request,
                                               CUstreamBatchMemOpParams *operations, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const CUstreamBatchMemOpParams given = operations[i];
        CUstreamBatchMemOpParams *own = &operations[i];
        *own = (CUstreamBatchMemOpParams){0};
        switch ((int)given.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            own->waitValue = given.waitValue;
            own->waitValue.alias = 0;
            if (!rg_request_device_memory(request, given.waitValue.address, 0, size_of(given.operation), 1))
                return request->result;
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            own->writeValue = given.writeValue;
            own->writeValue.alias = 0;
            if (!rg_request_device_memory(request, given.writeValue.address, 0, size_of(given.operation), 1))
                return request->result;
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
