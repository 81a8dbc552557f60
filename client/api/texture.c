/*
 * texture.c - texture and surface objects. They are numbers of the worker's that kernels are given; what they
 * were made from is kept here, so that questions about them need no worker.
 *
 * Threads: any; the table has one lock, not held across a call of the worker.
 */
#include "client/api/texture.h"

#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "common/base/hash_table.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdlib.h>

struct object {
    struct rg_hash_link link; /* by number */
    unsigned long long number;
    const struct rg_session *session; /* whose number it is */
    uint64_t context;                 /* that it was made in */
    bool surface, has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table objects;

static void add(struct object *object)
{
    RG_SCOPED_LOCK(&lock);
    object->session = rg_session_current();
    object->context = rg_context_current_owner();
    rg_hash_table_add(&objects, &object->link, object->number);
}

/* Copies out what is known of an object; `remove` forgets it. False: there is none. */
static bool find(unsigned long long number, bool surface, bool remove, struct object *out)
{
    pthread_mutex_lock(&lock);
    const struct rg_session *session = rg_session_current();
    struct object *object = (struct object *)rg_hash_table_first(&objects, number);
    while (object && (object->surface != surface || object->session != session))
        object = (struct object *)rg_hash_table_next(&object->link);
    if (object)
        *out = *object;
    if (object && remove)
        rg_hash_table_remove(&objects, &object->link);
    pthread_mutex_unlock(&lock);
    if (object && remove)
        free(object);
    return object;
}

uint64_t rg_texture_context(uint64_t number)
{
    RG_SCOPED_LOCK(&lock);
    const struct object *object = (struct object *)rg_hash_table_first(&objects, number);
    const uint64_t context = object ? object->context : 0;
    return context;
}

/* What the worker is told of a resource: an array by its handle, beside it. */
static CUresult check_resource(const CUDA_RESOURCE_DESC *resource, CUDA_RESOURCE_DESC *sent, CUarray *array)
{
    struct rg_range range;
    *sent = *resource;
    *array = NULL;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        *array = resource->res.array.hArray;
        sent->res.array.hArray = NULL;
        return rg_handle_check(RG_KIND_ARRAY, (uint64_t)*array, CUDA_ERROR_INVALID_HANDLE);
    case CU_RESOURCE_TYPE_LINEAR:
        if (rg_on_device(resource->res.linear.devPtr, 0, resource->res.linear.sizeInBytes, 1))
            return CUDA_SUCCESS;
        if (!rg_map_find(resource->res.linear.devPtr, &range)) /* more than there is may be asked for */
            return CUDA_ERROR_INVALID_VALUE;
        sent->res.linear.sizeInBytes = range.size - (resource->res.linear.devPtr - range.start);
        return rg_on_device(resource->res.linear.devPtr, 0, sent->res.linear.sizeInBytes, 1)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_PITCH2D:
        return rg_on_device(resource->res.pitch2D.devPtr, 0, 1, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return rg_handle_check(RG_KIND_MIPMAP, (uint64_t)resource->res.mipmap.hMipmappedArray,
                               CUDA_ERROR_INVALID_HANDLE);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    CUDA_RESOURCE_DESC sent;
    CUarray array;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pTexObject || !pResDesc || !pTexDesc)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_resource(pResDesc, &sent, &array));
    struct object *object = calloc(1, sizeof *object);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status;
    if (pResDesc->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        status = rg_op_rgTexObjectCreateMipmap(pResDesc->res.mipmap.hMipmappedArray, pTexDesc, pResViewDesc,
                                               &object->number);
    else
        status = rg_op_rgTexObjectCreate(&sent, array, pTexDesc, pResViewDesc, &object->number);
    if (status != CUDA_SUCCESS) {
        free(object);
        return status;
    }
    object->resource = *pResDesc;
    object->texture = *pTexDesc;
    object->has_view = pResViewDesc != NULL;
    if (pResViewDesc)
        object->view = *pResViewDesc;
    *pTexObject = object->number;
    add(object);
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    CUDA_RESOURCE_DESC sent;
    CUarray array;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(check_resource(pResDesc, &sent, &array));
    struct object *object = calloc(1, sizeof *object);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult status = rg_op_rgSurfObjectCreate(array, &object->number);
    if (status != CUDA_SUCCESS) {
        free(object);
        return status;
    }
    object->surface = true;
    object->resource = *pResDesc;
    *pSurfObject = object->number;
    add(object);
    return CUDA_SUCCESS;
}

/* Takes one out that is to be destroyed. */
static CUresult take(unsigned long long number, bool surface)
{
    struct object object;
    RG_TRY(rg_call_allowed(0));
    if (!find(number, surface, false, &object))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return find(number, surface, true, &object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    RG_TRY(take(texObject, false));
    return rg_op_cuTexObjectDestroy(texObject);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    RG_TRY(take(surfObject, true));
    return rg_op_cuSurfObjectDestroy(surfObject);
}

static CUresult get(unsigned long long number, bool surface, const void *out, struct object *object)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return out && find(number, surface, false, object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    struct object object;
    RG_TRY(get(texObject, false, pResDesc, &object));
    *pResDesc = object.resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    struct object object;
    RG_TRY(get(texObject, false, pTexDesc, &object));
    *pTexDesc = object.texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
    struct object object;
    RG_TRY(get(texObject, false, pResViewDesc, &object));
    if (!object.has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = object.view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    struct object object;
    RG_TRY(get(surfObject, true, pResDesc, &object));
    *pResDesc = object.resource;
    return CUDA_SUCCESS;
}
