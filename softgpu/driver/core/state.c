/*
 * state.c - the state of the process, and the checks that every call begins with. Nothing happens in a
 * process before its first cuInit (entry/init.c), and a call before it is CUDA_ERROR_NOT_INITIALIZED. Any
 * thread.
 */
#include "softgpu/driver/driver.h"

#include "generated/proto/api_table.h"

__thread bool sg_per_thread_default_stream;
__thread bool sg_in_host_function;
struct sg_state sg_state = {
    .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP}; /* destructors run under it may call the driver */

CUresult sg_enter(void)
{
    if (!atomic_load_explicit(&sg_state.initialised, memory_order_acquire) ||
        atomic_load_explicit(&sg_state.forked, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    return sg_in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult sg_unsupported(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *said[RG_API_COUNT];
    static size_t n_said;
    RG_TRY(sg_enter());
    bool first = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_said && first; i++)
        first = said[i] != name;
    if (first && n_said < RG_API_COUNT)
        said[n_said++] = name;
    pthread_mutex_unlock(&lock);
    if (first)
        rg_warn("%s is not supported by the software device", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}
