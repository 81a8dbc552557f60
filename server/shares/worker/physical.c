/*
 * physical.c - physical memory: cuMemCreate, and what other sessions share.
 *
 * Memory stays as long as it has a handle or is mapped somewhere; handles are counted by the driver, and retained by address. So
 * each piece has a record of both numbers here, and its charge, under a number of its own, ends when both are 0. Memory of
 * another session is charged as well: it stays when that session frees it. It is charged once for all its handles, which the file
 * tells that stands for it.
 */
#include "server/shares/worker/memory.h"

#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <sys/stat.h>

struct piece {
    struct piece *next;
    enum rg_meter_kind kind;
    uint64_t key; /* of its charge; 0: none */
    CUmemGenericAllocationHandle handle;
    unsigned handles, mappings;
};

struct mapping {
    struct mapping *next;
    CUdeviceptr start;
    size_t size;
    struct piece *piece;
};

static struct {
    pthread_mutex_t lock;
    struct piece *pieces;
    struct mapping *mappings;
    uint64_t next_key;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_key = 1};

/* With a handle that is one. The lock is held. */
static struct piece *find(CUmemGenericAllocationHandle handle)
{
    struct piece *at = all.pieces;
    while (at && (!at->handles || at->handle != handle))
        at = at->next;
    return at;
}

/* Each piece uses its charge once. */
static void add(CUmemGenericAllocationHandle handle, enum rg_meter_kind kind, uint64_t key)
{
    RG_SCOPED_LOCK(&all.lock);
    struct piece *same = find(handle), *piece = same ? same : calloc(1, sizeof *piece);
    if (same) {
        struct rg_meter_freed again = rg_meter_free_begin(kind, key);
        rg_meter_free_end(&again, CUDA_SUCCESS);
        same->handles++;
    } else if (piece) {
        *piece = (struct piece){.next = all.pieces, .kind = kind, .key = key, .handle = handle, .handles = 1};
        all.pieces = piece;
    }
}

/* Its last use has gone. */
static void drop(struct piece *piece)
{
    struct rg_meter_freed freed = rg_meter_free_begin(piece->kind, piece->key);
    struct piece **link = &all.pieces;
    rg_meter_free_end(&freed, CUDA_SUCCESS);
    while (*link != piece)
        link = &(*link)->next;
    *link = piece->next;
    free(piece);
}

