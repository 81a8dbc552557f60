/*
 * module.c - modules and libraries: loading, and finding what is in them. What has been found is remembered, so a
 * second look-up asks nobody.
 */
#include "client/address_map.h"
#include "client/call.h"
#include "client/context.h"
#include "client/device.h"
#include "client/function.h"
#include "client/handle.h"
#include "client/image.h"
#include "client/lane.h"
#include "client/managed.h"
#include "client/owner.h"
#include "client/spread.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

/* The log's buffers travel in one answer. */
#define LOG_MAX (RG_REPLY_INLINE / 2 - 64)

static size_t log_size(size_t size)
{
    return size < LOG_MAX ? size : LOG_MAX;
}

/* --- loading ---------------------------------------------------------------------------------------------- */

static CUresult load_module(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    uint64_t id;
    status = rg_jit_read(&jit, count, options, values);
    if (status == CUDA_SUCCESS)
        status = rg_image_send(image, &id);
    if (status != CUDA_SUCCESS)
        return status;
    CUmodule handle = (CUmodule)rg_handle_create(RG_KIND_MODULE);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_MODULE, (uint64_t)handle)->module.context = rg_context_current();
    struct rg_call reply;
    status = rg_op_rgModuleLoad(&handle, id, jit.count, jit.options, jit.values, log_size(jit.info_size),
                                log_size(jit.error_size), &reply);
    rg_jit_answer(&jit, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS)
        *module = handle;
    else
        rg_handle_delete(RG_KIND_MODULE, (uint64_t)handle);
    return status;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load_module(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    return load_module(module, image, numOptions, options, optionValues);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return load_module(module, fatCubin, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    status = rg_image_read_file(fname, &image, &size);
    if (status != CUDA_SUCCESS)
        return status;
    status = load_module(module, image, 0, NULL, NULL);
    free(image);
    return status;
}

/* What was found in a module ends with it. */
static void forget_found(struct rg_shadow *shadow)
{
    rg_found_lock();
    rg_found_free(&shadow->module.functions, RG_KIND_FUNCTION);
    rg_found_free(&shadow->module.textures, RG_KIND_TEXREF);
    rg_found_free(&shadow->module.surfaces, RG_KIND_SURFREF);
    rg_found_unlock();
}

CUresult cuModuleUnload(CUmodule hmod)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_managed_drop_owner((uint64_t)hmod);
    status = rg_op_cuModuleUnload(hmod);
    forget_found(shadow);
    rg_handle_delete(RG_KIND_MODULE, (uint64_t)hmod);
    return status;
}

void rg_modules_context_ended(uint64_t context)
{
    enum { AT_ONCE = 256 };
    uint64_t modules[AT_ONCE];
    for (uint64_t after = 0;;) {
        const size_t n = rg_handle_list(RG_KIND_MODULE, after, modules, AT_ONCE);
        for (size_t i = 0; i < n; i++) {
            struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, modules[i]);
            if (!shadow || shadow->module.context != context || shadow->module.owner)
                continue;
            forget_found(shadow);
            rg_handle_delete(RG_KIND_MODULE, modules[i]);
        }
        if (n < AT_ONCE)
            return;
        after = modules[n - 1];
    }
}

