/*
 * function.c - functions and kernels: names, parameters and attributes, known since they were found.
 */
#include "client/api/function.h"

#include "client/cache/query_cache.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/probe.h"
#include "client/core/thread.h"
#include "client/multiserver/context_scope.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A function is of its module's context, whatever context is current; of a library's kernel, it is of the current one. */
static uint64_t context_of_function(uint64_t owner)
{
    const struct rg_shadow *module =
        rg_handle_kind(owner) == RG_KIND_MODULE ? rg_handle_shadow(RG_KIND_MODULE, owner) : NULL;
    return module && module->module.context ? module->module.context : rg_context_current();
}

/* The device that its attributes are for. */
static CUdevice device_of_function(uint64_t context)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, context);
    const CUdevice device = shadow ? shadow->context.device : rg_device_current();
    return device >= 0 ? device : 0;
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

/* The context that a function is of; 0 for a kernel, which may be named as a function. */
static uint64_t context_of(uint64_t handle, const struct rg_function *function)
{
    return rg_handle_kind(handle) == RG_KIND_FUNCTION ? function->context : 0;
}

/* --- names, parameters, attributes ---------------------------------------------------------------------- */

/* The shadow of a function (or, for `kernel`, a kernel) for a question whose answer goes to `out`. */
static CUresult about(uint64_t handle, bool kernel, const void *out, struct rg_function **found)
{
    RG_TRY(rg_call_allowed(0));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(kernel ? RG_KIND_KERNEL : RG_KIND_FUNCTION, handle);
    *found = shadow ? &shadow->function : kernel ? NULL : rg_function_of((CUfunction)handle);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, false, name, &function);
    if (status == CUDA_SUCCESS)
        *name = function->name;
    return status;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, true, name, &function);
    if (status == CUDA_SUCCESS)
        *name = function->name;
    return status;
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
    CUresult status = about((uint64_t)func, false, paramOffset, &function);
    return status != CUDA_SUCCESS ? status : param_info(function, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)kernel, true, paramOffset, &function);
    return status != CUDA_SUCCESS ? status : param_info(function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, false, hmod, &function);
    if (status != CUDA_SUCCESS)
        return status;
    if (rg_handle_known(RG_KIND_MODULE, function->owner)) {
        *hmod = (CUmodule)function->owner;
        return CUDA_SUCCESS;
    }
    const uint64_t context = context_of((uint64_t)hfunc, function);
    const bool elsewhere = context && context != rg_context_current();
    if (elsewhere && (status = rg_context_scope_enter(context)) != CUDA_SUCCESS)
        return status;
    status = cuLibraryGetModule(hmod, (CUlibrary)function->owner);
    if (elsewhere)
        rg_context_scope_leave();
    return status;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)kernel, true, pLib, &function);
    if (status == CUDA_SUCCESS)
        *pLib = (CUlibrary)function->owner;
    return status;
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
    RG_TRY(about((uint64_t)hfunc, false, pi, &function));
    const bool here = context_of((uint64_t)hfunc, function) || function->device == rg_device_current();
    if (here && known_attribute(function, attrib, pi))
        return CUDA_SUCCESS;
    return rg_op_cuFuncGetAttribute(pi, attrib, hfunc);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct rg_function *function;
    RG_TRY(about((uint64_t)kernel, true, pi, &function));
    if (!rg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return dev == function->device && known_attribute(function, attrib, pi)
               ? CUDA_SUCCESS
               : rg_op_cuKernelGetAttribute(pi, attrib, kernel, dev);
}

/* The library that a function comes from, directly or by a module of it; NULL: it comes from none. */
static struct rg_shadow *library_of(const struct rg_function *function)
{
    const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, function->owner);
    return rg_handle_shadow(RG_KIND_LIBRARY, module ? module->module.owner : function->owner);
}

/* The entry of a list with that name; NULL: there is none. The lock of found objects is held. */
static struct rg_function *named(const struct rg_found_function *list, const char *name)
{
    return rg_function_of((CUfunction)rg_found_by_name(list, name));
}

/* What has been set: of a kernel on a device, or of a function, which is one context's. */
struct change {
    unsigned which; /* setting */
    bool attribute;
    int value;
    CUdevice device;
    uint64_t context; /* 0: of a kernel */
};

/*
 * Handles of what is the same function by another name, or may be, know of a change too. The lock of found
 * objects is held.
 */
static void learn(struct rg_function *function, const struct rg_function *changed, bool is_kernel,
                  const struct change *change)
{
    if (!function)
        return;
    const bool the_same = change->context
                              ? function == changed || (!is_kernel && function->context == change->context)
                              : function->device == change->device;
    if (change->attribute)
        atomic_store(&function->changed, true);
    if (change->attribute && the_same && change->which < RG_FUNCTION_ATTRIBUTES)
        function->set[change->which] = change->value;
    if (function != changed)
        rg_setting_forget(&function->settings, change->which);
}

/*
 * A kernel, its functions by contexts, and those of the library's modules: all that may be what has been
 * changed.
 */
