/*
 * graph.c - what graphs (common/cuda/graph) need of the software device.
 */
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/copy.h"
#include "softgpu/driver/driver.h"

CUresult rg_graph_enter(void)
{
    return sg_enter();
}

CUstream rg_graph_stream(CUstream stream)
{
    return stream == NULL && sg_per_thread_default_stream ? CU_STREAM_PER_THREAD : stream;
}

bool rg_graph_event_known(CUevent event)
{
    SG_REF(struct sg_object) object = sg_handle_get(event, SG_KIND_EVENT);
    return object != NULL;
}

CUresult rg_graph_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return sg_copy_in_order(copy, stream);
}

CUresult rg_graph_unsupported(const char *what)
{
    return sg_unsupported(what);
}
