/*
 * pools.c - pools as applications make, set and ask them. See host_pools.h; what is in them: blocks.c.
 *
 * There are such pools where the devices say so (CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED and its like; for managed memory
 * concurrent access). Every device can use the memory whatever has been set; what has been set is what is told.
 */
#include "common/base/status.h"
#include "common/cuda/graph/backend.h"
#include "common/cuda/host_pools/pool.h"
#include "common/sync/scoped_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t rg_host_pools_lock = PTHREAD_MUTEX_INITIALIZER;
struct rg_host_pool *rg_host_pools;

/* --- the lock is held ---------------------------------------------------------------------------------------- */

static struct rg_host_pool *find(CUmemoryPool handle)
{
    struct rg_host_pool *pool = rg_host_pools;
    while (pool && ((CUmemoryPool)(void *)pool != handle || pool->ended))
        pool = pool->next;
    return pool;
}

bool rg_host_pool_drop(struct rg_host_pool *pool)
{
    if (--pool->references)
        return false;
    struct rg_host_pool **at = &rg_host_pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    return true;
}

/* Where the host is meant, its number says nothing. */
static bool same_location(const CUmemLocation *one, const CUmemLocation *other)
{
    return one->type == other->type && (one->id == other->id || one->type == CU_MEM_LOCATION_TYPE_HOST ||
                                        one->type == CU_MEM_LOCATION_TYPE_NONE);
}

static struct rg_host_pool *find_standard(const CUmemLocation *location, CUmemAllocationType type)
{
    struct rg_host_pool *pool = rg_host_pools;
    while (pool && !(pool->standard && pool->type == type && same_location(&pool->location, location)))
        pool = pool->next;
    return pool;
}

/* --- references ---------------------------------------------------------------------------------------------- */

struct rg_host_pool *rg_host_pool_acquire(CUmemoryPool handle)
{
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    struct rg_host_pool *pool = find(handle);
    if (pool)
        pool->references++;
    return pool;
}

void rg_host_pool_release(struct rg_host_pool *pool)
{
    pthread_mutex_lock(&rg_host_pools_lock);
    const bool last = rg_host_pool_drop(pool);
    pthread_mutex_unlock(&rg_host_pools_lock);
    if (last)
        free(pool);
}

bool rg_host_pool_is(CUmemoryPool handle)
{
    if (!__atomic_load_n(&rg_host_pools, __ATOMIC_RELAXED))
        return false;
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    return find(handle) != NULL;
}

/* --- what there is ------------------------------------------------------------------------------------------- */

bool rg_host_pools_have(const CUmemLocation *location, CUmemAllocationType type)
{
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED ||
           (type == CU_MEM_ALLOCATION_TYPE_PINNED &&
            (location->type == CU_MEM_LOCATION_TYPE_HOST ||
             location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
             location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT));
}

static bool node_exists(int node)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    return node == 0 || (node > 0 && access(path, F_OK) == 0);
}

/* Whether a location can be that of a pool of this type. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
    int devices = 0;
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_NONE:
        return type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return node_exists(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_DEVICE:
        RG_TRY(cuDeviceGetCount(&devices));
        return location->id >= 0 && location->id < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Whether all devices can use memory of such pools. */
static CUresult check_support(const CUmemLocation *location, CUmemAllocationType type)
{
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    const CUdevice_attribute needed = managed ? CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
                                      : location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA
                                          ? CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED
                                          : CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED;
    int devices = 0;
    RG_TRY(cuDeviceGetCount(&devices));
    for (CUdevice device = 0; device < devices; device++) {
        int has = 0;
        if (cuDeviceGetAttribute(&has, needed, device) != CUDA_SUCCESS || !has)
            return rg_graph_backend_unsupported(managed ? "a pool of managed memory"
                                                        : "a pool of host memory");
    }
    return CUDA_SUCCESS;
}

/* A new pool in the list. NULL: out of memory. */
static struct rg_host_pool *make(const CUmemLocation *location, CUmemAllocationType type, bool standard)
{
    struct rg_host_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->references = 1;
    pool->type = type;
    pool->location = *location;
    pool->standard = standard;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    for (int i = 0; i < RG_HOST_POOL_DEVICES; i++)
        pool->access[i] = type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    struct rg_host_pool *other = standard ? find_standard(location, type) : NULL;
    if (other) { /* another thread was first */
        free(pool);
        return other;
    }
    pool->next = rg_host_pools;
    __atomic_store_n(&rg_host_pools, pool, __ATOMIC_RELAXED);
    return pool;
}

