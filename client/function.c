/*
 * function.c - functions and kernels: names, parameters and attributes, known since they were found.
 */
#include "client/function.h"

#include "client/call.h"
#include "client/context.h"
#include "client/device.h"
#include "client/kept.h"
#include "client/optimisations.h"
#include "client/profile/profile.h"
#include "client/owner.h"
#include "common/limits.h"
#include "generated/client/operations.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void rg_found_lock(void)
{
    pthread_mutex_lock(&lock);
}

void rg_found_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

uint64_t rg_found_by_name(const struct rg_found_function *list, const char *name)
{
    for (; list; list = list->next)
        if (strcmp(list->name, name) == 0)
            return list->handle;
    return 0;
}

uint64_t rg_found_by_key(const struct rg_found_function *list, uint64_t key)
{
    for (; list; list = list->next)
        if (list->key == key)
            return list->handle;
    return 0;
}

bool rg_found_add(struct rg_found_function **list, const char *name, uint64_t key, uint64_t handle)
{
    size_t length = name ? strlen(name) : 0;
    struct rg_found_function *entry = malloc(sizeof *entry + length + 1);
    if (!entry)
        return false;
    *entry = (struct rg_found_function){.next = *list, .handle = handle, .key = key};
    memcpy(entry->name, name ? name : "", length + 1);
    *list = entry;
    return true;
}

/* What a function's shadow owns is not freed: another thread may be reading it; it is small and modules are few. */
void rg_found_free(struct rg_found_function **list, enum rg_kind kind)
{
    while (*list) {
        struct rg_found_function *entry = *list;
        *list = entry->next;
        if (kind < RG_KIND_COUNT)
            rg_handle_delete(kind, entry->handle);
        free(entry);
    }
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
    *function = (struct rg_function){
        .name = own_name,
        .owner = owner,
        .context = rg_context_current(),
        .servers = 1u << rg_session_current()->number,
        .info = info,
        .params = copy,
        .params_size = size,
        .device = rg_device_current() >= 0 ? rg_device_current() : 0,
    };
    memcpy(function->set, info.attributes, sizeof function->set);
    return true;
}

struct rg_function *rg_function_of(CUfunction function)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_FUNCTION, (uint64_t)function);
    if (!shadow)
        shadow = rg_handle_shadow(RG_KIND_KERNEL, (uint64_t)function);
    return shadow ? &shadow->function : NULL;
}

/* --- names, parameters, attributes ------------------------------------------------------------------------ */

/* The shadow of a function (or, for `kernel`, a kernel) for a question whose answer goes to `out`. */
static CUresult about(uint64_t handle, bool kernel, const void *out, struct rg_function **found)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
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
    return cuLibraryGetModule(hmod, (CUlibrary)function->owner);
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
    if (!rg_optimise[RG_OPT_SHADOW] || (unsigned)attribute >= RG_FUNCTION_ATTRIBUTES ||
        !(function->info.known & 1u << attribute) || (!is_constant(attribute) && function->changed))
        return false;
    *pi = function->info.attributes[attribute];
    rg_profile_saved(RG_OPT_SHADOW);
    return true;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, false, pi, &function);
    if (status != CUDA_SUCCESS || known_attribute(function, attrib, pi))
        return status;
    return rg_op_cuFuncGetAttribute(pi, attrib, hfunc);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)kernel, true, pi, &function);
    if (status != CUDA_SUCCESS)
        return status;
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

/* Something of a function has been set, and with it of the kernel that it is of and of that one's other functions. */
static void note_changed(struct rg_function *function)
{
    atomic_store(&function->changed, true);
    rg_found_lock();
    struct rg_shadow *library = library_of(function);
    struct rg_function *kernel =
        library ? rg_function_of((CUfunction)rg_found_by_name(library->library.kernels, function->name)) : NULL;
    if (kernel)
        atomic_store(&kernel->changed, true);
    for (struct rg_found_function *made = kernel ? kernel->by_context : NULL; made; made = made->next) {
        struct rg_function *other = rg_function_of((CUfunction)made->handle);
        if (other)
            atomic_store(&other->changed, true);
    }
    rg_found_unlock();
}

/* Settings by number: attributes by theirs. */
enum { CACHE_CONFIG = CU_FUNC_ATTRIBUTE_MAX, OF_DEVICE };
static_assert(OF_DEVICE < RG_SETTINGS, "room for all settings of a function");

/* What is set of a kernel holds on one device; of another one nothing is known. */
static bool is_set(struct rg_function *function, unsigned which, int value, CUdevice device)
{
    return rg_setting_is(&function->settings, which, (unsigned)value) &&
           rg_setting_is(&function->settings, OF_DEVICE, (unsigned)device);
}

