/*
 * pool_share.c - pools whose memory other processes may have too.
 *
 * Such a pool's memory is one file (shared_file.h) that grows; an allocation is a part of it that is never
 * used again, and freed memory is a hole. A descriptor of the file is the pool's shareable handle; a pointer
 * is exported as its place in the file. An imported pool only names memory: it makes none.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/align.h"
#include "common/cuda/composed/primary.h"
#include "softgpu/driver/memory/pool.h"
#include "softgpu/driver/range/range.h"

#define PAGE 4096ull

_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(struct sg_shared_handle),
               "the data is what it holds");

bool sg_pool_share(struct sg_pool *pool)
{
    pool->about = (struct sg_shared_file){.kind = SG_SHARED_POOL, .device = pool->device, .size = PAGE};
    pool->next_part = PAGE; /* the first page is not used: a file is never empty */
    pool->file = sg_shared_file_new(&pool->about);
    pool->shared = pool->file >= 0;
    return pool->shared;
}

CUresult sg_pool_alloc_shared(struct sg_pool *pool, struct sg_context *context, uint64_t size,
                              uint64_t *address)
{
    if (size > pool->device->memory_total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t bytes = rg_align_up(size, PAGE);
    struct sg_backing backing = {.file = pool->file, .secret = pool->about.secret};
    pthread_mutex_lock(&pool->lock);
    backing.offset = pool->next_part;
    const bool grown = ftruncate(pool->file, (off_t)(pool->next_part + bytes)) == 0;
    if (grown)
        pool->next_part += bytes;
    pthread_mutex_unlock(&pool->lock);
    return grown ? sg_range_alloc_backed(context, pool->device, size, SG_RANGE_ASYNC, pool, &backing, address)
                 : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (out == NULL || flags != 0 || pool == NULL || !pool->shared || pool->imported ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int copy = fcntl(pool->file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = copy;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    struct sg_shared_file about;
    RG_TRY(sg_enter());
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return type == CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (!sg_shared_file_known((int)(intptr_t)handle, SG_SHARED_POOL, &about))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_pool *pool = sg_pool_new(about.device);
    int file = pool == NULL ? -1 : fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        if (pool != NULL && sg_handle_remove(pool, SG_KIND_POOL))
            sg_release(&pool->object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->file = file;
    pool->about = about;
    pool->shared = pool->imported = true;
    *out = (CUmemoryPool)(void *)pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    struct sg_range range;
    RG_TRY(sg_enter());
    if (out == NULL || !sg_range_find(address, &range) || range.kind != SG_RANGE_ASYNC || !range.shared ||
        range.imported || range.base != address || range.freeing)
        return CUDA_ERROR_INVALID_VALUE;
    sg_shared_handle_make(out, &range.pool->about, range.file, range.file_offset, range.size);
    return CUDA_SUCCESS;
}

/* What cuMemPoolImportPointer is given, looked up. */
struct pointer_import {
    CUdeviceptr *out;
    struct sg_pool *pool;
    const struct sg_shared_handle *meant;
};

static CUresult import_pointer(void *arguments)
{
    const struct pointer_import *import = arguments;
    uint64_t address;
    SG_CONTEXT_OR_RETURN(context);
    const struct sg_backing backing = {.file = import->pool->file,
                                       .offset = import->meant->offset,
                                       .imported = true,
                                       .secret = import->meant->secret};
    sg_pool_took(import->pool, import->meant->size);
    CUresult result = sg_range_alloc_backed(context, import->pool->device, import->meant->size,
                                            SG_RANGE_ASYNC, import->pool, &backing, &address);
    if (result == CUDA_SUCCESS)
        *import->out = address;
    else
        sg_pool_returned(import->pool, import->meant->size);
    return result;
}

/* Without a context, in the primary one of the pool's device. */
CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle, CUmemPoolPtrExportData *data)
{
    struct sg_shared_handle meant;
    struct sg_shared_file about;
    CUcontext current = NULL;
    RG_TRY(cuCtxGetCurrent(&current));
    SG_REF(struct sg_pool) pool = sg_handle_get(handle, SG_KIND_POOL);
    if (out == NULL || data == NULL || pool == NULL || !pool->imported ||
        !sg_shared_handle_read(data, SG_SHARED_POOL, &meant) ||
        memcmp(meant.secret, pool->about.secret, SG_SECRET) != 0 ||
        !sg_shared_file_known(pool->file, SG_SHARED_POOL, &about)) /* its size now */
        return CUDA_ERROR_INVALID_VALUE;
    if (meant.offset % PAGE != 0 || meant.offset > about.size || meant.size > about.size - meant.offset)
        return CUDA_ERROR_INVALID_VALUE;
    struct pointer_import import = {.out = out, .pool = pool, .meant = &meant};
    return current ? import_pointer(&import)
                   : rg_call_in_primary_context(pool->device->ordinal, import_pointer, &import);
}
