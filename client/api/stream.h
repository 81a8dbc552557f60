/* stream.h - streams as other parts of the client need them. */
#ifndef RG_CLIENT_API_STREAM_H
#define RG_CLIENT_API_STREAM_H

#include "client/core/call.h"
#include "client/core/handle.h"
#include "common/base/status.h"

/** A number for cuStreamGetId. Any thread. */
unsigned long long rg_stream_next_id(void);

/** What calls that put something into a stream check first: whether calls in a context may be made, and the stream. Any thread. */
static inline CUresult rg_stream_check(CUstream stream)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return rg_handle_check(RG_KIND_STREAM, (uint64_t)stream, CUDA_ERROR_INVALID_HANDLE);
}

#endif