static void note_setting(struct rg_function *function, unsigned which, int value, CUdevice device)
{
    if (!rg_setting_is(&function->settings, OF_DEVICE, (unsigned)device))
        for (unsigned i = 0; i < OF_DEVICE; i++)
            rg_setting_forget(&function->settings, i);
    rg_setting_note(&function->settings, which, (unsigned)value);
    rg_setting_note(&function->settings, OF_DEVICE, (unsigned)device);
}

/* What is set of a kernel is set of its functions, and the other way round it may be: the one does not know the other's. */
static void forget_related(const struct rg_function *function, uint64_t handle, unsigned which)
{
    uint64_t kernels[64];
    rg_found_lock();
    for (struct rg_found_function *made = function->by_context; made; made = made->next) {
        struct rg_function *other = rg_function_of((CUfunction)made->handle);
        if (other)
            rg_setting_forget(&other->settings, which);
    }
    size_t n =
        rg_handle_kind(handle) == RG_KIND_FUNCTION ? rg_handle_list(RG_KIND_KERNEL, 0, kernels, 64) : 0;
    while (n) {
        for (size_t i = 0; i < n; i++) {
            struct rg_shadow *kernel = rg_handle_shadow(RG_KIND_KERNEL, kernels[i]);
            for (struct rg_found_function *made = kernel ? kernel->function.by_context : NULL; made;
                 made = made->next)
                if (made->handle == handle)
                    rg_setting_forget(&kernel->function.settings, which);
        }
        n = n == 64 ? rg_handle_list(RG_KIND_KERNEL, kernels[63], kernels, 64) : 0;
    }
    rg_found_unlock();
}

/* A kernel's attribute holds for its functions too, which were made from it. */
static void note_set(struct rg_function *function, CUfunction_attribute attribute, int value)
{
    note_changed(function);
    if ((unsigned)attribute >= RG_FUNCTION_ATTRIBUTES)
        return;
    function->set[attribute] = value;
    rg_found_lock();
    for (struct rg_found_function *made = function->by_context; made; made = made->next) {
        struct rg_function *other = rg_function_of((CUfunction)made->handle);
        if (other)
            other->set[attribute] = value;
    }
    rg_found_unlock();
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, false, &value, &function);
    const CUdevice device = rg_device_current();
    if (status == CUDA_SUCCESS)
        status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS || is_set(function, attrib, value, device))
        return status;
    status = rg_op_cuFuncSetAttribute(hfunc, attrib, value);
    if (status != CUDA_SUCCESS)
        return status;
    note_set(function, attrib, value);
    forget_related(function, (uint64_t)hfunc, attrib);
    note_setting(function, attrib, value, device);
    return status;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)kernel, true, &val, &function);
    if (status == CUDA_SUCCESS && !rg_device(dev))
        status = CUDA_ERROR_INVALID_DEVICE;
    if (status != CUDA_SUCCESS || is_set(function, attrib, val, dev))
        return status;
    status = rg_op_cuKernelSetAttribute(attrib, val, kernel, dev);
    if (status != CUDA_SUCCESS)
        return status;
    note_set(function, attrib, val);
    forget_related(function, (uint64_t)kernel, attrib);
    note_setting(function, attrib, val, dev);
    return status;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)hfunc, false, &config, &function);
    const CUdevice device = rg_device_current();
    if (status == CUDA_SUCCESS)
        status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status == CUDA_SUCCESS && ((unsigned)config & ~3u))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS || is_set(function, CACHE_CONFIG, (int)config, device))
        return status;
    status = rg_op_cuFuncSetCacheConfig(hfunc, config);
    if (status != CUDA_SUCCESS)
        return status;
    forget_related(function, (uint64_t)hfunc, CACHE_CONFIG);
    note_setting(function, CACHE_CONFIG, (int)config, device);
    return status;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct rg_function *function;
    CUresult status = about((uint64_t)kernel, true, &config, &function);
    if (status == CUDA_SUCCESS && ((unsigned)config & ~3u))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS || is_set(function, CACHE_CONFIG, (int)config, dev))
        return status;
    status = rg_op_cuKernelSetCacheConfig(kernel, config, dev);
    if (status != CUDA_SUCCESS)
        return status;
    forget_related(function, (uint64_t)kernel, CACHE_CONFIG);
    note_setting(function, CACHE_CONFIG, (int)config, dev);
    return status;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct rg_function *shadow;
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status == CUDA_SUCCESS)
        status = about((uint64_t)function, false, state, &shadow);
    if (status != CUDA_SUCCESS)
        return status;
    if (rg_optimise[RG_OPT_SHADOW] && atomic_load_explicit(&shadow->loaded, memory_order_relaxed)) {
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    }
    status = rg_op_cuFuncIsLoaded(state, function);
    if (status == CUDA_SUCCESS && *state == CU_FUNCTION_LOADING_STATE_LOADED)
        atomic_store_explicit(&shadow->loaded, true, memory_order_relaxed);
    return status;
}
