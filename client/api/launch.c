/*
 * launch.c - kernel launches. What the driver would refuse at once is refused here with its error, since the
 * call returns before the worker has seen it (launch_check.h); the parameters are gathered into one buffer as the kernel sees
 * them.
 */
#include "client/api/function/function.h"
#include "client/api/launch_check.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/managed/pinned.h"
#include "client/multiserver/replication.h"
#include "client/timeline/pace.h"
#include "client/timeline/timeline.h"
#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/cuda/graph/graph.h"
#include "common/cuda/launch_blocking.h"
#include "generated/client/operations.h"
#include "proto/launch_attribute.h"

#include <stdlib.h>
#include <string.h>

/*
 * Where the last parameter begins. A buffer must reach it, but may end before it does: NCCL passes as much of its structure of
 * 4 KiB as it has filled.
 */
static size_t last_offset(const struct rg_function *function)
{
    size_t last = 0;
    for (uint32_t i = 0; i < function->info.n_params; i++)
        if (function->params[i].offset > last)
            last = function->params[i].offset;
    return last;
}

/* The parameter buffer: as the application gives it by `extra`, or gathered into `buffer`. */
static CUresult parameters(const struct rg_function *function, void **kernelParams, void **extra,
                           unsigned char *buffer, const void **data, size_t *size)
{
    if (kernelParams && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra) {
        const void *pointer = NULL;
        const size_t *length = NULL;
        for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
            if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                pointer = extra[i + 1];
            else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
                length = extra[i + 1];
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        *data = buffer;
        *size = 0;
        if (!function->params_size) /* then it does not matter what is there */
            return CUDA_SUCCESS;
        if (!pointer || !length || *length <= last_offset(function))
            return CUDA_ERROR_INVALID_VALUE;
        *size = *length < function->params_size ? *length : function->params_size;
        memcpy(buffer, pointer, *size); /* here: what the application owns may have to be waited for */
        return CUDA_SUCCESS;
    }
    if (!kernelParams && function->info.n_params)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < function->info.n_params; i++) {
        if (!kernelParams[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(buffer + function->params[i].offset, kernelParams[i], function->params[i].size);
    }
    *data = buffer;
    *size = function->params_size;
    return CUDA_SUCCESS;
}

/* The context, which may be a green one, that a stream is of. */
static uint64_t context_of_stream(CUstream stream, uint64_t current)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_STREAM, (uint64_t)stream);
    return shadow ? shadow->stream.context : current;
}

/* Launches demand a stream of the current context, or one of which that or it is a green context. */
static CUresult check_stream(CUstream stream, uint64_t context)
{
    if (rg_stream_is_default(stream))
        return CUDA_SUCCESS;
    const struct rg_shadow *shadow;
    RG_TRY(rg_handle_live(RG_KIND_STREAM, (uint64_t)stream, &shadow));
    return rg_context_owner(shadow->stream.context) == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/*
 * Whose attributes are those of a kernel in the current context: they are of a device, and can be set of the
 * function alone.
 */
static CUresult find_here(CUkernel kernel, const struct rg_function *shadow, CUdevice device, CUfunction *out)
{
    const bool elsewhere = shadow->device != device;
    *out = (CUfunction)kernel;
    if (!elsewhere && !atomic_load_explicit(&shadow->changed, memory_order_relaxed))
        return CUDA_SUCCESS;
    const CUfunction here = rg_kernel_function_here(shadow);
    if (!here && elsewhere)
        return cuKernelGetFunction(out, kernel);
    if (here)
        *out = here;
    return CUDA_SUCCESS;
}

/* CUDA_SUCCESS, unless parameters name memory that only another server's kernels reach: what the host or another process has given to that. */
static CUresult check_memory_is_here(const void *data, size_t size)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t word;
        struct rg_range range;
        memcpy(&word, (const unsigned char *)data + at, sizeof word);
        if (!rg_map_find(word, &range))
            continue;
        if (range.mapped && rg_homes_differ(range.mapped, 0))
            return rg_unsupported("host memory that kernels of several servers use");
        if (range.kind == RG_RANGE_IPC && rg_homes_differ(range.context, 0))
            return rg_unsupported(
                "a kernel with memory of another process on another server (copies reach it)");
    }
    return CUDA_SUCCESS;
}

/* A launch that has been checked, but for its parameters. */
struct request {
    struct rg_call *call;
    const struct rg_function *function;
    CUfunction f;
    const struct rg_launch_dimensions *d;
    CUstream stream;
    bool cooperative;
    void **kernelParams, **extra;
    unsigned n_attributes;
    const CUlaunchAttribute *attributes;
};

/*
 * A function of its own, so that what else a launch may have to do takes little of the stack, of which threads and coroutines of
 * applications may have as little as 16 KiB.
 */
static __attribute__((noinline)) CUresult send_launch(const struct request *r)
{
    unsigned char small[1024] __attribute__((aligned(16)));
    RG_CLEANUP_FREE unsigned char *large =
        r->function->params_size > sizeof small ? malloc(RG_PARAMS_MAX) : NULL;
    unsigned char *buffer = large ? large : small;
    const void *data;
    size_t size;
    if (r->function->params_size > sizeof small && !large)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_TRY(parameters(r->function, r->kernelParams, r->extra, buffer, &data, &size));
    RG_TRY(rg_pinned_scan(data, size));
    if (rg_several_servers())
        RG_TRY(check_memory_is_here(data, size));
    const struct rg_launch_dimensions *d = r->d;
    return rg_op_rgLaunch(r->call, (uint64_t)r->f, d->grid[0], d->grid[1], d->grid[2], d->block[0],
                          d->block[1], d->block[2], d->shared, rg_effective_stream(r->stream), r->cooperative,
                          size, data, r->n_attributes, r->attributes);
}

