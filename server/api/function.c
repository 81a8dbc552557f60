/* function.c - functions and kernels found in modules and libraries, by name or all of them. See module.h. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "generated/server/execute.h"
#include "proto/function_info.h"
#include "server/api/module.h"
#include "server/images/layouts.h"
#include "server/shares/worker/share.h"

#include <string.h>

/* Of a function or kernel, by the driver or, if it cannot tell, by the image. */
static CUresult param_of(struct rg_worker *worker, void *object, bool is_kernel, size_t index, size_t *offset,
                         size_t *size)
{
    if (rg_layouts_needed())
        return rg_layouts_param(worker, object, index, offset, size);
    return is_kernel ? rg_driver.cuKernelGetParamInfo(object, index, offset, size)
                     : rg_driver.cuFuncGetParamInfo(object, index, offset, size);
}

/* Without them nothing can be launched. */
static CUresult unknown_parameters(const struct rg_request *request)
{
    int version = 0;
    (void)rg_driver.cuDriverGetVersion(&version);
    rg_error(
        "session %llu: the parameters of a kernel are not known: the driver is for CUDA %d.%d, and only "
        "those from 12.4 on tell them; the kernel's image has neither machine code nor PTX for the device",
        (unsigned long long)request->worker->session, version / 1000, version % 1000 / 10);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The device of the client thread's context, or the first one. The dispatcher. */
static CUdevice device_of(struct rg_request *request)
{
    CUdevice device = 0;
    if (!request->thread->context || rg_request_make_current(request) != CUDA_SUCCESS ||
        rg_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = 0;
    return device;
}

static bool is_unloaded(CUfunction function)
{
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_LOADED;
    return function && rg_driver_has(cuFuncLoad) &&
           rg_driver.cuFuncIsLoaded(&state, function) == CUDA_SUCCESS &&
           state == CU_FUNCTION_LOADING_STATE_UNLOADED;
}

bool rg_module_may_load(struct rg_request *request)
{
    const struct rg_object *entry = rg_objects_find(&request->worker->objects, request->thread->context);
    return !entry || (rg_request_make_current(request) == CUDA_SUCCESS &&
                      rg_context_idle(request->worker, entry->extra));
}

static void ask_attributes(struct rg_function_info *info, void *object, bool is_kernel, CUdevice device)
{
    for (int i = 0; i < RG_FUNCTION_ATTRIBUTES; i++) {
        CUresult result =
            is_kernel ? rg_driver.cuKernelGetAttribute(&info->attributes[i], (CUfunction_attribute)i, object,
                                                       device)
                      : rg_driver.cuFuncGetAttribute(&info->attributes[i], (CUfunction_attribute)i, object);
        if (result == CUDA_SUCCESS)
            info->known |= 1u << i;
        else
            info->attributes[i] = 0;
    }
}

static CUresult output_info(struct rg_request *request, void *object, bool is_kernel, CUdevice device,
                            CUfunction function, bool may_load)
{
    struct rg_function_info info = {0};
    if (is_kernel || may_load || !is_unloaded(function))
        ask_attributes(&info, object, is_kernel, device);
    if (is_unloaded(function)) /* asking for attributes may have loaded it */
        info.known |= RG_FUNCTION_UNLOADED;
    struct rg_param_info params[RG_PARAMS_MAX / 8];
    size_t offset, size;
    CUresult result = CUDA_SUCCESS;
    while (info.n_params < RG_PARAMS_MAX / 8 &&
           (result = param_of(request->worker, object, is_kernel, info.n_params, &offset, &size)) ==
               CUDA_SUCCESS)
        params[info.n_params++] = (struct rg_param_info){(uint32_t)offset, (uint32_t)size};
    if (result == CUDA_ERROR_NOT_FOUND && rg_layouts_needed())
        return unknown_parameters(request);
    rg_request_output(request, &info, sizeof info);
    rg_request_output(request, params, info.n_params * sizeof *params);
    return request->result;
}

CUresult rg_module_output_function(struct rg_request *request, CUfunction function, bool may_load)
{
    return output_info(request, function, false, 0, function, may_load);
}

CUresult rg_module_output_kernel(struct rg_request *request, CUkernel kernel, CUdevice device,
                                 CUfunction function)
{
    return output_info(request, kernel, true, device, function, true);
}

CUresult rg_execute_rgModuleGetFunction(struct rg_request *request, uint64_t function, CUmodule module,
                                        const char *name)
{
    CUfunction made = NULL;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    const bool may_load = rg_module_may_load(request);
    rg_request_go_out_of_order(request);
    CUresult result = rg_driver.cuModuleGetFunction(&made, module, name);
    if (result == CUDA_SUCCESS) {
        rg_layouts_found(request, made, module, name);
        result = rg_module_output_function(request, made, may_load);
    }
    if (result == CUDA_SUCCESS)
        rg_request_new_of(request, RG_KIND_FUNCTION, function, made, module);
    return result;
}

CUresult rg_execute_rgLibraryGetKernel(struct rg_request *request, uint64_t kernel, CUlibrary library,
                                       const char *name)
{
    CUkernel made = NULL;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    const CUdevice device = device_of(request);
    rg_request_go_out_of_order(request);
    CUresult result = rg_driver.cuLibraryGetKernel(&made, library, name);
    if (result == CUDA_SUCCESS) {
        rg_layouts_found(request, made, library, name);
        result = rg_module_output_kernel(request, made, device, NULL);
    }
    if (result == CUDA_SUCCESS)
        rg_request_new_of(request, RG_KIND_KERNEL, kernel, made, library);
    return result;
}

CUresult rg_execute_rgKernelGetFunction(struct rg_request *request, uint64_t function, CUkernel kernel)
{
    CUfunction made = NULL;
    const bool may_load = rg_module_may_load(request);
    rg_request_go_out_of_order(request);
    const uint64_t held = rg_share_held_in_all();
    RG_TRY(rg_driver.cuKernelGetFunction(&made, kernel));
    request->memory_taken = rg_share_taken_since(held);
    rg_layouts_function(request, made, kernel);
    rg_request_found_of(request, RG_KIND_FUNCTION, function, made, request->uses); /* the kernel's library */
    return rg_module_output_function(request, made, may_load);
}

CUresult rg_execute_rgFunctionAttributes(struct rg_request *request, CUfunction function)
{
    rg_request_go_out_of_order(request);
    return rg_module_output_function(request, function, true);
}

CUresult rg_execute_rgKernelTakeFunction(struct rg_request *request, uint64_t function, CUkernel kernel)
{
    CUfunction made = NULL;
    const uint64_t held = rg_share_held_in_all();
    RG_TRY(rg_driver.cuKernelGetFunction(&made, kernel));
    request->memory_taken = rg_share_taken_since(held);
    rg_layouts_function(request, made, kernel);
    rg_request_new_of(request, RG_KIND_FUNCTION, function, made, request->uses);
    return request->result;
}

CUresult rg_execute_cuLibraryGetModule(struct rg_request *request, uint64_t module, CUlibrary library)
{
    CUmodule made = NULL;
    rg_request_go_out_of_order(request);
    CUresult result = rg_driver.cuLibraryGetModule(&made, library);
    if (result == CUDA_SUCCESS) {
        rg_layouts_module(request, made, library);
        rg_request_found_of(request, RG_KIND_MODULE, module, made, library);
    }
    return result;
}

/* --- enumeration ---------------------------------------------------------------------------------------- */

/* One entry of the answer: the handle that counts, the name, the info. `device`: of a kernel's. */
static CUresult output_entry(struct rg_request *request, enum rg_kind kind, uint64_t proposed, void *object,
                             const void *owner, const char *name, CUdevice device, bool may_load)
{
    const bool is_kernel = kind == RG_KIND_KERNEL;
    const uint64_t length = strlen(name) + 1;
    rg_request_found_of(request, kind, proposed, object, owner);
    rg_request_output(request, &length, sizeof length);
    rg_request_output(request, name, length);
    if (request->violated)
        return CUDA_ERROR_UNKNOWN;
    return is_kernel ? rg_module_output_kernel(request, object, device, NULL)
                     : rg_module_output_function(request, object, may_load);
}

/* The end of what is asked for, of `there`; memory for all up to it, as drivers list from the first. */
static unsigned int enumerated(struct rg_request *request, unsigned int there, unsigned int first,
                               unsigned int count, void ***found)
{
    const unsigned int end = first >= there ? first : there - first < count ? there : first + count;
    *found = end > first ? rg_request_memory(request, end * sizeof **found) : NULL;
    return *found ? end : first;
}

CUresult rg_execute_rgModuleEnumerate(struct rg_request *request, CUmodule module, unsigned int first,
                                      unsigned int count, const unsigned long long *ids)
{
    unsigned int there = 0;
    void **found;
    const bool may_load = rg_module_may_load(request);
    if (count <= RG_OUT_OF_ORDER_FUNCTIONS_MAX)
        rg_request_go_out_of_order(request);
    RG_TRY(rg_driver.cuModuleGetFunctionCount(&there, module));
    const unsigned int end = enumerated(request, there, first, count, &found);
    if (end > first)
        RG_TRY(rg_driver.cuModuleEnumerateFunctions((CUfunction *)found, end, module));
    for (unsigned int i = first; i < end && request->out_size <= RG_FUNCTIONS_ANSWER_MAX; i++) {
        const char *name = NULL;
        RG_TRY(rg_driver.cuFuncGetName(&name, found[i]));
        RG_TRY(output_entry(request, RG_KIND_FUNCTION, ids[i - first], found[i], module, name, 0, may_load));
    }
    return request->result;
}

CUresult rg_execute_rgLibraryEnumerate(struct rg_request *request, CUlibrary library, unsigned int first,
                                       unsigned int count, const unsigned long long *ids)
{
    unsigned int there = 0;
    void **found;
    const CUdevice device = device_of(request);
    if (count <= RG_OUT_OF_ORDER_FUNCTIONS_MAX)
        rg_request_go_out_of_order(request);
    RG_TRY(rg_driver.cuLibraryGetKernelCount(&there, library));
    const unsigned int end = enumerated(request, there, first, count, &found);
    if (end > first)
        RG_TRY(rg_driver.cuLibraryEnumerateKernels((CUkernel *)found, end, library));
    for (unsigned int i = first; i < end && request->out_size <= RG_FUNCTIONS_ANSWER_MAX; i++) {
        const char *name = NULL;
        RG_TRY(rg_driver.cuKernelGetName(&name, found[i]));
        RG_TRY(output_entry(request, RG_KIND_KERNEL, ids[i - first], found[i], library, name, device, true));
    }
    return request->result;
}
