/* device_region.c - checking regions, and copying parts of them. See device_region.h. */
#include "server/transfer/device_region.h"

#include "common/cuda/texel.h"
#include "generated/server/driver.h"

/* --- checking ------------------------------------------------------------------------------------------- */

static bool within(size_t from, size_t size, size_t limit)
{
    return from <= limit && size <= limit - from;
}

static bool in_array(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *box)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    if (!array || rg_driver.cuArray3DGetDescriptor_v2(&d, array) != CUDA_SUCCESS)
        return false;
    const size_t texel = rg_texel_size(d.Format, d.NumChannels);
    return texel && x % texel == 0 && box->WidthInBytes % texel == 0 &&
           within(x, box->WidthInBytes, d.Width * texel) && within(y, box->Height, d.Height ? d.Height : 1) &&
           within(z, box->Depth, d.Depth ? d.Depth : 1);
}

/* The client has put the offsets into the address. */
static bool in_memory(struct rg_request *request, CUdeviceptr address, size_t pitch, size_t rows,
                      const CUDA_MEMCPY3D *box)
{
    size_t slice, last_slice, last_row, extent;
    if (pitch < box->WidthInBytes || __builtin_mul_overflow(pitch, rows, &slice) ||
        (box->Depth > 1 && rows < box->Height) ||
        __builtin_mul_overflow(slice, box->Depth - 1, &last_slice) ||
        __builtin_mul_overflow(pitch, box->Height - 1, &last_row) ||
        __builtin_add_overflow(last_slice, last_row, &extent) ||
        __builtin_add_overflow(extent, box->WidthInBytes, &extent))
        return false;
    return rg_request_device_memory(request, address, 0, extent, 1);
}

