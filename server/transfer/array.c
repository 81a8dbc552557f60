/*
 * array.c - copies of boxes: rows and slices of an array or of device memory, which travel packed. See copy.c for how
 * data comes and goes.
 *
 * Of the description that a record carries only numbers are believed, and those after checking: the array is looked up
 * by its handle, device memory must be memory that the driver knows, and all pointers to host memory are the worker's.
 */
#include "server/transfer/array.h"

#include "generated/server/execute.h"
#include "server/core/leader_followers.h"
#include "server/timeline/output.h"
#include "server/timeline/wait.h"
#include "server/transfer/credit.h"
#include "server/transfer/deferred.h"
#include "server/transfer/staging.h"

#define OUT_PART (1u << 20)

/* --- checking ------------------------------------------------------------------------------------------------------ */

static size_t texel_size(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    switch (d->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * (size_t)d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * (size_t)d->NumChannels;
    default:
        return 0;
    }
}

static bool within(size_t from, size_t size, size_t limit)
{
    return from <= limit && size <= limit - from;
}

static bool in_array(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *box)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    if (!array || !rg_driver.cuArray3DGetDescriptor_v2 ||
        rg_driver.cuArray3DGetDescriptor_v2(&d, array) != CUDA_SUCCESS)
        return false;
    const size_t texel = texel_size(&d);
    return texel && x % texel == 0 && box->WidthInBytes % texel == 0 &&
           within(x, box->WidthInBytes, d.Width * texel) && within(y, box->Height, d.Height ? d.Height : 1) &&
           within(z, box->Depth, d.Depth ? d.Depth : 1);
}

/* The client has put the offsets into the address. */
static bool in_memory(CUdeviceptr address, size_t pitch, size_t rows, const CUDA_MEMCPY3D *box)
{
    CUdeviceptr base = 0;
    size_t size = 0, slice, last_slice, last_row, extent;
    if (pitch < box->WidthInBytes || __builtin_mul_overflow(pitch, rows, &slice) ||
        (box->Depth > 1 && rows < box->Height) ||
        __builtin_mul_overflow(slice, box->Depth - 1, &last_slice) ||
        __builtin_mul_overflow(pitch, box->Height - 1, &last_row) ||
        __builtin_add_overflow(last_slice, last_row, &extent) ||
        __builtin_add_overflow(extent, box->WidthInBytes, &extent))
        return false;
    if (!rg_driver.cuMemGetAddressRange_v2)
        return true;
    return rg_driver.cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS &&
           within((size_t)(address - base), extent, size);
}

/* Takes the extents, and one side that is on the device, over into `own`. */
static bool take_side(const CUDA_MEMCPY3D *box, CUarray array, bool source, CUDA_MEMCPY3D *own)
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
               in_memory(box->srcDevice, box->srcPitch, box->srcHeight, box);
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
           in_memory(box->dstDevice, box->dstPitch, box->dstHeight, box);
}

/* The packed size of a box, 0 if there is none or it overflows. */
static size_t packed_size(const CUDA_MEMCPY3D *box)
{
    size_t size;
    if (__builtin_mul_overflow(box->WidthInBytes, box->Height, &size) ||
        __builtin_mul_overflow(size, box->Depth, &size))
        return 0;
    return size;
}

/* --- pieces of boxes --------------------------------------------------------------------------------------------------- */

