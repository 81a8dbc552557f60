/*
 * function.c - functions and kernels: names, parameters and attributes, known since they were found (what is set of them: settings.c).
 */
#include "client/api/function/function.h"

#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/thread.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

/* A function is of its module's context, whatever context is current; of a library's kernel, it is of the current one. */
static uint64_t context_of_function(uint64_t owner)
{
    const struct rg_shadow *module =
        rg_handle_kind(owner) == RG_KIND_MODULE ? rg_handle_shadow(RG_KIND_MODULE, owner) : NULL;
    return module && module->module.context ? module->module.context : rg_context_current_owner();
}

/* The device that its attributes are for. */
static CUdevice device_of_function(uint64_t context)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, context);
    return shadow ? shadow->context.device : rg_device_current_or_first();
}

bool rg_function_read(struct rg_reader *reply, struct rg_function *function, const char *name, uint64_t owner)
{
    struct rg_function_info info;
    rg_get_into(reply, &info, sizeof info);
    if (reply->bad || info.n_params > RG_PARAMS_MAX)
        return false;
    const void *params = rg_get(reply, info.n_params * sizeof(struct rg_param_info));
    if (!params)
        return false;
    struct rg_param_info *copy = malloc(info.n_params * sizeof *copy + 1);
    char *own_name = strdup(name);
    if (!copy || !own_name) {
        free(copy);
        free(own_name);
        return false;
    }
    memcpy(copy, params, info.n_params * sizeof *copy);
    uint32_t size = 0;
    for (uint32_t i = 0; i < info.n_params; i++) {
        if (copy[i].offset > RG_PARAMS_MAX || copy[i].size > RG_PARAMS_MAX - copy[i].offset) {
            free(copy);
            free(own_name);
            return false;
        }
        if (copy[i].offset + copy[i].size > size)
            size = copy[i].offset + copy[i].size;
    }
    const uint64_t context = context_of_function(owner);
    *function = (struct rg_function){
        .name = own_name,
        .owner = owner,
        .context = context,
        .servers = 1u << rg_session_current()->number,
        .unloaded = info.known & RG_FUNCTION_UNLOADED,
        .info = info,
        .params = copy,
        .params_size = size,
        .device = device_of_function(context),
    };
    memcpy(function->set, info.attributes, sizeof function->set);
    return true;
}

bool rg_function_fill(struct rg_reader *reply, struct rg_function *function, const char *name, uint64_t owner,
                      struct rg_found_function **list, uint64_t handle)
{
    struct rg_function read;
    if (!rg_function_read(reply, &read, name, owner))
        return false;
    rg_found_lock();
    const bool first = !function->name;
    if (first) {
        *function = read;
        if (list)
            (void)rg_found_add(list, name, 0, handle); /* without memory it is merely asked for again */
    }
    rg_found_unlock();
    if (!first) {
        free(read.name);
        free(read.params);
    }
    return true;
}

bool rg_function_is_filled(const struct rg_function *function)
{
    rg_found_lock();
    const bool filled = function->name;
    rg_found_unlock();
    return filled;
}

struct rg_function *rg_function_of(CUfunction function)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_FUNCTION, (uint64_t)function);
    if (!shadow)
        shadow = rg_handle_shadow(RG_KIND_KERNEL, (uint64_t)function);
    return shadow ? &shadow->function : NULL;
}

uint64_t rg_function_context(uint64_t handle, const struct rg_function *function)
{
    return rg_handle_kind(handle) == RG_KIND_FUNCTION ? function->context : 0;
}

struct rg_shadow *rg_function_library(const struct rg_function *function)
{
    const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, function->owner);
    return rg_handle_shadow(RG_KIND_LIBRARY, module ? module->module.owner : function->owner);
}

/* --- names, parameters, attributes ---------------------------------------------------------------------- */

CUresult rg_function_asked(uint64_t handle, bool kernel, const void *out, struct rg_function **found)
{
    RG_TRY(rg_call_allowed(0));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(kernel ? RG_KIND_KERNEL : RG_KIND_FUNCTION, handle);
    *found = shadow ? &shadow->function : kernel ? NULL : rg_function_of((CUfunction)handle);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_name(uint64_t handle, bool kernel, const char **name)
{
    struct rg_function *function;
    const CUresult status = rg_function_asked(handle, kernel, name, &function);
    if (status == CUDA_SUCCESS)
        *name = function->name;
    return status == CUDA_ERROR_INVALID_HANDLE && !handle ? CUDA_ERROR_INVALID_VALUE : status;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    return get_name((uint64_t)hfunc, false, name);
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    return get_name((uint64_t)hfunc, true, name);
}

static CUresult param_info(const struct rg_function *function, size_t index, size_t *offset, size_t *size)
{
    if (index >= function->info.n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->params[index].offset;
    if (size)
        *size = function->params[index].size;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)func, false, paramOffset, &function));
    return param_info(function, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)kernel, true, paramOffset, &function));
    return param_info(function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)hfunc, false, hmod, &function));
    if (rg_handle_known(RG_KIND_MODULE, function->owner)) {
        *hmod = (CUmodule)function->owner;
        return CUDA_SUCCESS;
    }
    const uint64_t context = rg_function_context((uint64_t)hfunc, function);
    const bool elsewhere = context && context != rg_context_current_owner();
    if (elsewhere)
        RG_TRY(rg_context_scope_enter(context));
    const CUresult status = cuLibraryGetModule(hmod, (CUlibrary)function->owner);
    if (elsewhere)
        rg_context_scope_leave();
    return status;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)kernel, true, pLib, &function));
    *pLib = (CUlibrary)function->owner;
    return CUDA_SUCCESS;
}

/* Attributes never change but for those that an application may set: they are known until it sets one. */
static bool is_constant(CUfunction_attribute attribute)
{
    return attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
}

static bool known_attribute(const struct rg_function *function, CUfunction_attribute attribute, int *pi)
{
    if (!rg_optimise[RG_OPT_QUERY_CACHE] || (unsigned)attribute >= RG_FUNCTION_ATTRIBUTES ||
        !rg_function_knows(function, attribute) || (!is_constant(attribute) && function->changed))
        return false;
    *pi = function->info.attributes[attribute];
    rg_probe_saved(RG_OPT_QUERY_CACHE);
    return true;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)hfunc, false, pi, &function));
    const bool here =
        rg_function_context((uint64_t)hfunc, function) || function->device == rg_device_current();
    if (here && known_attribute(function, attrib, pi))
        return CUDA_SUCCESS;
    return rg_op_cuFuncGetAttribute(pi, attrib, hfunc);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct rg_function *function;
    RG_TRY(rg_function_asked((uint64_t)kernel, true, pi, &function));
    if (!rg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return dev == function->device && known_attribute(function, attrib, pi)
               ? CUDA_SUCCESS
               : rg_op_cuKernelGetAttribute(pi, attrib, kernel, dev);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct rg_function *shadow;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(rg_function_asked((uint64_t)function, false, state, &shadow));
    if (rg_optimise[RG_OPT_QUERY_CACHE] && atomic_load_explicit(&shadow->loaded, memory_order_relaxed)) {
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    }
    CUresult status = rg_op_cuFuncIsLoaded(state, function);
    if (status == CUDA_SUCCESS && *state == CU_FUNCTION_LOADING_STATE_LOADED)
        atomic_store_explicit(&shadow->loaded, true, memory_order_relaxed);
    return status;
}
