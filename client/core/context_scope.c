/* context_scope.c - see context_scope.h. */
#include "client/core/context_scope.h"

#include "client/core/thread.h"
#include "common/base/status.h"
#include "generated/client/operations.h"

CUresult rg_context_scope_enter(uint64_t context)
{
    struct rg_thread *thread = rg_thread_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return thread && rg_thread_push_context(thread, context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_context_scope_leave(void)
{
    rg_thread_current()->n_contexts--;
}

CUresult rg_context_scope_enter_stream(CUstream stream, bool *entered)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    *entered = false;
    if (!shadow || shadow->stream.context == rg_context_current_handle())
        return CUDA_SUCCESS;
    const CUresult status = rg_context_scope_enter(shadow->stream.context);
    *entered = status == CUDA_SUCCESS;
    return status;
}

CUresult rg_context_scope_synchronize(uint64_t context, CUstream stream)
{
    RG_TRY(rg_context_scope_enter(context));
    CUresult status = rg_op_cuStreamSynchronize(stream);
    rg_context_scope_leave();
    return status;
}