/* The event that the attribute has the launch record; NULL: it names none. */
static CUevent event_of(const CUlaunchAttribute *attribute)
{
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return attribute->value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return attribute->value.launchCompletionEvent.event;
    default:
        return NULL;
    }
}

static CUresult check_events(uint64_t context, unsigned n, const CUlaunchAttribute *attributes)
{
    for (unsigned i = 0; i < n; i++) {
        if (rg_launch_attribute_kind(attributes[i].id) != RG_LAUNCH_ATTRIBUTE_EVENT)
            continue;
        const struct rg_shadow *shadow;
        RG_TRY(rg_handle_live(RG_KIND_EVENT, (uint64_t)event_of(&attributes[i]), &shadow));
        if (shadow->event.context != context)
            return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

/* What the launch records, nobody here has seen recorded: who asks for it asks the server. */
static CUresult with_events(CUresult launched, unsigned n, const CUlaunchAttribute *attributes)
{
    for (unsigned i = 0; i < n && launched == CUDA_SUCCESS; i++)
        if (event_of(&attributes[i]))
            rg_timeline_unseen(event_of(&attributes[i]));
    return launched;
}

static CUresult launch(CUfunction f, const struct rg_launch_dimensions *d, CUstream stream, bool cooperative,
                       void **kernelParams, void **extra, unsigned n_attributes,
                       const CUlaunchAttribute *attributes)
{
    struct rg_call call;
    RG_TRY(rg_call_look(&call, RG_TRAIT_CONTEXT, 0));
    const CUdevice device = call.current->device;
    const uint64_t context = rg_context_owner(call.context);
    struct rg_function *function = rg_function_of(f);
    CUfunction here = f;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (rg_handle_kind((uint64_t)f) == RG_KIND_FUNCTION && function->context != context)
        return CUDA_ERROR_INVALID_HANDLE; /* a kernel has a function in each context */
    RG_TRY(check_stream(stream, context));
    if (rg_several_own_servers()) {
        if (rg_homes_differ(rg_home_of(RG_KIND_FUNCTION, (uint64_t)f), 0))
            return CUDA_ERROR_INVALID_HANDLE;
        RG_TRY(rg_replication_look_up(RG_KIND_KERNEL, (uint64_t)f, 0));
    }
    if (rg_handle_kind((uint64_t)f) == RG_KIND_KERNEL)
        RG_TRY(find_here((CUkernel)f, function, device, &here));
    const struct rg_function *known = here == f ? function : rg_function_of(here);
    if (!known)
        return CUDA_ERROR_INVALID_HANDLE;
    RG_TRY(rg_function_learn_attributes(here, known));
    RG_TRY(rg_launch_check_dimensions(known, d, device));
    RG_TRY(rg_launch_check_clusters(f, known, d, n_attributes, attributes));
    RG_TRY(check_events(context, n_attributes, attributes));
    if (rg_capture_takes(stream)) {
        CUlaunchConfig config = {d->grid[0],  d->grid[1],  d->grid[2],
                                 d->block[0], d->block[1], d->block[2],
                                 d->shared,   stream,      (CUlaunchAttribute *)(uintptr_t)attributes,
                                 n_attributes};
        for (unsigned i = 0; i < n_attributes; i++)
            cooperative |=
                attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attributes[i].value.cooperative;
        return rg_capture_kernel(&config, f, cooperative, kernelParams, extra);
    }
    if (cooperative || n_attributes)
        RG_TRY(rg_launch_check_cooperative(f, d, context_of_stream(stream, call.context), cooperative,
                                           n_attributes, attributes));
    if (!atomic_load_explicit(&function->launched, memory_order_relaxed))
        RG_TRY(rg_function_load_first(f, function, call.context));
    rg_pace(call.thread, rg_effective_stream(stream), context_of_stream(stream, call.context));
    const struct request request = {&call, function,     f,         d, stream, cooperative, kernelParams,
                                    extra, n_attributes, attributes};
    RG_TRY(with_events(send_launch(&request), n_attributes, attributes));
    return rg_launches_block() ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct rg_launch_dimensions d = {
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
    return launch(f, &d, hStream, false, kernelParams, extra, 0, NULL);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams)
{
    struct rg_launch_dimensions d = {
        {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
    return launch(f, &d, hStream, true, kernelParams, NULL, 0, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const enum rg_launch_attribute_kind kind = rg_launch_attribute_kind(config->attrs[i].id);
        if (kind == RG_LAUNCH_ATTRIBUTE_UNKNOWN)
            return CUDA_ERROR_INVALID_VALUE;
        if (kind == RG_LAUNCH_ATTRIBUTE_REFUSED)
            return rg_unsupported("cuLaunchKernelEx with an attribute that names a graph node");
    }
    struct rg_launch_dimensions d = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                     {config->blockDimX, config->blockDimY, config->blockDimZ},
                                     config->sharedMemBytes};
    return launch(f, &d, config->hStream, false, kernelParams, extra, config->numAttrs, config->attrs);
}