/* Options of libraries: only the one that promises to keep the image means nothing here, since it is copied. */
static CUresult read_library_options(unsigned count, const CUlibraryOption *options)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return rg_unsupported("cuLibraryLoadData with CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE");
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!library || !code || (numLibraryOptions && !libraryOptions))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    uint64_t id;
    status = rg_jit_read(&jit, numJitOptions, jitOptions, jitOptionsValues);
    if (status == CUDA_SUCCESS)
        status = read_library_options(numLibraryOptions, libraryOptions);
    if (status == CUDA_SUCCESS)
        status = rg_image_send(code, &id);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_image_copy *copy;
    status = rg_spread_keep(code, &copy);
    CUlibrary handle = (CUlibrary)(status == CUDA_SUCCESS ? rg_handle_create(RG_KIND_LIBRARY) : 0);
    if (!handle) {
        free(copy);
        return status == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    struct rg_call reply;
    status = rg_op_rgLibraryLoad(&handle, id, jit.count, jit.options, jit.values, 0, NULL, NULL,
                                 log_size(jit.info_size), log_size(jit.error_size), &reply);
    rg_jit_answer(&jit, &reply);
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS) {
        rg_spread_note((uint64_t)handle, copy, &jit);
        *library = handle;
    } else {
        free(copy);
        rg_handle_delete(RG_KIND_LIBRARY, (uint64_t)handle);
    }
    return status;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!library || !fileName)
        return CUDA_ERROR_INVALID_VALUE;
    void *image;
    size_t size;
    status = rg_image_read_file(fileName, &image, &size);
    if (status != CUDA_SUCCESS)
        return status;
    status = cuLibraryLoadData(library, image, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                               libraryOptionValues, numLibraryOptions);
    free(image);
    return status;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_managed_drop_owner((uint64_t)library);
    status = rg_spread_unload((uint64_t)library, rg_op_cuLibraryUnload);
    rg_found_lock();
    for (struct rg_found_function *found = shadow->library.kernels; found; found = found->next) {
        struct rg_shadow *kernel = rg_handle_shadow(RG_KIND_KERNEL, found->handle);
        if (kernel)
            rg_found_free(&kernel->function.by_context, RG_KIND_FUNCTION);
    }
    rg_found_free(&shadow->library.kernels, RG_KIND_KERNEL);
    rg_found_free(&shadow->library.modules, RG_KIND_MODULE);
    rg_found_unlock();
    rg_handle_delete(RG_KIND_LIBRARY, (uint64_t)library);
    return status;
}

/* --- functions and kernels -------------------------------------------------------------------------------- */

/* Ends a look-up whose answer describes the function: keeps it under `handle`, adds it to the list. */
static CUresult keep(enum rg_kind kind, uint64_t handle, struct rg_call *reply, CUresult status,
                     const char *name, uint64_t owner, struct rg_found_function **list)
{
    if (status == CUDA_SUCCESS) {
        struct rg_shadow *shadow = rg_handle_shadow(kind, handle);
        if (!rg_function_read(&reply->reply, &shadow->function, name, owner))
            status = reply->reply.bad ? rg_call_outputs_read(reply) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    rg_call_done(reply);
    if (status == CUDA_SUCCESS) {
        rg_found_lock();
        (void)rg_found_add(list, name, 0, handle); /* without memory it is merely asked for again */
        rg_found_unlock();
    } else {
        rg_handle_delete(kind, handle);
    }
    return status;
}

/* A function of a module or kernel of a library by name: known, or asked for and kept. */
static CUresult find_by_name(enum rg_kind kind, uint64_t owner, const char *name,
                             struct rg_found_function **list, uint64_t *out)
{
    rg_found_lock();
    uint64_t handle = rg_found_by_name(*list, name);
    rg_found_unlock();
    if (handle) {
        *out = handle;
        return CUDA_SUCCESS;
    }
    handle = rg_handle_create(kind);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    CUresult status =
        kind == RG_KIND_FUNCTION
            ? rg_op_rgModuleGetFunction(&(CUfunction){(CUfunction)handle}, (CUmodule)owner, name, &reply)
            : rg_op_rgLibraryGetKernel(&(CUkernel){(CUkernel)handle}, (CUlibrary)owner, name, &reply);
    status = keep(kind, handle, &reply, status, name, owner, list);
    if (status == CUDA_SUCCESS)
        *out = handle;
    return status;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)hmod);
    return shadow ? find_by_name(RG_KIND_FUNCTION, (uint64_t)hmod, name, &shadow->module.functions,
                                 (uint64_t *)hfunc)
                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    return shadow ? find_by_name(RG_KIND_KERNEL, (uint64_t)library, name, &shadow->library.kernels,
                                 (uint64_t *)pKernel)
                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_KERNEL, (uint64_t)kernel);
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current();
    rg_found_lock();
    uint64_t known = rg_found_by_key(shadow->function.by_context, context);
    rg_found_unlock();
    if (known) {
        *pFunc = (CUfunction)known;
        return CUDA_SUCCESS;
    }
    CUfunction function = (CUfunction)rg_handle_create(RG_KIND_FUNCTION);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    status = rg_op_rgKernelGetFunction(&function, kernel, &reply);
    uint64_t actual = status == CUDA_SUCCESS ? rg_get_u64(&reply.reply) : 0;
    status = rg_handle_found(RG_KIND_FUNCTION, (uint64_t)function, actual, status);
    if (status == CUDA_SUCCESS) {
        struct rg_shadow *made = rg_handle_shadow(RG_KIND_FUNCTION, actual);
        const int limit = shadow->function.max_dynamic_shared;
        if (made->function.name == NULL &&
            !rg_function_read(&reply.reply, &made->function, shadow->function.name, shadow->function.owner))
            status = reply.reply.bad ? rg_call_outputs_read(&reply) : CUDA_ERROR_OUT_OF_MEMORY;
        made->function.max_dynamic_shared = limit;
    }
    rg_call_done(&reply);
    if (status == CUDA_SUCCESS) {
        rg_found_lock();
        (void)rg_found_add(&shadow->function.by_context, NULL, context, actual);
        rg_found_unlock();
        *pFunc = (CUfunction)actual;
    }
    return status;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)library);
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t context = rg_context_current();
    rg_found_lock();
    CUmodule module = (CUmodule)rg_found_by_key(shadow->library.modules, context);
    rg_found_unlock();
    if (!module) {
        module = (CUmodule)rg_handle_create(RG_KIND_MODULE);
        if (!module)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const uint64_t proposed = (uint64_t)module;
        status = rg_op_cuLibraryGetModule(&module, library);
        status = rg_handle_found(RG_KIND_MODULE, proposed, (uint64_t)module, status);
        if (status != CUDA_SUCCESS)
            return status;
        struct rg_module *made = &rg_handle_shadow(RG_KIND_MODULE, (uint64_t)module)->module;
        made->context = context;
        made->owner = (uint64_t)library;
        rg_found_lock();
        (void)rg_found_add(&shadow->library.modules, NULL, context, (uint64_t)module);
        rg_found_unlock();
    }
    *pMod = module;
    return CUDA_SUCCESS;
}