bool rg_device_region_box_side(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                               bool source, CUDA_MEMCPY3D *own)
{
    own->WidthInBytes = box->WidthInBytes;
    own->Height = box->Height;
    own->Depth = box->Depth;
    if (source) {
        own->srcMemoryType = box->srcMemoryType;
        own->srcXInBytes = box->srcXInBytes;
        own->srcY = box->srcY;
        own->srcZ = box->srcZ;
        own->srcDevice = box->srcDevice;
        own->srcPitch = box->srcPitch;
        own->srcHeight = box->srcHeight;
        own->srcArray = array;
        if (box->srcMemoryType == CU_MEMORYTYPE_ARRAY)
            return in_array(array, box->srcXInBytes, box->srcY, box->srcZ, box);
        return box->srcMemoryType == CU_MEMORYTYPE_DEVICE && !box->srcXInBytes && !box->srcY && !box->srcZ &&
               in_memory(request, box->srcDevice, box->srcPitch, box->srcHeight, box);
    }
    own->dstMemoryType = box->dstMemoryType;
    own->dstXInBytes = box->dstXInBytes;
    own->dstY = box->dstY;
    own->dstZ = box->dstZ;
    own->dstDevice = box->dstDevice;
    own->dstPitch = box->dstPitch;
    own->dstHeight = box->dstHeight;
    own->dstArray = array;
    if (box->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return in_array(array, box->dstXInBytes, box->dstY, box->dstZ, box);
    return box->dstMemoryType == CU_MEMORYTYPE_DEVICE && !box->dstXInBytes && !box->dstY && !box->dstZ &&
           in_memory(request, box->dstDevice, box->dstPitch, box->dstHeight, box);
}

bool rg_device_region_of_rows(struct rg_request *request, bool to_device, CUdeviceptr device, size_t pitch,
                              size_t width, size_t height, struct rg_device_region *out)
{
    size_t extent;
    out->to_device = to_device;
    out->boxed = out->bad = false;
    if (__builtin_mul_overflow(width, height, &out->total) ||
        __builtin_mul_overflow(pitch, height, &extent) || (height > 1 && pitch < width)) {
        rg_request_violation(request, "%zu rows of %zu bytes, %zu apart", height, width, pitch);
        return false;
    }
    const bool plain = height == 1 || pitch == width;
    out->device = device;
    out->width = plain ? out->total : width;
    out->pitch = plain ? out->total : pitch;
    return true;
}

bool rg_device_region_of_box(struct rg_request *request, bool to_device, const CUDA_MEMCPY3D *box,
                             CUarray array, struct rg_device_region *out)
{
    *out = (struct rg_device_region){.to_device = to_device, .boxed = true};
    if (__builtin_mul_overflow(box->WidthInBytes, box->Height, &out->total) ||
        __builtin_mul_overflow(out->total, box->Depth, &out->total) || !out->total) {
        rg_request_violation(request, "a box of nothing");
        return false;
    }
    out->bad = !rg_device_region_box_side(request, box, array, !to_device, &out->box);
    return true;
}

CUresult rg_device_region_check(struct rg_request *request, const struct rg_device_region *region)
{
    if (region->boxed)
        return region->bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    return rg_request_device_memory(request, region->device, region->pitch, region->width,
                                    region->total / region->width)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* --- parts of boxes ------------------------------------------------------------------------------------- */

static CUresult copy_box(bool to_device, const CUDA_MEMCPY3D *box, void *host, size_t offset, size_t size,
                         CUstream stream)
{
    const size_t width = box->WidthInBytes, height = box->Height;
    CUresult result = CUDA_SUCCESS;
    unsigned char *at = host;
    while (size && result == CUDA_SUCCESS) {
        CUDA_MEMCPY3D part = *box;
        const size_t row = offset / width, x = offset % width, y = row % height, z = row / height;
        const size_t rows = size / width;
        part.Height = part.Depth = 1;
        if (x || !rows) {
            part.WidthInBytes = width - x < size ? width - x : size;
        } else if (y == 0 && rows >= height) {
            part.Height = height;
            part.Depth = rows / height;
        } else {
            part.Height = rows < height - y ? rows : height - y;
        }
        if (to_device) {
            part.dstXInBytes += x;
            part.dstY += y;
            part.dstZ += z;
            part.srcMemoryType = CU_MEMORYTYPE_HOST;
            part.srcHost = at;
            part.srcPitch = part.WidthInBytes;
            part.srcHeight = part.Height;
        } else {
            part.srcXInBytes += x;
            part.srcY += y;
            part.srcZ += z;
            part.dstMemoryType = CU_MEMORYTYPE_HOST;
            part.dstHost = at;
            part.dstPitch = part.WidthInBytes;
            part.dstHeight = part.Height;
        }
        result = rg_driver.cuMemcpy3DAsync_v2(&part, stream);
        const size_t bytes = part.WidthInBytes * part.Height * part.Depth;
        at += bytes;
        offset += bytes;
        size -= bytes;
    }
    return result;
}

/* --- parts of rows -------------------------------------------------------------------------------------- */

static CUresult copy_linear(bool to_device, CUdeviceptr device, void *host, size_t size, CUstream stream)
{
    return to_device ? rg_driver.cuMemcpyHtoDAsync_v2(device, host, size, stream)
                     : rg_driver.cuMemcpyDtoHAsync_v2(host, device, size, stream);
}

static CUresult copy_rows(bool to_device, CUdeviceptr device, size_t pitch, size_t width, size_t height,
                          void *host, CUstream stream)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .WidthInBytes = width,
        .Height = height,
    };
    if (to_device) {
        copy.srcHost = host;
        copy.srcPitch = width;
        copy.dstDevice = device;
        copy.dstPitch = pitch;
    } else {
        copy.srcDevice = device;
        copy.srcPitch = pitch;
        copy.dstHost = host;
        copy.dstPitch = width;
    }
    return rg_driver.cuMemcpy2DAsync_v2(&copy, stream);
}

static CUresult copy_part(bool to_device, CUdeviceptr device, size_t pitch, size_t width, void *host,
                          size_t offset, size_t size, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    unsigned char *at = host;
    while (size && result == CUDA_SUCCESS) {
        const size_t row = offset / width, column = offset % width;
        const CUdeviceptr start = device + row * pitch + column;
        size_t part;
        if (column || size < width) {
            part = width - column < size ? width - column : size;
            result = copy_linear(to_device, start, at, part, stream);
        } else {
            const size_t rows = size / width;
            part = rows * width;
            result = rows == 1 ? copy_linear(to_device, start, at, part, stream)
                               : copy_rows(to_device, start, pitch, width, rows, at, stream);
        }
        at += part;
        offset += part;
        size -= part;
    }
    return result;
}

CUresult rg_device_region_copy(const struct rg_device_region *region, void *host, size_t offset, size_t size,
                               CUstream stream)
{
    if (region->boxed)
        return copy_box(region->to_device, &region->box, host, offset, size, stream);
    if (region->pitch == region->width)
        return copy_linear(region->to_device, region->device + offset, host, size, stream);
    return copy_part(region->to_device, region->device, region->pitch, region->width, host, offset, size,
                     stream);
}