static uint64_t new_key(void)
{
    RG_SCOPED_LOCK(&all.lock);
    return all.next_key++;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties,
                       unsigned long long flags)
{
    struct rg_meter meter;
    if (!properties || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return rg_share_direct.cuMemCreate(out, size, properties, flags);
    if (!rg_meter_begin(&meter, properties->location.id,
                        size)) /* a multiple of the granularity, or it fails */
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = rg_share_direct.cuMemCreate(out, size, properties, flags);
    const uint64_t key = new_key();
    if (!rg_meter_end(&meter, result, RG_METER_PHYSICAL, key, size)) {
        (void)rg_share_direct.cuMemRelease(*out);
        rg_meter_look(properties->location.id);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        add(*out, RG_METER_PHYSICAL, key);
    return result;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    RG_SCOPED_LOCK(&all.lock);
    const CUresult result = rg_share_direct.cuMemRelease(handle);
    struct piece *piece = result == CUDA_SUCCESS ? find(handle) : NULL;
    if (piece && --piece->handles == 0 && piece->mappings == 0)
        drop(piece);
    return result;
}

static CUresult retain(CUmemGenericAllocationHandle *out, void *address)
{
    RG_SCOPED_LOCK(&all.lock);
    const CUresult result = rg_share_direct.cuMemRetainAllocationHandle(out, address);
    const struct mapping *at = result == CUDA_SUCCESS ? all.mappings : NULL;
    while (at && (uintptr_t)address - at->start >= at->size)
        at = at->next;
    if (at) {
        at->piece->handle = *out;
        at->piece->handles++;
    }
    return result;
}

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_SCOPED_LOCK(&all.lock);
    const CUresult result = rg_share_direct.cuMemMap(address, size, offset, handle, flags);
    struct piece *piece = result == CUDA_SUCCESS ? find(handle) : NULL;
    if (!piece) {
        free(mapping);
        return result;
    }
    *mapping = (struct mapping){.next = all.mappings, .start = address, .size = size, .piece = piece};
    all.mappings = mapping;
    piece->mappings++;
    return result;
}

static CUresult unmap(CUdeviceptr address, size_t size)
{
    RG_SCOPED_LOCK(&all.lock);
    const CUresult result = rg_share_direct.cuMemUnmap(address, size);
    for (struct mapping **link = &all.mappings; result == CUDA_SUCCESS && *link;) {
        struct mapping *at = *link;
        if (at->start - address >= size) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        if (--at->piece->mappings == 0 && at->piece->handles == 0)
            drop(at->piece);
        free(at);
    }
    return result;
}

/* --- what another session has ------------------------------------------------------------------------------ */

/* The size of the memory that a descriptor stands for, and what tells it from others; 0: the driver does not let that be seen. */
static uint64_t size_of_file(int fd, uint64_t *key)
{
    struct stat state;
    if (fstat(fd, &state) != 0 || state.st_size <= 0)
        return 0;
    *key = (uint64_t)state.st_ino ^ (uint64_t)state.st_dev << 40 ^ 1ull << 63;
    return (uint64_t)state.st_size;
}

/* The device that imported memory is of; false: of none. */
static bool device_of(CUmemGenericAllocationHandle handle, CUdevice *device)
{
    CUmemAllocationProp properties;
    if (rg_share_direct.cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return false;
    *device = properties.location.id;
    return true;
}

/* To import takes nothing that was not there: it can be undone where it is too much. */
static CUresult import(CUmemGenericAllocationHandle *out, void *shared, CUmemAllocationHandleType type)
{
    struct rg_meter meter;
    CUdevice device;
    uint64_t key = 0;
    const CUresult result = rg_share_direct.cuMemImportFromShareableHandle(out, shared, type);
    const uint64_t bytes = result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                               ? size_of_file((int)(intptr_t)shared, &key)
                               : 0;
    if (!bytes || !device_of(*out, &device))
        return result;
    if (rg_meter_again(RG_METER_IMPORT, key) || (rg_meter_begin_import(&meter, device, bytes) &&
                                                 rg_meter_end(&meter, result, RG_METER_IMPORT, key, bytes))) {
        add(*out, RG_METER_IMPORT, key);
        return result;
    }
    (void)rg_share_direct.cuMemRelease(*out);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_memory(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    struct rg_meter meter;
    CUdevice device;
    CUdeviceptr base;
    size_t size = 0;
    const CUresult result = rg_share_direct.cuIpcOpenMemHandle_v2(out, handle, flags);
    if (result != CUDA_SUCCESS || !rg_meter_current(&device) || rg_meter_again(RG_METER_OPENED, *out) ||
        rg_share_direct.cuMemGetAddressRange_v2(&base, &size, *out) != CUDA_SUCCESS)
        return result;
    if (rg_meter_begin_import(&meter, device, rg_meter_round(size)) &&
        rg_meter_end(&meter, result, RG_METER_OPENED, *out, rg_meter_round(size)))
        return result;
    (void)rg_share_direct.cuIpcCloseMemHandle(*out); /* which takes nothing that was not there */
    return CUDA_ERROR_OUT_OF_MEMORY;
}

RG_SHARE_FREES(close_memory, RG_METER_OPENED, cuIpcCloseMemHandle, CUdeviceptr)

void rg_share_enter_physical(void)
{
    RG_SHARE_ENTER(cuMemCreate, create);
    RG_SHARE_ENTER(cuMemRelease, release);
    RG_SHARE_ENTER(cuMemRetainAllocationHandle, retain);
    RG_SHARE_ENTER(cuMemMap, map);
    RG_SHARE_ENTER(cuMemUnmap, unmap);
    RG_SHARE_ENTER(cuMemImportFromShareableHandle, import);
    RG_SHARE_ENTER(cuIpcOpenMemHandle_v2, open_memory);
    RG_SHARE_ENTER(cuIpcCloseMemHandle, close_memory);
}
