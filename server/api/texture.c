/*
 * texture.c - texture and surface objects and references: the resource's array comes as a handle beside its
 * description.
 */
#include "common/cuda/texel.h"
#include "generated/server/execute.h"

/* Bytes of a texel; of a format that no rows in memory have, the least that there can be. */
static uint64_t texel_size(CUarray_format format, unsigned channels)
{
    const uint64_t size = rg_texel_size(format, channels);
    return size ? size : channels;
}

static bool is_device_memory(struct rg_request *request, const CUDA_RESOURCE_DESC *rows)
{
    const uint64_t width = rg_request_bytes_of(
        rows->res.pitch2D.width, texel_size(rows->res.pitch2D.format, rows->res.pitch2D.numChannels));
    return rg_request_device_memory(request, rows->res.pitch2D.devPtr, 0, 1, 1) &&
           rg_request_device_memory(request, rows->res.pitch2D.devPtr, rows->res.pitch2D.pitchInBytes, width,
                                    rows->res.pitch2D.height);
}

/* The array stays behind: it comes as a handle. What may bring other pointers in is refused. */
CUresult rg_translate_CUDA_RESOURCE_DESC(struct rg_request *request, CUDA_RESOURCE_DESC *descriptions,
                                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const CUDA_RESOURCE_DESC given = descriptions[i];
        CUDA_RESOURCE_DESC *own = &descriptions[i];
        *own = (CUDA_RESOURCE_DESC){.resType = given.resType, .flags = given.flags};
        if (given.resType == CU_RESOURCE_TYPE_LINEAR)
            own->res.linear = given.res.linear;
        else if (given.resType == CU_RESOURCE_TYPE_PITCH2D)
            own->res.pitch2D = given.res.pitch2D;
        else if (given.resType != CU_RESOURCE_TYPE_ARRAY)
            return CUDA_ERROR_NOT_SUPPORTED;
        bool good = true;
        if (given.resType == CU_RESOURCE_TYPE_LINEAR)
            good =
                rg_request_device_memory(request, own->res.linear.devPtr, 0, own->res.linear.sizeInBytes, 1);
        else if (given.resType == CU_RESOURCE_TYPE_PITCH2D)
            good = is_device_memory(request, own);
        if (!good)
            return request->result;
    }
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgTexObjectCreate(struct rg_request *request, const CUDA_RESOURCE_DESC *resource,
                                      CUarray array, const CUDA_TEXTURE_DESC *texture,
                                      const CUDA_RESOURCE_VIEW_DESC *view, unsigned long long *object)
{
    CUDA_RESOURCE_DESC own = *resource;
    (void)request;
    if (own.resType == CU_RESOURCE_TYPE_ARRAY) {
        if (!array)
            return CUDA_ERROR_INVALID_HANDLE;
        own.res.array.hArray = array;
    }
    return rg_driver.cuTexObjectCreate(object, &own, texture, view);
}

CUresult rg_execute_rgTexObjectCreateMipmap(struct rg_request *request, CUmipmappedArray mipmap,
                                            const CUDA_TEXTURE_DESC *texture,
                                            const CUDA_RESOURCE_VIEW_DESC *view, unsigned long long *object)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    (void)request;
    resource.res.mipmap.hMipmappedArray = mipmap;
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    return rg_driver.cuTexObjectCreate(object, &resource, texture, view);
}

CUresult rg_execute_rgSurfObjectCreate(struct rg_request *request, CUarray array, unsigned long long *object)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    (void)request;
    resource.res.array.hArray = array;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    return rg_driver.cuSurfObjectCreate(object, &resource);
}

CUresult rg_execute_rgTexRefSetAddress(struct rg_request *request, CUtexref reference, CUdeviceptr address,
                                       size_t size, unsigned int aligned, size_t *offset)
{
    *offset = 0;
    if (!reference)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_request_may_block(request, true);
    return rg_driver.cuTexRefSetAddress_v2(aligned ? NULL : offset, reference, address, size);
}
