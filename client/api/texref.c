/*
 * texref.c - texture and surface references. The worker's driver keeps what they are bound to and how they
 * are read; here are their names, and the arrays, which the driver knows by other handles.
 */
#include "client/api/function/function.h"
#include "client/core/call.h"
#include "client/core/handle.h"
#include "common/base/status.h"
#include "generated/client/operations.h"

/* A reference has one handle, however often a module is asked for it. */
static CUresult find(enum rg_kind kind, void *out, CUmodule module, const char *name)
{
    CUresult status = CUDA_SUCCESS;
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_MODULE, (uint64_t)module);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    struct rg_found_function **list =
        kind == RG_KIND_TEXREF ? &shadow->module.textures : &shadow->module.surfaces;
    rg_found_lock();
    uint64_t handle = rg_found_by_name(*list, name);
    rg_found_unlock();
    if (!handle) {
        handle = rg_handle_create(kind);
        if (!handle)
            return CUDA_ERROR_OUT_OF_MEMORY;
        status = kind == RG_KIND_TEXREF
                     ? rg_op_cuModuleGetTexRef(&(CUtexref){(CUtexref)handle}, module, name)
                     : rg_op_cuModuleGetSurfRef(&(CUsurfref){(CUsurfref)handle}, module, name);
        rg_found_lock();
        const uint64_t other = status == CUDA_SUCCESS ? rg_found_by_name(*list, name) : 0;
        if (status == CUDA_SUCCESS && !other && !rg_found_add(list, name, 0, handle))
            status = CUDA_ERROR_OUT_OF_MEMORY;
        rg_found_unlock();
        if (status != CUDA_SUCCESS || other)
            rg_handle_delete(kind, handle);
        handle = other ? other : handle; /* another thread asked as well */
    }
    if (status == CUDA_SUCCESS)
        *(uint64_t *)out = handle;
    return status;
}

CUresult cuModuleGetTexRef(CUtexref *pTexRef, CUmodule hmod, const char *name)
{
    return find(RG_KIND_TEXREF, pTexRef, hmod, name);
}

CUresult cuModuleGetSurfRef(CUsurfref *pSurfRef, CUmodule hmod, const char *name)
{
    return find(RG_KIND_SURFREF, pSurfRef, hmod, name);
}

CUresult cuTexRefCreate(CUtexref *pTexRef)
{
    RG_TRY(rg_call_allowed(0));
    if (!pTexRef)
        return CUDA_ERROR_INVALID_VALUE;
    CUtexref handle = (CUtexref)rg_handle_create(RG_KIND_TEXREF);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_TEXREF, (uint64_t)handle)->texref.own = true;
    return rg_handle_made(RG_KIND_TEXREF, (uint64_t)handle, rg_op_cuTexRefCreate(&handle), pTexRef);
}

CUresult cuTexRefDestroy(CUtexref hTexRef)
{
    RG_TRY(rg_call_allowed(0));
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_TEXREF, (uint64_t)hTexRef);
    if (!shadow || !shadow->texref.own)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = rg_op_cuTexRefDestroy(hTexRef);
    rg_handle_delete(RG_KIND_TEXREF, (uint64_t)hTexRef);
    return status;
}

/* Which array a reference has been bound to; other memory (nothing) puts an end to that. */
static CUresult bound(enum rg_kind kind, const void *reference, uint64_t array, uint64_t mipmap)
{
    struct rg_shadow *shadow = rg_handle_shadow(kind, (uint64_t)reference);
    if (shadow) {
        shadow->texref.array = array;
        shadow->texref.mipmap = mipmap;
    }
    return CUDA_SUCCESS;
}

static CUresult check(enum rg_kind kind, const void *reference, enum rg_kind other_kind, const void *other)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    return rg_handle_known(kind, (uint64_t)reference) &&
                   (!other || rg_handle_known(other_kind, (uint64_t)other))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags)
{
    RG_TRY(check(RG_KIND_TEXREF, hTexRef, RG_KIND_ARRAY, hArray));
    RG_TRY(rg_op_cuTexRefSetArray(hTexRef, hArray, Flags));
    return bound(RG_KIND_TEXREF, hTexRef, (uint64_t)hArray, 0);
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags)
{
    RG_TRY(check(RG_KIND_TEXREF, hTexRef, RG_KIND_MIPMAP, hMipmappedArray));
    RG_TRY(rg_op_cuTexRefSetMipmappedArray(hTexRef, hMipmappedArray, Flags));
    return bound(RG_KIND_TEXREF, hTexRef, 0, (uint64_t)hMipmappedArray);
}

CUresult cuTexRefSetAddress_v2(size_t *ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes)
{
    size_t offset = 0;
    RG_TRY(check(RG_KIND_TEXREF, hTexRef, RG_KIND_ARRAY, NULL));
    RG_TRY(rg_op_rgTexRefSetAddress(hTexRef, dptr, bytes, !ByteOffset, &offset));
    if (ByteOffset)
        *ByteOffset = offset;
    return bound(RG_KIND_TEXREF, hTexRef, 0, 0);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr dptr,
                                 size_t Pitch)
{
    RG_TRY(check(RG_KIND_TEXREF, hTexRef, RG_KIND_ARRAY, NULL));
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(rg_op_cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch));
    return bound(RG_KIND_TEXREF, hTexRef, 0, 0);
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags)
{
    RG_TRY(check(RG_KIND_SURFREF, hSurfRef, RG_KIND_ARRAY, hArray));
    RG_TRY(rg_op_cuSurfRefSetArray(hSurfRef, hArray, Flags));
    return bound(RG_KIND_SURFREF, hSurfRef, (uint64_t)hArray, 0);
}

/* The array, or mipmapped array, of a reference. */
static CUresult get(enum rg_kind kind, const void *reference, bool mipmap, void *out)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    const struct rg_shadow *shadow = rg_handle_shadow(kind, (uint64_t)reference);
    if (!shadow)
        return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t handle = mipmap ? shadow->texref.mipmap : shadow->texref.array;
    if (!out || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *(uint64_t *)out = handle;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetArray(CUarray *phArray, CUtexref hTexRef)
{
    return get(RG_KIND_TEXREF, hTexRef, false, phArray);
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *phMipmappedArray, CUtexref hTexRef)
{
    return get(RG_KIND_TEXREF, hTexRef, true, phMipmappedArray);
}

CUresult cuSurfRefGetArray(CUarray *phArray, CUsurfref hSurfRef)
{
    return get(RG_KIND_SURFREF, hSurfRef, false, phArray);
}

CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef)
{
    int threads;
    RG_TRY(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, hfunc));
    RG_TRY(check(RG_KIND_TEXREF, hTexRef, RG_KIND_ARRAY, NULL));
    return texunit == CU_PARAM_TR_DEFAULT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