CUresult rg_region_copy_box(bool to_device, const CUDA_MEMCPY3D *box, void *host, size_t offset, size_t size,
                            CUstream stream)
{
    const size_t width = box->WidthInBytes, height = box->Height;
    CUresult result = CUDA_SUCCESS;
    unsigned char *at = host;
    if (!rg_driver.cuMemcpy3DAsync_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
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

/* --- to the device ----------------------------------------------------------------------------------------------------- */

static CUresult copy_box_in(const void *what, void *host, size_t offset, size_t size, CUstream stream)
{
    return rg_region_copy_box(true, what, host, offset, size, stream);
}

CUresult rg_execute_rgBoxIn(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                            CUstream stream, unsigned int synchronous)
{
    CUDA_MEMCPY3D own = {0};
    const size_t size = packed_size(box);
    if (!size || size != request->bulk_left) {
        rg_request_violation(request, "%zu bytes of data for a box of %zu", request->bulk_left, size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take_side(box, array, false, &own))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    if (!context)
        return request->result;
    CUresult result = rg_staging_arrive(request, context, size, stream, copy_box_in, &own);
    if (synchronous && result == CUDA_SUCCESS)
        rg_staging_synchronous(request, context, stream);
    return result;
}

CUresult rg_execute_rgBoxInLate(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                CUstream stream, unsigned long long transfer)
{
    CUDA_MEMCPY3D own = {0};
    struct rg_deferred_area area = {.transfer = transfer, .box = &own, .total = packed_size(box)};
    if (!area.total) {
        rg_request_violation(request, "a box of nothing");
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool good = take_side(box, array, false, &own);
    rg_credit_report(request->worker);
    rg_request_separate_reader(request); /* as for rgCopyInLate */
    if (request->violated)
        return CUDA_ERROR_OUT_OF_MEMORY;
    area.bad = !good;
    return rg_deferred_rendezvous(request, &area, stream);
}

/* --- to the host --------------------------------------------------------------------------------------------------------- */

CUresult rg_execute_rgBoxOut(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                             CUstream stream, unsigned long long transfer)
{
    struct rg_worker *worker = request->worker;
    CUDA_MEMCPY3D own = {0};
    const size_t total = packed_size(box);
    if (!total) {
        rg_request_violation(request, "a box of nothing");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take_side(box, array, true, &own))
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_worker_context *context = rg_request_stream_context(request, stream);
    if (!context)
        return request->result;
    CUresult result = CUDA_SUCCESS;
    for (size_t offset = 0; offset < total && result == CUDA_SUCCESS; offset += OUT_PART) {
        const size_t size = total - offset < OUT_PART ? total - offset : OUT_PART;
        struct rg_staging_buffer *buffer;
        result = rg_staging_take(worker, context, size, &buffer);
        if (result != CUDA_SUCCESS)
            break;
        result = rg_region_copy_box(false, &own, buffer->memory, offset, size, stream);
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuEventRecord(buffer->ready, stream);
        if (result == CUDA_SUCCESS && !rg_request_detach(request))
            result = request->result;
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuEventSynchronize(buffer->ready);
        if (result != CUDA_SUCCESS) {
            rg_staging_give_after(worker, buffer, stream); /* some of it may be on its way */
            break;
        }
        result = rg_staging_send(worker, buffer, transfer, offset, size, offset + size == total);
        rg_staging_give(worker, buffer);
    }
    rg_output_drain(worker);
    return result;
}

CUresult rg_execute_rgBoxOutLate(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                                 CUstream stream, unsigned long long transfer)
{
    CUDA_MEMCPY3D own = {0};
    struct rg_deferred_area area = {.transfer = transfer, .box = &own, .total = packed_size(box)};
    if (!area.total) {
        rg_request_violation(request, "a box of nothing");
        return CUDA_ERROR_INVALID_VALUE;
    }
    area.bad = !take_side(box, array, true, &own);
    return rg_deferred_read(request, &area, stream);
}

/* --- on the device --------------------------------------------------------------------------------------------------------- */

CUresult rg_execute_rgBoxCopy(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray to, CUarray from,
                              CUstream stream, unsigned int asynchronous)
{
    CUDA_MEMCPY3D own = {0};
    if (!packed_size(box)) {
        rg_request_violation(request, "a box of nothing");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!take_side(box, from, true, &own) || !take_side(box, to, false, &own))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_driver.cuMemcpy3DAsync_v2 || !rg_driver.cuMemcpy3D_v2)
        return CUDA_ERROR_NOT_SUPPORTED;
    return asynchronous || stream ? rg_driver.cuMemcpy3DAsync_v2(&own, stream)
                                  : rg_driver.cuMemcpy3D_v2(&own);
}

/* --- levels of mipmapped arrays: they have ended with the whole ------------------------------------------------------------ */

CUresult rg_execute_rgLevelForget(struct rg_request *request, CUarray level)
{
    (void)request, (void)level;
    return CUDA_SUCCESS;
}
