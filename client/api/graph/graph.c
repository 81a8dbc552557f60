/*
 * graph.c - what graphs (common/cuda/graph) need of the client. Graphs live on this side; a launch sends what
 * their nodes do through the functions that an application would call.
 */
#include "common/cuda/graph/graph.h"

#include "client/api/copy_description.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/thread.h"

CUresult rg_graph_backend_enter(void)
{
    return rg_call_allowed(0);
}

CUstream rg_graph_backend_stream(CUstream stream)
{
    return rg_effective_stream(stream);
}

bool rg_graph_backend_event_known(CUevent event)
{
    return rg_handle_known(RG_KIND_EVENT, (uint64_t)event);
}

CUkernel rg_graph_backend_kernel(CUfunction function)
{
    CUkernel kernel = NULL;
    if (rg_handle_kind((uint64_t)function) == RG_KIND_KERNEL)
        return (CUkernel)function;
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_FUNCTION, (uint64_t)function);
    if (!shadow)
        return NULL;
    const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, shadow->function.owner);
    const uint64_t library = module ? module->module.owner : shadow->function.owner;
    if (rg_handle_kind(library) != RG_KIND_LIBRARY ||
        cuLibraryGetKernel(&kernel, (CUlibrary)library, shadow->function.name) != CUDA_SUCCESS)
        return NULL;
    return kernel;
}

bool rg_graph_backend_array_known(CUarray array)
{
    return rg_handle_known(RG_KIND_ARRAY, (uint64_t)array);
}

bool rg_graph_backend_device_memory(CUdeviceptr address, CUdeviceptr *end, bool *mapping)
{
    struct rg_range range;
    if (!rg_map_find(address, &range) || rg_range_pinned(&range))
        return false;
    *end = range.start + range.size;
    *mapping = range.kind == RG_RANGE_VIRTUAL;
    return true;
}

bool rg_graph_backend_context_device(CUcontext context, CUdevice *device)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, (uint64_t)context);
    if (shadow)
        *device = shadow->context.device;
    return shadow != NULL;
}

void rg_graph_backend_destructor_thread(void)
{
    struct rg_thread *thread = rg_thread_current();
    if (thread)
        thread->host_call = true;
}

CUresult rg_graph_backend_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return rg_copy_described(copy, stream, true, true);
}

CUresult rg_graph_backend_unsupported(const char *what)
{
    return rg_unsupported(what);
}
