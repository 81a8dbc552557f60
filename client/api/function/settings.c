/*
 * settings.c - what programs set of functions and kernels: attributes and preferences for caches.
 *
 * A setting that is known to be so already is not sent. One that the worker has made is noted at the handle by which it was made, and all
 * other handles of what is the same function, or may be, forget what they know of it.
 *
 * Any thread; what is known of other handles is changed under the lock of found objects.
 */
#include "client/cache/settings.h"
#include "client/api/function/function.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "generated/client/operations.h"

#include <assert.h>

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
    const struct rg_shadow *library = rg_function_library(changed);
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
    RG_TRY(rg_function_asked((uint64_t)handle, false, change, function));
    change->device = rg_device_current();
    change->context = rg_function_context((uint64_t)handle, *function);
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
    RG_TRY(rg_function_asked((uint64_t)kernel, true, &val, &function));
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
        RG_TRY(rg_function_load_first(hfunc, function,
                                      change.context ? change.context : rg_context_current_owner()));
    return noted(rg_op_cuFuncSetCacheConfig(hfunc, config), function, &change);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct rg_function *function;
    const struct change change = {.which = CACHE_CONFIG, .value = (int)config, .device = dev};
    RG_TRY(rg_function_asked((uint64_t)kernel, true, &config, &function));
    if ((unsigned)config & ~3u)
        return CUDA_ERROR_INVALID_VALUE;
    return is_set(function, &change)
               ? CUDA_SUCCESS
               : noted(rg_op_cuKernelSetCacheConfig(kernel, config, dev), function, &change);
}