/* --- enumeration ------------------------------------------------------------------------------------------ */

enum { ENUMERATE_MAX = 4096 };

/* Offers `count` handles for what an enumeration finds, and reads the answer: id, name, info of each. */
static CUresult enumerate(enum rg_kind kind, uint64_t owner, struct rg_found_function **list, uint64_t *out,
                          unsigned count)
{
    CUresult status = CUDA_SUCCESS;
    unsigned long long *ids = calloc(count, sizeof *ids);
    if (!ids)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned offered = 0, n = 0;
    while (offered < count && (ids[offered] = rg_handle_create(kind)) != 0)
        offered++;
    if (offered < count) {
        status = CUDA_ERROR_OUT_OF_MEMORY;
        goto out;
    }
    struct rg_call reply;
    status = kind == RG_KIND_FUNCTION ? rg_op_rgModuleEnumerate((CUmodule)owner, count, ids, &reply)
                                      : rg_op_rgLibraryEnumerate((CUlibrary)owner, count, ids, &reply);
    struct rg_reader *in = &reply.reply;
    n = status == CUDA_SUCCESS ? rg_get_u32(in) : 0;
    for (unsigned i = 0; i < n && i < count && status == CUDA_SUCCESS; i++) {
        out[i] = rg_get_u64(in);
        const char *name = rg_get_string(in, RG_NAME_MAX);
        struct rg_shadow *shadow = rg_handle_shadow(kind, out[i]);
        struct rg_function ignored;
        bool fresh = shadow && !shadow->function.name;
        if (!name || !shadow || !rg_function_read(in, fresh ? &shadow->function : &ignored, name, owner)) {
            status = in->bad ? rg_call_outputs_read(&reply) : CUDA_ERROR_UNKNOWN;
        } else if (fresh) {
            rg_found_lock();
            (void)rg_found_add(list, name, 0, out[i]);
            rg_found_unlock();
        } else {
            free(ignored.name);
            free(ignored.params);
        }
    }
    rg_call_done(&reply);
out:
    for (unsigned i = 0; i < offered; i++) { /* those that were not taken */
        struct rg_shadow *shadow = rg_handle_shadow(kind, ids[i]);
        if (shadow && !shadow->function.name)
            rg_handle_delete(kind, ids[i]);
    }
    free(ids);
    return status;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)mod);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!functions || !numFunctions || numFunctions > ENUMERATE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enumerate(RG_KIND_FUNCTION, (uint64_t)mod, &shadow->module.functions, (uint64_t *)functions,
                     numFunctions);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LIBRARY, (uint64_t)lib);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!kernels || !numKernels || numKernels > ENUMERATE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enumerate(RG_KIND_KERNEL, (uint64_t)lib, &shadow->library.kernels, (uint64_t *)kernels,
                     numKernels);
}