/* --- the API ------------------------------------------------------------------------------------------------- */

CUresult rg_host_pool_create(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    RG_TRY(check_location(&properties->location, properties->allocType));
    RG_TRY(check_support(&properties->location, properties->allocType));
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA
                   ? rg_graph_backend_unsupported("a pool of host memory that is shared")
                   : CUDA_ERROR_INVALID_VALUE;
    struct rg_host_pool *pool = make(&properties->location, properties->allocType, false);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->size_max = properties->maxSize;
    *out = (CUmemoryPool)(void *)pool;
    return CUDA_SUCCESS;
}

CUresult rg_host_pool_destroy(CUmemoryPool handle)
{
    struct rg_host_pool *pool = rg_host_pool_acquire(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&rg_host_pools_lock);
    const bool ends = !pool->standard && !pool->ended;
    if (ends) {
        pool->ended = true;
        pool->references--; /* the handle's */
        for (struct rg_host_pool *other = rg_host_pools; other; other = other->next)
            if (other->current == handle)
                other->current = NULL;
    }
    pthread_mutex_unlock(&rg_host_pools_lock);
    if (ends)
        rg_host_pool_settle(pool);
    rg_host_pool_release(pool);
    return ends ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_host_pool_of_location(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type,
                                  bool current)
{
    RG_TRY(check_location(location, type));
    RG_TRY(check_support(location, type));
    struct rg_host_pool *pool = make(location, type, true);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    *out = current && pool->current ? pool->current : (CUmemoryPool)(void *)pool;
    return CUDA_SUCCESS;
}

CUresult rg_host_pool_set_current(const CUmemLocation *location, CUmemAllocationType type,
                                  CUmemoryPool handle)
{
    CUmemoryPool standard;
    RG_TRY(rg_host_pool_of_location(&standard, location, type, false));
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    const struct rg_host_pool *pool = find(handle);
    if (!pool || pool->type != type || !same_location(&pool->location, location))
        return CUDA_ERROR_INVALID_VALUE;
    find(standard)->current = handle == standard ? NULL : handle;
    return CUDA_SUCCESS;
}

CUresult rg_host_pool_trim(CUmemoryPool handle, size_t keep)
{
    struct rg_host_pool *pool = rg_host_pool_acquire(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    rg_host_pool_settle(pool);
    rg_host_pool_shrink(pool, keep);
    rg_host_pool_release(pool);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(const struct rg_host_pool *pool, CUmemPool_attribute attribute, void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult rg_host_pool_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct rg_host_pool *pool = value ? rg_host_pool_acquire(handle) : NULL;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    rg_host_pool_settle(pool);
    pthread_mutex_lock(&rg_host_pools_lock);
    const CUresult result = get_attribute(pool, attribute, value);
    pthread_mutex_unlock(&rg_host_pools_lock);
    rg_host_pool_release(pool);
    return result;
}

static CUresult set_attribute(struct rg_host_pool *pool, CUmemPool_attribute attribute, const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (*(const cuuint64_t *)value == 0)
            pool->reserved_high = pool->reserved;
        return *(const cuuint64_t *)value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value == 0)
            pool->used_high = pool->used;
        return *(const cuuint64_t *)value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult rg_host_pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    struct rg_host_pool *pool = value ? find(handle) : NULL;
    return pool ? set_attribute(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
}

/* Who is to access a pool's memory: a device, or the host, which always may. */
static CUresult check_access(const CUmemAccessDesc *access)
{
    RG_TRY(check_location(&access->location, CU_MEM_ALLOCATION_TYPE_PINNED));
    const bool device = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
                   (device && access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_host_pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    if (!map && count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        RG_TRY(check_access(&map[i]));
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    struct rg_host_pool *pool = find(handle);
    for (size_t i = 0; pool && i < count; i++)
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].location.id < RG_HOST_POOL_DEVICES)
            pool->access[map[i].location.id] = map[i].flags;
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rg_host_pool_get_access(CUmemAccess_flags *flags, CUmemoryPool handle, const CUmemLocation *location)
{
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_location(location, CU_MEM_ALLOCATION_TYPE_PINNED));
    RG_SCOPED_LOCK(&rg_host_pools_lock);
    const struct rg_host_pool *pool = find(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = location->type != CU_MEM_LOCATION_TYPE_DEVICE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : location->id < RG_HOST_POOL_DEVICES         ? pool->access[location->id]
                                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
