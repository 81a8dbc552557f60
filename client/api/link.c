/*
 * link.c - linking of device code. The worker's driver links; its logs are copied into the application's
 * buffers with every answer, the result into memory that lives as long as the state.
 */
#include "client/cache/image.h"
#include "client/cache/jit_options.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/region.h"
#include "client/core/thread.h"
#include "common/cuda/image.h"
#include "common/cuda/image_file.h"
#include "generated/client/operations.h"

#include <stdlib.h>

/* A linker state, as its shadow points to it. */
struct rg_linker {
    struct rg_jit jit; /* the options of its creation: where the logs go */
    void *result;
};

static struct rg_linker *link_of(CUlinkState state)
{
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_LINK, (uint64_t)state);
    return shadow ? shadow->link.state : NULL;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!stateOut)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_linker *link = calloc(1, sizeof *link);
    CUlinkState state = (CUlinkState)(link ? rg_handle_create(RG_KIND_LINK) : 0);
    if (!state) {
        free(link);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rg_handle_shadow(RG_KIND_LINK, (uint64_t)state)->link =
        (struct rg_link_state){.context = rg_context_current_owner(), .state = link};
    CUresult status = rg_jit_read(&link->jit, numOptions, options, optionValues);
    if (status == CUDA_SUCCESS)
        status = rg_op_rgLinkCreate(&state, link->jit.count, link->jit.options, link->jit.values,
                                    link->jit.info_size, link->jit.error_size);
    if (status != CUDA_SUCCESS) {
        rg_handle_delete(RG_KIND_LINK, (uint64_t)state);
        free(link);
        return status;
    }
    *stateOut = state;
    return CUDA_SUCCESS;
}

/* Of a wrapper, what it points to is sent: the worker has nothing there. */
static CUresult send_input(CUjitInputType type, const void *data, size_t size, uint64_t *id)
{
    struct rg_cuda_image image;
    struct rg_image_view *view;
    if (type != CU_JIT_INPUT_FATBINARY ||
        rg_cuda_image_identify_sized(data, size, &image) == RG_CUDA_IMAGE_UNKNOWN || !image.wrapper_version)
        return rg_image_send_bytes(data, size, id);
    RG_TRY(rg_image_view(data, &view));
    CUresult status = rg_image_send(view, RG_IMAGE_PASSES, id);
    free(view);
    return status;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_linker *link = link_of(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!data || !size || size > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_jit jit;
    uint64_t id;
    struct rg_call reply;
    RG_TRY(rg_jit_read(&jit, numOptions, options, optionValues));
    RG_TRY(send_input(type, data, size, &id));
    CUresult status = rg_op_rgLinkAdd(state, type, id, name, jit.count, jit.options, jit.values, &reply);
    rg_jit_answer(&link->jit, &reply.reply);
    rg_jit_done(&jit);
    rg_call_done(&reply);
    return status;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                          CUjit_option *options, void **optionValues)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    void *data;
    size_t size;
    RG_TRY(rg_cuda_image_read_file(path, &data, &size));
    CUresult status = cuLinkAddData_v2(state, type, data, size, path, numOptions, options, optionValues);
    free(data);
    return status;
}

/* Fetches the result, `size` bytes, in parts. */
static CUresult fetch(CUlinkState state, unsigned char *to, size_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < size && status == CUDA_SUCCESS; at += RG_BULK_MAX) {
        const size_t part = size - at < RG_BULK_MAX ? size - at : RG_BULK_MAX;
        struct rg_call reply;
        const struct rg_region into = rg_region_line(RG_REGION_HOST, (uintptr_t)(to + at), part);
        status = rg_op_rgLinkRead(state, at, part, &reply, &into);
        rg_call_done(&reply);
    }
    return status;
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    struct rg_linker *link = link_of(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!cubinOut)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_call reply;
    CUresult status = rg_op_rgLinkComplete(state, &reply);
    rg_jit_answer(&link->jit, &reply.reply);
    rg_jit_done(&link->jit);
    size_t size = status == CUDA_SUCCESS ? rg_get_u64(&reply.reply) : 0;
    if (status == CUDA_SUCCESS && (reply.reply.bad || size > RG_IMAGE_MAX))
        status = CUDA_ERROR_UNKNOWN;
    rg_call_done(&reply);
    if (status != CUDA_SUCCESS)
        return status;
    free(link->result);
    link->result = calloc(1, size + 1); /* text is ended */
    if (!link->result)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_TRY(fetch(state, link->result, size));
    *cubinOut = link->result;
    if (sizeOut)
        *sizeOut = size;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    RG_TRY(rg_call_allowed(0));
    struct rg_linker *link = link_of(state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    const bool orphan = rg_handle_orphaned(RG_KIND_LINK, (uint64_t)state); /* it went with its context */
    const CUresult status = orphan ? CUDA_SUCCESS : rg_op_cuLinkDestroy(state);
    rg_handle_delete(RG_KIND_LINK, (uint64_t)state);
    free(link->result);
    free(link);
    return status;
}
