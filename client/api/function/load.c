/*
 * load.c - functions are loaded before they are first used, where that may last. Any thread.
 */
#include "client/api/function/function.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/session.h"
#include "client/timeline/timeline.h"
#include "generated/client/operations.h"

/* Loads a function, or that of a kernel in the current context, while others' calls pass. */
static CUresult load(CUfunction f)
{
    CUfunction function = f;
    if (rg_handle_kind((uint64_t)f) == RG_KIND_KERNEL)
        RG_TRY(cuKernelGetFunction(&function, (CUkernel)f));
    const CUresult status = rg_op_cuFuncLoad(function);
    return status == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : status; /* a driver that loads when it finds */
}

/*
 * The driver loads a function when it is first launched or set up, and may have to compile it, or to wait for the work of the context. The
 * program's thread waits for that, as it would directly, so that others' calls pass. A program of one thread goes on: the launch
 * loads it, in its place. So does one that is far away, where a round trip for each function would cost more than what others'
 * calls wait for. Of a function that was known from an earlier run it is not known whether it is loaded: while the context has
 * work whose end may depend on those calls, it is taken not to be.
 */
CUresult rg_function_load_first(CUfunction f, struct rg_function *function, uint64_t context)
{
    const struct rg_session *session = rg_session_current();
    if (rg_call_waits_are_short(session) && rg_call_goes_out_of_order(session) &&
        (atomic_load_explicit(&function->unloaded, memory_order_relaxed) ||
         rg_timeline_blocks_on_context(context)))
        RG_TRY(load(f));
    atomic_store_explicit(&function->unloaded, false, memory_order_relaxed);
    atomic_store_explicit(&function->launched, true, memory_order_relaxed);
    return CUDA_SUCCESS;
}
