/*
 * launch.c - kernel launches: all that can be checked is checked at the call, then the grid is queued.
 *
 * Parameters are copied at the call. Machine code is made at the call too, so a kernel that cannot be
 * compiled fails there. A fault while the grid runs poisons the context and is logged with block, thread and
 * address.
 */
#include <string.h>

#include "common/base/align.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/kernel_messages.h"
#include "common/cuda/launch_blocking.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/launch/device_services.h"
#include "softgpu/driver/launch/fault.h"
#include "softgpu/driver/launch/function.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

struct request {
    uint32_t grid[3], block[3];
    uint32_t shared;
    uint32_t cluster[3]; /* zeros: the launch does not say; checked: nobody does */
    bool cooperative;
    const CUlaunchAttribute *attributes; /* as they were given, for captures */
    unsigned n_attributes;
    CUevent events[2]; /* to be recorded once all blocks have begun, and once all let what follows begin */
    unsigned n_events;
    void **params, **extra; /* one of them; both NULL: there are none */
};

struct queued_grid {
    struct sg_launch launch;
    struct sg_module *module; /* reference held: keeps code and variables */
    CUresult fails;           /* as SOFTGPU_BEHAVE says it shall; CUDA_SUCCESS: it runs */
};

static void run_grid(struct sg_task *task)
{
    const struct queued_grid *grid = (const void *)task->payload;
    struct sg_fault_report report = {0};
    if (grid->fails != CUDA_SUCCESS) {
        sg_context_poison(task->stream->object.context, grid->fails);
        return;
    }
    sg_exec_run(&grid->launch, &report);
    struct sg_launch faulty = grid->launch;
    if (report.child) {
        faulty.kernel_name = report.kernel_name;
        memcpy(faulty.grid, report.grid, sizeof(faulty.grid));
        memcpy(faulty.block, report.block, sizeof(faulty.block));
    }
    CUresult error = sg_fault_log(&faulty, &report);
    if (error != CUDA_SUCCESS)
        sg_context_poison(task->stream->object.context, error);
}

static void dispose_grid(struct sg_task *task)
{
    const struct queued_grid *grid = (const void *)task->payload;
    sg_release(&grid->module->object);
}