static void note_change(struct rg_function *changed, const struct change *change)
{
    rg_found_lock();
    learn(changed, changed, !change->context, change);
    const struct rg_shadow *library = library_of(changed);
    struct rg_function *kernel = library ? named(library->library.kernels, changed->name) : NULL;
    learn(kernel, changed, true, change);
    for (struct rg_found_function *made = kernel ? kernel->by_context : NULL; made; made = made->next)
        learn(rg_function_of((CUfunction)made->handle), changed, false, change);
    for (struct rg_found_function *at = library ? library->library.modules : NULL; at; at = at->next) {
        const struct rg_shadow *module = rg_handle_shadow(RG_KIND_MODULE, at->handle);
        learn(module ? named(module->module.functions, changed->name) : NULL, changed, false, change);
    }
    rg_found_unlock();
}

CUfunction rg_kernel_function_here(const struct rg_function *kernel)
{
    const uint64_t context = rg_context_current();
    rg_found_lock();
    uint64_t function = rg_found_by_key(kernel->by_context, context);
    const struct rg_shadow *library = function ? NULL : library_of(kernel);
    const struct rg_shadow *module =
        library ? rg_handle_shadow(RG_KIND_MODULE, rg_found_by_key(library->library.modules, context)) : NULL;
    if (module)
        function = rg_found_by_name(module->module.functions, kernel->name);
    rg_found_unlock();
    return (CUfunction)function;
}

/* Settings by number: attributes by theirs. */
enum { CACHE_CONFIG = CU_FUNC_ATTRIBUTE_MAX, OF_DEVICE };
static_assert(OF_DEVICE < RG_SETTINGS, "room for all settings of a function");

/* What is set of a kernel holds on one device; of another one nothing is known. */
static bool is_set(struct rg_function *function, const struct change *change)
{
    return rg_setting_is(&function->settings, change->which, (unsigned)change->value) &&
           rg_setting_is(&function->settings, OF_DEVICE, (unsigned)change->device);
}

/* What the worker says to a change; if it has been made, it is noted. */
static CUresult noted(CUresult status, struct rg_function *function, const struct change *change)
{
    if (status != CUDA_SUCCESS)
        return status;
    note_change(function, change);
    if (!rg_setting_is(&function->settings, OF_DEVICE, (unsigned)change->device))
        for (unsigned i = 0; i < OF_DEVICE; i++)
            rg_setting_forget(&function->settings, i);
    rg_setting_note(&function->settings, change->which, (unsigned)change->value);
    rg_setting_note(&function->settings, OF_DEVICE, (unsigned)change->device);
    return CUDA_SUCCESS;
}

/* A change of a function, in the current context. */
static CUresult change_function(CUfunction handle, struct change *change, struct rg_function **function)
{
    RG_TRY(about((uint64_t)handle, false, change, function));
    change->device = rg_device_current();
    change->context = context_of((uint64_t)handle, *function);
    return rg_call_allowed(RG_TRAIT_CONTEXT);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct rg_function *function;
    struct change change = {.which = attrib, .attribute = true, .value = value};
    RG_TRY(change_function(hfunc, &change, &function));
    return is_set(function, &change)
               ? CUDA_SUCCESS
               : noted(rg_op_cuFuncSetAttribute(hfunc, attrib, value), function, &change);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    struct rg_function *function;
    const struct change change = {.which = attrib, .attribute = true, .value = val, .device = dev};
    RG_TRY(about((uint64_t)kernel, true, &val, &function));
    if (!rg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return is_set(function, &change)
               ? CUDA_SUCCESS
               : noted(rg_op_cuKernelSetAttribute(attrib, val, kernel, dev), function, &change);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct rg_function *function;
    struct change change = {.which = CACHE_CONFIG, .value = (int)config};
    RG_TRY(change_function(hfunc, &change, &function));
    if ((unsigned)config & ~3u)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_set(function, &change))
        return CUDA_SUCCESS;
    if (!atomic_load_explicit(&function->launched, memory_order_relaxed))
        RG_TRY(
            rg_function_load_first(hfunc, function, change.context ? change.context : rg_context_current()));
    return noted(rg_op_cuFuncSetCacheConfig(hfunc, config), function, &change);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct rg_function *function;
    const struct change change = {.which = CACHE_CONFIG, .value = (int)config, .device = dev};
    RG_TRY(about((uint64_t)kernel, true, &config, &function));
    if ((unsigned)config & ~3u)
        return CUDA_ERROR_INVALID_VALUE;
    return is_set(function, &change)
               ? CUDA_SUCCESS
               : noted(rg_op_cuKernelSetCacheConfig(kernel, config, dev), function, &change);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct rg_function *shadow;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    RG_TRY(about((uint64_t)function, false, state, &shadow));
    if (rg_optimise[RG_OPT_QUERY_CACHE] && atomic_load_explicit(&shadow->loaded, memory_order_relaxed)) {
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    }
    CUresult status = rg_op_cuFuncIsLoaded(state, function);
    if (status == CUDA_SUCCESS && *state == CU_FUNCTION_LOADING_STATE_LOADED)
        atomic_store_explicit(&shadow->loaded, true, memory_order_relaxed);
    return status;
}