/* --- variables -------------------------------------------------------------------------------------------- */

/* What the worker says of a variable. */
struct variable {
    CUdeviceptr address;
    size_t bytes;
    CUdeviceptr start; /* the managed memory that it is part of */
    size_t size;       /* 0: none */
};

/* A variable's memory is the context's: known from here on, so that copies to it are told from host memory. */
static CUresult note_variable(uint64_t owner, const struct variable *variable)
{
    struct rg_range range = {.start = variable->address,
                             .size = variable->bytes,
                             .kind = variable->size ? RG_RANGE_MANAGED : RG_RANGE_GLOBAL,
                             .context = rg_context_current(),
                             .device = rg_device_current()};
    if (variable->size) {
        CUresult status = rg_managed_variables(owner, variable->start, variable->size);
        return status == CUDA_SUCCESS && !rg_map_add(&range) ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    if (variable->bytes && rg_map_reserve(rg_session_current()->number, variable->address, variable->bytes))
        (void)rg_map_add(&range);
    return CUDA_SUCCESS;
}

/* A variable of a module or library by name. */
static CUresult find_variable(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                              CUdeviceptr *dptr, size_t *bytes)
{
    CUresult status = rg_call_allowed(RG_CALL_CONTEXT);
    if (status != CUDA_SUCCESS)
        return status;
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_handle_known(kind, owner))
        return CUDA_ERROR_INVALID_HANDLE;
    struct variable v = {0};
    status = kind == RG_KIND_MODULE
                 ? rg_op_rgModuleVariable((CUmodule)owner, name, &v.address, &v.bytes, &v.start, &v.size)
                 : rg_op_rgLibraryVariable((CUlibrary)owner, name, managed, &v.address, &v.bytes, &v.start,
                                           &v.size);
    if (status == CUDA_SUCCESS)
        status = note_variable(owner, &v);
    if (status != CUDA_SUCCESS)
        return status;
    if (dptr)
        *dptr = v.address;
    if (bytes)
        *bytes = v.bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    return find_variable(RG_KIND_MODULE, (uint64_t)hmod, name, false, dptr, bytes);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, false, dptr, bytes);
}

/* Without a context, managed variables are those of the first device's primary one, which is kept. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    if (rg_context_current() || rg_call_allowed(0) != CUDA_SUCCESS)
        return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    CUcontext primary;
    unsigned flags;
    int active = 0;
    CUresult status = cuDevicePrimaryCtxGetState(0, &flags, &active);
    if (status == CUDA_SUCCESS)
        status = cuDevicePrimaryCtxRetain(&primary, 0);
    struct rg_lane *lane = rg_lane_current();
    if (status != CUDA_SUCCESS)
        return status;
    if (!lane || !rg_lane_push_context(lane, (uint64_t)primary))
        return CUDA_ERROR_OUT_OF_MEMORY;
    status = find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    lane->n_contexts--;
    if (active)
        (void)cuDevicePrimaryCtxRelease_v2(0);
    return status;
}

/* Functions that host and device may both call by one address: there is no such address on two machines. */
CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    CUresult status = rg_call_allowed(0);
    if (status != CUDA_SUCCESS)
        return status;
    if (!rg_handle_known(RG_KIND_LIBRARY, (uint64_t)library))
        return CUDA_ERROR_INVALID_HANDLE;
    return fptr && symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
