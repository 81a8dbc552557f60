/* module.c - modules and libraries made of images (image.h), variables found in them. */
#include "server/api/module.h"
#include "generated/server/execute.h"
#include "server/api/jit_options.h"
#include "server/images/image.h"
#include "server/images/layouts.h"
#include "server/shares/worker/share.h"

#include <stdlib.h>
#include <string.h>

/* --- loading -------------------------------------------------------------------------------------------- */

struct load {
    struct rg_image *image;
    struct rg_image_code code;
    struct rg_jit_options jit;
    char *info, *error;
    size_t info_size, error_size;
};

/* Takes the image and makes ready what the driver is called with, out of order. */
static CUresult begin_load(struct rg_request *request, struct load *load, uint64_t id, unsigned count,
                           const CUjit_option *options, const unsigned long long *values, size_t info_size,
                           size_t error_size)
{
    memset(load, 0, sizeof *load);
    struct rg_image *image = load->image = rg_image_take(request->worker, id);
    if (!image)
        return CUDA_ERROR_INVALID_IMAGE;
    rg_request_go_out_of_order(request);
    RG_TRY(rg_image_code(request, image, RG_IMAGE_MODULE, &load->code));
    RG_TRY(rg_jit_options_read(request, &load->jit, count, options, values));
    load->info_size = rg_jit_log_size(info_size);
    load->error_size = rg_jit_log_size(error_size);
    load->info = rg_request_memory(request, load->info_size + 1);
    load->error = load->info ? rg_request_memory(request, load->error_size + 1) : NULL;
    if (!load->error)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_jit_options_add_logs(&load->jit, load->info, load->info_size, load->error, load->error_size);
    return CUDA_SUCCESS;
}

/* Answers with the logs, whatever came of it; the image has served its purpose. */
static void end_load(struct rg_request *request, struct load *load)
{
    rg_jit_output_log(request, load->info, load->info_size);
    rg_jit_output_log(request, load->error, load->error_size);
    rg_image_free(request->worker, load->image);
}

static CUresult load_module(const struct load *load, CUmodule *out)
{
    struct rg_jit_options own = load->jit; /* the driver writes to what it is given */
    return own.count ? rg_driver.cuModuleLoadDataEx(out, load->code.data, own.count, own.options, own.values)
                     : rg_driver.cuModuleLoadData(out, load->code.data);
}

CUresult rg_execute_rgModuleLoad(struct rg_request *request, uint64_t module, unsigned long long image,
                                 unsigned int count, const CUjit_option *options,
                                 const unsigned long long *values, size_t info_size, size_t error_size)
{
    struct load load;
    CUmodule made = NULL;
    const uint64_t held = rg_share_held_in_all();
    CUresult result = begin_load(request, &load, image, count, options, values, info_size, error_size);
    if (result == CUDA_SUCCESS) {
        result = load_module(&load, &made);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && rg_worker_reclaim(request))
            result = load_module(&load, &made);
    }
    if (result == CUDA_SUCCESS) {
        rg_layouts_loaded(request, made, load.image, &load.code, request->thread->context);
        rg_request_new(request, RG_KIND_MODULE, module, made);
        request->memory_taken = rg_share_taken_since(held);
    }
    end_load(request, &load);
    return result;
}

static CUresult load_library(const struct load *load, CUlibrary *out)
{
    struct rg_jit_options own = load->jit;
    return rg_driver.cuLibraryLoadData(out, load->code.data, own.count ? own.options : NULL,
                                       own.count ? own.values : NULL, own.count, NULL, NULL, 0);
}

CUresult rg_execute_rgLibraryLoad(struct rg_request *request, uint64_t library, unsigned long long image,
                                  unsigned int count, const CUjit_option *options,
                                  const unsigned long long *values, unsigned int library_count,
                                  const CUlibraryOption *library_options,
                                  const unsigned long long *library_values, size_t info_size,
                                  size_t error_size)
{
    (void)library_values;
    struct load load;
    CUlibrary made = NULL;
    const uint64_t held = rg_share_held_in_all();
    CUresult result = begin_load(request, &load, image, count, options, values, info_size, error_size);
    /* That the image stays where it is was the client's promise to itself; it is freed here. */
    for (unsigned i = 0; i < library_count && result == CUDA_SUCCESS; i++)
        if (library_options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = load_library(&load, &made);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && rg_worker_reclaim(request))
            result = load_library(&load, &made);
    }
    if (result == CUDA_SUCCESS) {
        rg_layouts_loaded(request, made, load.image, &load.code, 0);
        rg_request_new(request, RG_KIND_LIBRARY, library, made);
        request->memory_taken = rg_share_taken_since(held);
    }
    end_load(request, &load);
    return result;
}

/* --- variables ------------------------------------------------------------------------------------------ */

/* The managed memory that holds `address`; size 0: it is no managed memory. */
static void managed_memory_at(CUdeviceptr address, CUdeviceptr *start, size_t *size)
{
    unsigned managed = 0;
    *start = 0;
    *size = 0;
    if (rg_driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) != CUDA_SUCCESS ||
        !managed || rg_driver.cuMemGetAddressRange_v2(start, size, address) != CUDA_SUCCESS)
        *size = 0;
}

CUresult rg_module_output_variable(struct rg_request *request, CUdeviceptr address, size_t bytes)
{
    CUdeviceptr start;
    size_t size;
    managed_memory_at(address, &start, &size);
    const uint64_t answer[] = {address, bytes, start, size};
    rg_request_output(request, answer, sizeof answer);
    return request->result;
}

CUresult rg_execute_rgModuleVariable(struct rg_request *request, CUmodule module, const char *name)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    rg_request_go_out_of_order(request);
    CUresult result = rg_driver.cuModuleGetGlobal_v2(&address, &bytes, module, name);
    return result == CUDA_SUCCESS ? rg_module_output_variable(request, address, bytes) : result;
}

CUresult rg_execute_rgLibraryVariable(struct rg_request *request, CUlibrary library, const char *name,
                                      unsigned int managed)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUresult (*get)(CUdeviceptr *, size_t *, CUlibrary, const char *) =
        managed ? rg_driver.cuLibraryGetManaged : rg_driver.cuLibraryGetGlobal;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    rg_request_go_out_of_order(request);
    CUresult result = get(&address, &bytes, library, name);
    return result == CUDA_SUCCESS ? rg_module_output_variable(request, address, bytes) : result;
}
