/*
 * link.c - cuLink: PTX modules added one by one and linked into one image that can be loaded.
 *
 * What is added is kept as text; cuLinkComplete proves that it links and gives out an image that the loading
 * calls take. Machine code cannot be linked in. Logs go to the buffers given at cuLinkCreate, or to those of
 * the call that fails.
 */
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "common/cuda/image.h"
#include "common/cuda/image_file.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/module/module.h"

struct link_state {
    struct sg_object object;
    pthread_mutex_t lock;
    struct sg_load_options jit;
    struct sg_sources sources;
    void *image; /* given out by cuLinkComplete; lives until the state is destroyed */
};

static void finish_link(struct sg_object *object)
{
    struct link_state *state = (struct link_state *)object;
    sg_sources_fini(&state->sources);
    pthread_mutex_destroy(&state->lock);
    free(state->image);
    free(state);
}

CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *options, void **values, CUlinkState *out)
{
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_load_options jit;
    RG_TRY(sg_jit_options(&jit, n, options, values));
    struct link_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state->jit = jit;
    pthread_mutex_init(&state->lock, NULL);
    sg_handle_add(&state->object, SG_KIND_LINK, context, finish_link);
    *out = (CUlinkState)(void *)state;
    return CUDA_SUCCESS;
}

/* Adds `size` bytes of text, or an image, which ends within them. */
static CUresult add(struct link_state *state, CUjitInputType type, const void *data, size_t size,
                    struct sg_text *log)
{
    struct rg_cuda_image image;
    switch (type) {
    case CU_JIT_INPUT_PTX:
        return sg_sources_add_text(&state->sources, data, size);
    case CU_JIT_INPUT_CUBIN:
        if (rg_cuda_image_identify_bytes(data, size, &image) == RG_CUDA_IMAGE_ELF) /* it may carry PTX */
            return sg_sources_add_found(&state->sources, &image, log);
        sg_log_say(log, "what was added as a cubin is none");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case CU_JIT_INPUT_FATBINARY:
        (void)rg_cuda_image_identify_sized(data, size, &image);
        return sg_sources_add_found(&state->sources, &image, log);
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        return sg_sources_add_host_code(&state->sources, data, size, log);
    case CU_JIT_INPUT_NVVM:
        sg_log_say(log, "intermediate code (LTO-IR) cannot be linked here: only PTX and fat binaries can");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int n, CUjit_option *options, void **values)
{
    struct sg_load_options jit;
    (void)name;
    SG_IMPLY_CONTEXT(SG_KIND_LINK, handle);
    SG_REF(struct link_state) state = sg_handle_get(handle, SG_KIND_LINK);
    SG_CONTEXT_OR_RETURN(context);
    if (state == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (data == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_jit_options(&jit, n, options, values));
    struct sg_text log = {0};
    pthread_mutex_lock(&state->lock);
    CUresult result = state->image != NULL ? CUDA_ERROR_INVALID_VALUE : add(state, type, data, size, &log);
    if (result != CUDA_SUCCESS)
        sg_jit_report(n > 0 ? &jit : &state->jit, &log, true);
    pthread_mutex_unlock(&state->lock);
    sg_text_fini(&log);
    return result;
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path, unsigned int n,
                          CUjit_option *options, void **values)
{
    SG_IMPLY_CONTEXT(SG_KIND_LINK, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_CLEANUP_FREE void *data = NULL;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(path, &data, &size));
    return cuLinkAddData_v2(handle, type, data, size + 1, path, n, options, values); /* with its NUL */
}

CUresult cuLinkComplete(CUlinkState handle, void **image, size_t *size)
{
    SG_IMPLY_CONTEXT(SG_KIND_LINK, handle);
    SG_REF(struct link_state) state = sg_handle_get(handle, SG_KIND_LINK);
    SG_CONTEXT_OR_RETURN(context);
    if (state == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_text log = {0};
    struct sg_program *program = NULL;
    size_t bytes = 0;
    pthread_mutex_lock(&state->lock);
    CUresult result = state->sources.n == 0 || state->image != NULL
                          ? CUDA_ERROR_INVALID_VALUE
                          : sg_sources_program(&state->sources, &log, &program);
    sg_program_destroy(program);
    if (result == CUDA_SUCCESS)
        result = sg_sources_bundle(&state->sources, &state->image, &bytes);
    sg_jit_report(&state->jit, &log, result != CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
        *image = state->image;
        if (size != NULL)
            *size = bytes;
    }
    pthread_mutex_unlock(&state->lock);
    sg_text_fini(&log);
    return result;
}

CUresult cuLinkDestroy(CUlinkState handle)
{
    RG_TRY(sg_enter());
    if (!sg_handle_remove(handle, SG_KIND_LINK))
        return CUDA_ERROR_INVALID_HANDLE;
    sg_release((struct sg_object *)(void *)handle);
    return CUDA_SUCCESS;
}
