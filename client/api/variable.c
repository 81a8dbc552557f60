/* variable.c - variables of modules and libraries by name. */
#include "client/cache/variables.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/thread.h"
#include "client/managed/managed.h"
#include "client/managed/unified.h"
#include "client/prefetch/startup_profile.h"
#include "common/base/log.h"

/* Managed variables of libraries are the same in all contexts, and of the one that asked first. */
static bool known(const struct rg_variable_place *place)
{
    struct rg_range range;
    return rg_map_find(place->address, &range) && range.kind == RG_RANGE_MANAGED &&
           range.start == place->address;
}

/* Whether managed memory that a server names has the variable in it: what is noted elsewhere would pass for memory of the device's. */
static bool is_inside(const struct rg_variable_place *place)
{
    return place->start <= UINT64_MAX - RG_PAGE && place->size <= UINT64_MAX - RG_PAGE - place->start &&
           place->address >= place->start && place->bytes <= place->size &&
           place->address - place->start <= place->size - place->bytes;
}

/*
 * A variable's memory is the context's: known from here on, so that copies to it are told from host memory.
 */
static CUresult note_variable(enum rg_kind kind, uint64_t owner, const struct rg_variable_place *place)
{
    struct rg_range range = {.start = place->address,
                             .size = place->bytes,
                             .kind = place->size ? RG_RANGE_MANAGED : RG_RANGE_GLOBAL,
                             .context = rg_context_current_owner(),
                             .device = rg_device_current()};
    if (place->size && !is_inside(place)) {
        rg_error("the server's address for a managed variable is outside of the memory that it names for it");
        return CUDA_ERROR_UNKNOWN;
    }
    if (place->size) {
        CUresult status = rg_managed_variables(owner, kind == RG_KIND_LIBRARY, place->start, place->size);
        if (status == CUDA_SUCCESS && kind == RG_KIND_LIBRARY && known(place))
            return CUDA_SUCCESS;
        return status == CUDA_SUCCESS && !rg_map_add(&range) ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    if (place->bytes && rg_map_reserve(rg_session_current()->number, place->address, place->bytes))
        (void)rg_map_add(&range);
    return CUDA_SUCCESS;
}

/* A variable of a module or library by name. */
static CUresult find_variable(enum rg_kind kind, uint64_t owner, const char *name, bool managed,
                              CUdeviceptr *dptr, size_t *bytes)
{
    RG_TRY(rg_call_allowed(RG_TRAIT_CONTEXT));
    if (!name || (!dptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rg_handle_known(kind, owner))
        return CUDA_ERROR_INVALID_HANDLE;
    const struct rg_shadow *shadow = rg_handle_shadow(kind, owner);
    struct rg_cached_image *cached = !shadow                  ? NULL
                                     : kind == RG_KIND_MODULE ? shadow->module.cached
                                                              : shadow->library.cached;
    struct rg_variable_place v = {0};
    bool fresh;
    RG_TRY(rg_variables_find(kind, owner, name, managed, &v, &fresh));
    if (fresh && cached) {
        rg_image_cache_note_variable(cached, name, managed);
        rg_startup_profile_note_image(cached);
    }
    if (fresh) {
        RG_TRY(note_variable(kind, owner, &v));
        rg_variables_used(kind, owner, name, managed);
    }
    if (dptr)
        *dptr = v.address;
    if (bytes)
        *bytes = v.bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    return find_variable(RG_KIND_MODULE, (uint64_t)hmod, name, false, dptr, bytes);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, false, dptr, bytes);
}

/* Without a context, managed variables are those of the first device's primary one, which is kept. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    if (rg_context_current_owner() || rg_call_allowed(0) != CUDA_SUCCESS)
        return find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    CUcontext primary;
    unsigned flags;
    int active = 0;
    RG_TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    RG_TRY(cuDevicePrimaryCtxRetain(&primary, 0));
    RG_TRY(rg_context_scope_enter((uint64_t)primary));
    const CUresult status = find_variable(RG_KIND_LIBRARY, (uint64_t)library, name, true, dptr, bytes);
    rg_context_scope_leave();
    if (active)
        (void)cuDevicePrimaryCtxRelease_v2(0);
    return status;
}
