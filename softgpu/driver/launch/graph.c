/*
 * graph.c - what graphs (common/cuda/graph) need of the software device.
 *
 * A conditional node is a task of the stream: it reads the value that kernels have set, gives the body to a
 * stream of its own and waits for it. It occupies one executor thread meanwhile.
 */

#include "common/cuda/graph/plan.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

CUresult rg_graph_backend_enter(void)
{
    return sg_enter();
}

CUstream rg_graph_backend_stream(CUstream stream)
{
    return stream == NULL && sg_per_thread_default_stream ? CU_STREAM_PER_THREAD : stream;
}

bool rg_graph_backend_event_known(CUevent event)
{
    SG_REF(struct sg_object) object = sg_handle_get(event, SG_KIND_EVENT);
    return object != NULL && sg_object_lives(object);
}

CUkernel rg_graph_backend_kernel(CUfunction handle)
{
    SG_REF(struct sg_object) kernel = sg_handle_get(handle, SG_KIND_KERNEL);
    if (kernel != NULL)
        return (CUkernel)handle;
    SG_REF(struct sg_function) function = sg_handle_get(handle, SG_KIND_FUNCTION);
    if (function == NULL || function->module->kernels == NULL)
        return NULL;
    return (CUkernel)(void *)function->module->kernels[function->index];
}

bool rg_graph_backend_array_known(CUarray array)
{
    SG_REF(struct sg_object) object = sg_handle_get(array, SG_KIND_ARRAY);
    return object != NULL;
}

bool rg_graph_backend_device_memory(CUdeviceptr address, CUdeviceptr *end, bool *mapping)
{
    struct sg_range range;
    if (!sg_range_find(address, &range) || range.kind == SG_RANGE_HOST || range.kind == SG_RANGE_REGISTERED)
        return false;
    *end = range.base + range.size;
    *mapping = range.kind == SG_RANGE_MAPPED;
    return true;
}

bool rg_graph_backend_context_device(CUcontext handle, CUdevice *device)
{
    SG_REF(struct sg_context) context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context != NULL)
        *device = context->device->ordinal;
    return context != NULL;
}

void rg_graph_backend_destructor_thread(void)
{
    sg_in_host_function = true;
}

CUresult rg_graph_backend_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return sg_copy_in_order(copy, stream);
}

CUresult rg_graph_backend_unsupported(const char *what)
{
    return sg_unsupported(what);
}

/* --- conditional nodes --- */

static void set_condition(uint64_t handle, uint32_t value)
{
    rg_graph_condition_set(handle, value);
}

struct conditional {
    struct rg_graph_plan *plan;       /* a reference */
    const struct rg_graph_step *step; /* NULL: the beginning of a launch */
};

static void run_step(const struct rg_graph_step *step, struct sg_context *context)
{
    CUstream stream;
    CUcontext none;
    if (cuCtxPushCurrent_v2(sg_context_handle(context)) != CUDA_SUCCESS)
        return; /* it has been destroyed */
    CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        result = rg_graph_conditional_run(step, stream);
        (void)cuStreamDestroy_v2(stream);
    }
    if (result != CUDA_SUCCESS)
        sg_context_poison(context, result);
    (void)cuCtxPopCurrent_v2(&none);
}

static void run_conditional(struct sg_task *task)
{
    const struct conditional *c = (const void *)task->payload;
    if (c->step != NULL)
        run_step(c->step, task->stream->object.context);
    else
        rg_graph_conditions_begin(c->plan);
}

static void dispose_conditional(struct sg_task *task)
{
    const struct conditional *c = (const void *)task->payload;
    rg_graph_plan_release(c->plan);
}

CUresult rg_graph_backend_conditional(struct rg_graph_plan *plan, const struct rg_graph_step *step,
                                      CUstream handle)
{
    SG_STREAM_OR_RETURN(stream, handle);
    sg_exec_set_conditions(set_condition);
    struct sg_task *task = sg_task_new(sizeof(struct conditional), run_conditional, dispose_conditional);
    if (task != NULL) {
        atomic_fetch_add(&plan->references, 1);
        *(struct conditional *)(void *)task->payload = (struct conditional){plan, step};
    }
    return sg_stream_submit(stream, task);
}

CUresult rg_graph_backend_plan_prepare(struct rg_graph_plan *plan)
{
    (void)plan; /* steps run as they are */
    return CUDA_SUCCESS;
}

CUresult rg_graph_backend_native_launch(uint64_t native, CUstream stream)
{
    (void)native; /* no plan has any here */
    (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}

void rg_graph_backend_native_drop(uint64_t native)
{
    (void)native;
}
