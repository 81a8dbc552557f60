/*
 * multicast.c - multicast objects: handles like those of physical memory, exported and mapped as those are.
 */
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/handle.h"
#include "generated/client/operations.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
    RG_TRY(rg_call_allowed(0));
    if (!mcHandle || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemGenericAllocationHandle made = rg_handle_create(RG_KIND_ALLOCATION);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_handle_shadow(RG_KIND_ALLOCATION, made)->allocation =
        (struct rg_allocation){.device = rg_device_current_or_first(), .references = 1};
    return rg_handle_made(RG_KIND_ALLOCATION, made, rg_op_cuMulticastCreate(&made, prop), mcHandle);
}
