/*
 * legacy.c - the entry points of CUDA 2, with sizes and device addresses of 32 bits, made of today's.
 *
 * Compiled into the client core and the software device, so a program gets the same from both. The rules:
 *
 *   - a size or an amount that does not fit is reported as the largest number (cuDeviceTotalMem,
 *     cuMemGetInfo);
 *   - an address that does not fit cannot be returned: allocations fail with CUDA_ERROR_OUT_OF_MEMORY (there
 *     is no memory that such a call could name), questions for an address with CUDA_ERROR_INVALID_VALUE;
 *   - an address that is passed in is widened, and then means what it means to today's call. Where there is no more to it, the generator
 *     makes the call (as=, proto/api/legacy.api).
 *
 * Drivers give out device memory far above 4 GiB, so such programs can do little; but they are told why.
 */
#include "common/base/log.h"
#include "common/cuda/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static bool fits(uint64_t value)
{
    return value <= UINT32_MAX;
}

static unsigned int most(uint64_t value)
{
    return fits(value) ? (unsigned int)value : UINT32_MAX;
}

static void tell(const char *function)
{
    rg_warn("%s: the device's addresses do not fit in 32 bits; today's call of this name is needed",
            function);
}

/* --- devices and memory --- */

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    size_t total;
    CUresult status = cuDeviceTotalMem_v2(bytes ? &total : NULL, dev);
    if (status == CUDA_SUCCESS)
        *bytes = most(total);
    return status;
}

CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    size_t wide_available, wide_total;
    CUresult status = cuMemGetInfo_v2(&wide_available, &wide_total);
    if (status == CUDA_SUCCESS && available)
        *available = most(wide_available);
    if (status == CUDA_SUCCESS && total)
        *total = most(wide_total);
    return status;
}

/* Hands an allocation out, or takes it back. */
static CUresult allocated(const char *function, CUresult status, CUdeviceptr address, CUdeviceptr_v1 *out)
{
    if (status != CUDA_SUCCESS)
        return status;
    if (!fits(address)) {
        tell(function);
        (void)cuMemFree_v2(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    CUdeviceptr address = 0;
    CUresult status = cuMemAlloc_v2(dptr ? &address : NULL, bytesize);
    return allocated("cuMemAlloc", status, address, dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult status = cuMemAllocPitch_v2(dptr ? &address : NULL, pPitch ? &pitch : NULL, WidthInBytes, Height,
                                         ElementSizeBytes);
    if (status == CUDA_SUCCESS)
        *pPitch = most(pitch);
    return allocated("cuMemAllocPitch", status, address, dptr);
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult status = cuMemGetAddressRange_v2(&base, &size, dptr);
    if (status == CUDA_SUCCESS && !fits(base))
        return CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && pbase)
        *pbase = (CUdeviceptr_v1)base;
    if (status == CUDA_SUCCESS && psize)
        *psize = most(size);
    return status;
}

/* An address that exists already, as 32 bits. */
static CUresult found(const char *function, CUresult status, CUdeviceptr address, CUdeviceptr_v1 *out)
{
    if (status != CUDA_SUCCESS)
        return status;
    if (!fits(address)) {
        tell(function);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (out)
        *out = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
    CUdeviceptr address = 0;
    CUresult status = cuMemHostGetDevicePointer_v2(pdptr ? &address : NULL, p, Flags);
    return found("cuMemHostGetDevicePointer", status, address, pdptr);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod, const char *name)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    CUresult status = cuModuleGetGlobal_v2(dptr ? &address : NULL, bytes ? &size : NULL, hmod, name);
    status = found("cuModuleGetGlobal", status, address, dptr);
    if (status == CUDA_SUCCESS && bytes)
        *bytes = most(size);
    return status;
}

/* --- copies --- */

static CUDA_MEMCPY2D wide_2d(const CUDA_MEMCPY2D_v1 *copy)
{
    return (CUDA_MEMCPY2D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
    };
}

static CUDA_MEMCPY3D wide_3d(const CUDA_MEMCPY3D_v1 *copy)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcZ = copy->srcZ,
        .srcLOD = copy->srcLOD,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .reserved0 = copy->reserved0,
        .srcPitch = copy->srcPitch,
        .srcHeight = copy->srcHeight,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstZ = copy->dstZ,
        .dstLOD = copy->dstLOD,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .reserved1 = copy->reserved1,
        .dstPitch = copy->dstPitch,
        .dstHeight = copy->dstHeight,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = copy->Depth,
    };
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *pCopy)
{
    CUDA_MEMCPY2D copy = pCopy ? wide_2d(pCopy) : (CUDA_MEMCPY2D){0};
    return cuMemcpy2D_v2(pCopy ? &copy : NULL);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *pCopy)
{
    CUDA_MEMCPY2D copy = pCopy ? wide_2d(pCopy) : (CUDA_MEMCPY2D){0};
    return cuMemcpy2DUnaligned_v2(pCopy ? &copy : NULL);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY2D copy = pCopy ? wide_2d(pCopy) : (CUDA_MEMCPY2D){0};
    return cuMemcpy2DAsync_v2(pCopy ? &copy : NULL, hStream);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *pCopy)
{
    CUDA_MEMCPY3D copy = pCopy ? wide_3d(pCopy) : (CUDA_MEMCPY3D){0};
    return cuMemcpy3D_v2(pCopy ? &copy : NULL);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY3D copy = pCopy ? wide_3d(pCopy) : (CUDA_MEMCPY3D){0};
    return cuMemcpy3DAsync_v2(pCopy ? &copy : NULL, hStream);
}

/* --- arrays --- */

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
    CUDA_ARRAY_DESCRIPTOR wide;
    if (pAllocateArray)
        wide = (CUDA_ARRAY_DESCRIPTOR){pAllocateArray->Width, pAllocateArray->Height, pAllocateArray->Format,
                                       pAllocateArray->NumChannels};
    return cuArrayCreate_v2(pHandle, pAllocateArray ? &wide : NULL);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY_DESCRIPTOR wide;
    CUresult status = cuArrayGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);
    if (status == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR_v1){.Width = most(wide.Width),
                                                       .Height = most(wide.Height),
                                                       .Format = wide.Format,
                                                       .NumChannels = wide.NumChannels};
    return status;
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    if (pAllocateArray)
        wide = (CUDA_ARRAY3D_DESCRIPTOR){pAllocateArray->Width,       pAllocateArray->Height,
                                         pAllocateArray->Depth,       pAllocateArray->Format,
                                         pAllocateArray->NumChannels, pAllocateArray->Flags};
    return cuArray3DCreate_v2(pHandle, pAllocateArray ? &wide : NULL);
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult status = cuArray3DGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);
    if (status == CUDA_SUCCESS)
        *pArrayDescriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){.Width = most(wide.Width),
                                                         .Height = most(wide.Height),
                                                         .Depth = most(wide.Depth),
                                                         .Format = wide.Format,
                                                         .NumChannels = wide.NumChannels,
                                                         .Flags = wide.Flags};
    return status;
}
