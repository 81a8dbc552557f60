/*
 * ipc.c - memory and events of other processes: the handles of cuIpc….
 *
 * Memory becomes a shared file when its handle is asked for (range.h); an interprocess event is in one from
 * the start (event.c). A handle names process, file and the file's secret (shared_file.h), and is good for as
 * long as that process has the object. Opening one's own memory is refused, as drivers do.
 */
#include <string.h>
#include <unistd.h>

#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"

_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct sg_shared_handle), "a handle is what it holds");

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS(address);
    struct sg_range range;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || !sg_range_find(address, &range) || range.kind != SG_RANGE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(sg_range_share(address, &range));
    struct sg_shared_file file = {.kind = SG_SHARED_MEMORY};
    memcpy(file.secret, range.secret, SG_SECRET);
    sg_shared_handle_make(out, &file, range.file, 0, range.size);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    struct sg_shared_handle meant;
    struct sg_shared_file about;
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_shared_handle_read(&handle, SG_SHARED_MEMORY, &meant))
        return CUDA_ERROR_INVALID_VALUE;
    if (meant.process == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t address = sg_range_reopen(context, meant.secret);
    CUresult result = CUDA_SUCCESS;
    if (address == 0) {
        int file = sg_shared_handle_open(&meant, &about);
        if (file < 0)
            return CUDA_ERROR_INVALID_HANDLE;
        const struct sg_backing backing = {.file = file, .imported = true, .secret = meant.secret};
        result =
            sg_range_alloc_backed(context, about.device, meant.size, SG_RANGE_IPC, NULL, &backing, &address);
        close(file); /* the mapping holds it */
    }
    if (result == CUDA_SUCCESS)
        *out = address;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_MAP_FAILED : result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    SG_IMPLY_CONTEXT_OF_ADDRESS(address);
    SG_CONTEXT_OR_RETURN(context);
    sg_all_wait(); /* what is queued may still use it */
    return sg_range_close(address);
}