/* Makes grid and clusters as they are to run. */
static CUresult check_shape(struct request *r, const struct sg_function *function,
                            const struct sg_context *context)
{
    RG_TRY(sg_launch_expand(function->kernel, r->grid, r->block));
    RG_TRY(sg_launch_check_shape(function->kernel, function->settings, r->grid, r->block, r->shared));
    RG_TRY(sg_launch_cluster(function->kernel, function->settings, r->grid, r->cluster, r->cluster));
    if (r->cooperative) {
        unsigned threads = r->block[0] * r->block[1] * r->block[2];
        uint64_t room = (uint64_t)sg_occupancy(function->kernel, function->settings, threads, r->shared) *
                        (context->provisioned != NULL ? context->provisioned->n
                                                      : (uint64_t)context->device->multiprocessors);
        uint64_t plane = (uint64_t)r->grid[0] * r->grid[1];
        if (plane > room || plane * r->grid[2] > room)
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    return CUDA_SUCCESS;
}

/*
 * Fills the parameter block from `params` (one pointer each) or from `extra` (a packed buffer, which must reach the last parameter
 * but may end before it does; the rest is zeros).
 */
static CUresult gather_params(const struct sg_kernel *kernel, void **params, void **extra, unsigned char *to)
{
    if (params != NULL && extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra != NULL) {
        const void *buffer = NULL;
        const size_t *size = NULL;
        for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
            if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                buffer = extra[i + 1];
            else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
                size = extra[i + 1];
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (kernel->params_size == 0)
            return CUDA_SUCCESS;
        if (buffer == NULL || size == NULL || *size <= kernel->params[kernel->n_params - 1].offset)
            return CUDA_ERROR_INVALID_VALUE;
        const size_t given = *size < kernel->params_size ? *size : kernel->params_size;
        memcpy(to, buffer, given);
        memset(to + given, 0, kernel->params_size - given);
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        if (params == NULL || params[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + kernel->params[i].offset, params[i], kernel->params[i].size);
    }
    return CUDA_SUCCESS;
}

static CUresult check_events(const struct request *r, const struct sg_context *context)
{
    for (unsigned i = 0; i < r->n_events; i++) {
        SG_REF(struct sg_object) event = NULL;
        RG_TRY(sg_handle_get_living(r->events[i], SG_KIND_EVENT, (void **)&event));
        if (event->context != context)
            return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

/* Behind the kernel, which is as early as it is known here that all its blocks have begun. */
static CUresult record_events(const struct request *r, CUstream stream)
{
    for (unsigned i = 0; i < r->n_events; i++)
        RG_TRY(cuEventRecord(r->events[i], stream));
    return CUDA_SUCCESS;
}

/* Adds the launch to the graph that its stream is captured into. */
static CUresult capture(const struct request *r, CUstream stream, CUfunction function, bool cooperative)
{
    CUlaunchConfig config = {r->grid[0],     r->grid[1],  r->grid[2],
                             r->block[0],    r->block[1], r->block[2],
                             r->shared,      stream,      (CUlaunchAttribute *)(uintptr_t)r->attributes,
                             r->n_attributes};
    return rg_capture_kernel(&config, function, cooperative, r->params, r->extra);
}

/* The kernel's machine code, which is made now. Why there is none is said once. */
static CUresult load_code(struct sg_function *function, void **code)
{
    struct sg_text log = {0};
    RG_TRY(sg_function_load(function));
    const CUresult result =
        sg_compile_result(sg_program_code(function->module->image->program, function->index, &log, code));
    if (result != CUDA_SUCCESS && !atomic_exchange(&function->told, true))
        rg_warn(RG_KERNEL_MESSAGE "%s': %.*s", function->kernel->name,
                log.data != NULL ? (int)strcspn(log.data, "\n") : 7, log.data != NULL ? log.data : "no code");
    sg_text_fini(&log);
    return result;
}

/* Submits the grid with a copy of its parameters. `fails`: what it is to end with instead of running. */
static CUresult queue_grid(const struct request *r, struct sg_stream *stream, struct sg_function *function,
                           void *code, CUresult fails)
{
    const struct sg_kernel *kernel = function->kernel;
    const struct sg_multiprocessors *provisioned = stream->object.context->provisioned;
    struct sg_context *owner = stream->object.context->owner;
    const size_t head = rg_align_up(sizeof(struct queued_grid), 16);
    struct sg_task *task = sg_task_new(head + kernel->params_size, run_grid, NULL);
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *packed = task->payload + head;
    const CUresult result = gather_params(kernel, r->params, r->extra, packed);
    if (result != CUDA_SUCCESS) {
        sg_task_release(task);
        return result;
    }
    struct queued_grid *grid = (void *)task->payload;
    grid->launch = (struct sg_launch){
        .kernel_name = kernel->name,
        .code = code,
        .form = kernel->form,
        .cooperative = r->cooperative,
        .grid = {r->grid[0], r->grid[1], r->grid[2]},
        .block = {r->block[0], r->block[1], r->block[2]},
        .cluster = {r->cluster[0], r->cluster[1], r->cluster[2]},
        .params = packed,
        .params_size = kernel->params_size,
        .shared_static = kernel->shared_static,
        .shared_dynamic = r->shared,
        .stack_size = owner->limits[CU_LIMIT_STACK_SIZE] + kernel->local_size,
        .grid_id = sg_next_grid_id(),
        .n_multiprocessors = provisioned != NULL ? provisioned->n : 0,
        .multiprocessors = provisioned != NULL ? provisioned->at : NULL,
        .services = &sg_device_services,
        .owner = function->module,
    };
    grid->fails = fails;
    grid->module = function->module;
    sg_acquire(&grid->module->object);
    task->dispose = dispose_grid;
    if (kernel->prints)
        atomic_store(&owner->printed, true);
    if (kernel->allocates)
        atomic_store(&owner->allocated, true);
    sg_submit(stream, task, NULL);
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, CUstream stream_handle, const struct request *given)
{
    struct request request = *given, *r = &request;
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream_handle);
    SG_REF(struct sg_function) function = NULL;
    SG_STREAM_OR_RETURN(stream, stream_handle);
    struct sg_context *context = stream->object.context->owner;
    if (sg_context_current() == NULL || sg_context_current()->owner != context)
        return CUDA_ERROR_INVALID_HANDLE;
    RG_TRY(sg_function_get(handle, context, &function));
    if (function->module->object.context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    RG_TRY(check_shape(r, function, stream->object.context));
    RG_TRY(check_events(r, context));
    if (rg_capture_takes(stream_handle))
        return capture(given, stream_handle, handle, r->cooperative);
    void *code;
    RG_TRY(load_code(function, &code));
    bool at_once = false;
    const CUresult fails = sg_behave_launch(&at_once);
    if (at_once)
        return fails;
    sg_wait_for_room(stream);
    RG_TRY(queue_grid(r, stream, function, code, fails));
    RG_TRY(record_events(r, stream_handle));
    return rg_launches_block() ? cuStreamSynchronize(stream_handle) : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **params, void **extra)
{
    struct request r = {.grid = {grid_x, grid_y, grid_z},
                        .block = {block_x, block_y, block_z},
                        .shared = shared,
                        .params = params,
                        .extra = extra};
    return launch(function, stream, &r);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream, void **params)
{
    struct request r = {.grid = {grid_x, grid_y, grid_z},
                        .block = {block_x, block_y, block_z},
                        .shared = shared,
                        .cooperative = true,
                        .params = params};
    return launch(function, stream, &r);
}

static CUresult take_event(CUevent event, struct request *r)
{
    if (r->n_events == sizeof r->events / sizeof r->events[0])
        return CUDA_ERROR_INVALID_VALUE;
    r->events[r->n_events++] = event;
    return CUDA_SUCCESS;
}

static CUresult apply_attribute(const CUlaunchAttribute *attribute, struct request *r)
{
    const CUlaunchAttributeValue *value = &attribute->value;
    if ((int)attribute->id >= sg_version()->launch_attributes)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: /* a hint */
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* allows overlap, does not demand it */
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        r->cooperative = value->cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        r->cluster[0] = value->clusterDim.x;
        r->cluster[1] = value->clusterDim.y;
        r->cluster[2] = value->clusterDim.z;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return take_event(value->programmaticEvent.event, r);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return take_event(value->launchCompletionEvent.event, r);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: /* clusters may always be of the other size */
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        rg_warn("a launch has attribute %d, which is not supported", (int)attribute->id);
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    RG_TRY(sg_enter());
    if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct request r = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                        .shared = config->sharedMemBytes,
                        .attributes = config->attrs,
                        .n_attributes = config->numAttrs,
                        .params = params,
                        .extra = extra};
    for (unsigned i = 0; i < config->numAttrs; i++)
        RG_TRY(apply_attribute(&config->attrs[i], &r));
    return launch(function, config->hStream, &r);
}
