/*
 * ipc.c - the calls by which sessions share memory and events. Clients get tokens (export.h) for what the
 * driver makes.
 *
 * The happy path of a descriptor: rg_execute_rgShareAllocation lets the driver export, offers the descriptor
 * and answers with the token; the client passes it to another process, whose worker takes the descriptor
 * (rg_export_take) and lets the driver import it. Of a handle: rg_execute_cuIpcGetMemHandle answers with a
 * token, of which the translation of what another client sends (rg_translate_CUipcMemHandle) makes the
 * driver's handle again.
 */
#include "common/base/cleanup.h"
#include "generated/server/execute.h"
#include "server/core/worker.h"
#include "server/export/export.h"
#include "server/transfer/gpudirect.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

/* --- descriptors ---------------------------------------------------------------------------------------- */

/* What the driver exported, as a token. */
static CUresult offer_handle(unsigned type, const void *exported, unsigned char *token)
{
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memcpy(token, exported, RG_EXPORT_TOKEN);
        return rg_export_offer_handle(RG_EXPORT_FABRIC, token) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }
    int fd;
    memcpy(&fd, exported, sizeof fd);
    return rg_export_offer(fd, token) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static bool type_known(unsigned type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

CUresult rg_execute_rgShareAllocation(struct rg_request *request, CUmemGenericAllocationHandle handle,
                                      unsigned int type, unsigned long long flags, unsigned char *token)
{
    unsigned char exported[RG_EXPORT_TOKEN] = {0};
    (void)request;
    if (!type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result =
        rg_driver.cuMemExportToShareableHandle(exported, handle, (CUmemAllocationHandleType)type, flags);
    return result == CUDA_SUCCESS ? offer_handle(type, exported, token) : result;
}

CUresult rg_execute_rgSharePool(struct rg_request *request, CUmemoryPool pool, unsigned int type,
                                unsigned long long flags, unsigned char *token)
{
    unsigned char exported[RG_EXPORT_TOKEN] = {0};
    (void)request;
    if (!type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result =
        rg_driver.cuMemPoolExportToShareableHandle(exported, pool, (CUmemAllocationHandleType)type, flags);
    return result == CUDA_SUCCESS ? offer_handle(type, exported, token) : result;
}

CUresult rg_execute_rgShareEnd(struct rg_request *request, CUdevice device, const unsigned char *token)
{
    (void)request, (void)device;
    rg_export_end(token);
    return CUDA_SUCCESS;
}

/* The driver's argument for a token, in `own` if it is a handle, else in *fd, which the caller closes. */
static CUresult take_handle(unsigned type, const unsigned char *token, unsigned char *own, int *fd,
                            void **handle)
{
    if (!type_known(type))
        return CUDA_ERROR_NOT_SUPPORTED;
    *handle = own;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memcpy(own, token, RG_EXPORT_TOKEN);
        return rg_export_take_handle(RG_EXPORT_FABRIC, own) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    *fd = rg_export_take(token);
    *handle = (void *)(intptr_t)*fd;
    return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_execute_rgImportAllocation(struct rg_request *request, CUdevice device, uint64_t handle,
                                       unsigned int type, const unsigned char *token, int *location)
{
    CUmemGenericAllocationHandle made = 0;
    CUmemAllocationProp properties;
    unsigned char own[RG_EXPORT_TOKEN];
    RG_CLEANUP_FD int fd = -1;
    void *given;
    (void)device;
    RG_TRY(take_handle(type, token, own, &fd, &given));
    RG_TRY(rg_driver.cuMemImportFromShareableHandle(&made, given, (CUmemAllocationHandleType)type));
    CUresult result = rg_driver.cuMemGetAllocationPropertiesFromHandle(&properties, made);
    if (result != CUDA_SUCCESS) {
        (void)rg_driver.cuMemRelease(made);
        return result;
    }
    *location = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : -1;
    rg_request_new(request, RG_KIND_ALLOCATION, handle, (void *)(uintptr_t)made);
    return CUDA_SUCCESS;
}

CUresult rg_execute_rgImportPool(struct rg_request *request, CUdevice device, uint64_t pool,
                                 unsigned int type, unsigned long long flags, const unsigned char *token)
{
    CUmemoryPool made = NULL;
    unsigned char own[RG_EXPORT_TOKEN];
    RG_CLEANUP_FD int fd = -1;
    void *given;
    (void)device;
    RG_TRY(take_handle(type, token, own, &fd, &given));
    RG_TRY(
        rg_driver.cuMemPoolImportFromShareableHandle(&made, given, (CUmemAllocationHandleType)type, flags));
    rg_request_new(request, RG_KIND_POOL, pool, made);
    return CUDA_SUCCESS;
}

/* --- handles -------------------------------------------------------------------------------------------- */

static_assert(sizeof(CUipcMemHandle) == RG_EXPORT_TOKEN && sizeof(CUipcEventHandle) == RG_EXPORT_TOKEN &&
                  sizeof(CUmemPoolPtrExportData) == RG_EXPORT_TOKEN,
              "a token takes the place of a handle");

/* What the driver made, as a token. */
static CUresult offer_made(CUresult result, enum rg_export_kind kind, void *handle)
{
    if (result != CUDA_SUCCESS)
        return result;
    return rg_export_offer_handle(kind, handle) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult rg_execute_cuIpcGetMemHandle(struct rg_request *request, CUipcMemHandle *handle, CUdeviceptr address)
{
    (void)request;
    return offer_made(rg_driver.cuIpcGetMemHandle(handle, address), RG_EXPORT_MEMORY, handle);
}

CUresult rg_execute_cuIpcGetEventHandle(struct rg_request *request, CUipcEventHandle *handle, CUevent event)
{
    (void)request;
    return offer_made(rg_driver.cuIpcGetEventHandle(handle, event), RG_EXPORT_EVENT, handle);
}

CUresult rg_execute_cuMemPoolExportPointer(struct rg_request *request, CUmemPoolPtrExportData *data,
                                           CUdeviceptr address)
{
    (void)request;
    return offer_made(rg_driver.cuMemPoolExportPointer(data, address), RG_EXPORT_POINTER, data);
}

/* The driver's own for each of the tokens. */
static CUresult take_all(enum rg_export_kind kind, void *tokens, size_t n)
{
    unsigned char *at = tokens;
    for (size_t i = 0; i < n; i++, at += RG_EXPORT_TOKEN)
        if (!rg_export_take_handle(kind, at))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult rg_translate_CUipcMemHandle(struct rg_request *request, CUipcMemHandle *tokens, size_t n)
{
    (void)request;
    return take_all(RG_EXPORT_MEMORY, tokens, n);
}

CUresult rg_translate_CUipcEventHandle(struct rg_request *request, CUipcEventHandle *tokens, size_t n)
{
    (void)request;
    return take_all(RG_EXPORT_EVENT, tokens, n);
}

CUresult rg_translate_CUmemPoolPtrExportData(struct rg_request *request, CUmemPoolPtrExportData *tokens,
                                             size_t n)
{
    (void)request;
    return take_all(RG_EXPORT_POINTER, tokens, n);
}

CUresult rg_execute_rgPoolImportPointer(struct rg_request *request, CUmemoryPool pool,
                                        const CUmemPoolPtrExportData *data, unsigned long long *address,
                                        size_t *size)
{
    CUdeviceptr found = 0, base = 0;
    rg_worker_memory_of_pools(request->worker);
    CUresult result =
        rg_driver.cuMemPoolImportPointer(&found, pool, (CUmemPoolPtrExportData *)(uintptr_t)data);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuMemGetAddressRange_v2(&base, size, found);
    *address = found;
    return result;
}

CUresult rg_execute_rgIpcOpenMemory(struct rg_request *request, const CUipcMemHandle *handle,
                                    unsigned int flags, unsigned long long *address, size_t *size)
{
    CUdeviceptr found = 0, base = 0;
    (void)request;
    RG_TRY(rg_driver.cuIpcOpenMemHandle_v2(&found, *handle, flags));
    CUresult result = rg_driver.cuMemGetAddressRange_v2(&base, size, found);
    if (result != CUDA_SUCCESS)
        (void)rg_driver.cuIpcCloseMemHandle(found);
    *address = found;
    return result;
}

CUresult rg_execute_rgIpcCloseMemory(struct rg_request *request, CUdeviceptr address)
{
    struct rg_gpudirect_area *area = rg_gpudirect_take(request->worker, address);
    rg_request_may_block(request, true);
    rg_gpudirect_end(request, area);
    return rg_driver.cuIpcCloseMemHandle(address);
}

CUresult rg_execute_rgIpcOpenEvent(struct rg_request *request, uint64_t event, const CUipcEventHandle *handle)
{
    CUevent made = NULL;
    CUresult result = rg_driver.cuIpcOpenEventHandle(&made, *handle);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_EVENT, event, made);
    return result;
}
