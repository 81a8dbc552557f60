/*
 * entry.c - how callers find the rest: cuGetProcAddress, cuGetExportTable.
 */
#include "softgpu/driver/driver.h" /* first: it includes cuda.h so that the API is exported */

#include <string.h>

#include "common/cuda/export_tables.h"
#include "common/cuda/graph/captured.h"
#include "common/cuda/runtime_calls.h"
#include "generated/proto/api_table.h"
#include "proto/api/proc_address.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/entry/soft_devices.h"
#include "softgpu/driver/range/range.h"

extern void *const sg_api[RG_API_COUNT]; /* generated: the exported functions by index */

static CUresult find(const char *name, void **function, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int index;
    if (name == NULL || function == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const enum rg_proc_result result = rg_proc_find_in(sg_version()->number, name, version, flags, &index);
    void *const call = rg_runtime_call(name, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
                                       result == RG_PROC_FOUND ? sg_api[index] : NULL);
    switch (result) {
    case RG_PROC_FOUND:
        *function = call;
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
        break;
    case RG_PROC_VERSION_NOT_ENOUGH:
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        break;
    default:
        rg_debug("cuGetProcAddress: '%s' for CUDA %d is not known", name, version);
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        break;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = find(name, function, version, flags, &found);
    if (result == CUDA_SUCCESS && found != CU_GET_PROC_ADDRESS_SUCCESS)
        *function = NULL;
    if (result == CUDA_SUCCESS && status != NULL)
        *status = found;
    return result;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = find(name, function, version, flags, &found);
    return result == CUDA_SUCCESS && found != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

/* --- export tables --- */

static int export_driver_version(void)
{
    return sg_version()->number;
}

static CUresult export_primary_context(CUcontext *out, CUdevice device)
{
    return cuDevicePrimaryCtxRetain(out, device);
}

static CUresult export_module_load(CUmodule *out, const void *image)
{
    return cuModuleLoadData(out, image);
}

static CUcontext export_current_context(void)
{
    return sg_context_handle(sg_context_current());
}

static CUresult export_context_create(CUcontext *out, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v2(out, flags, device);
}

static unsigned export_ptx_architecture(void)
{
    return sg_enter() == CUDA_SUCCESS ? sg_state.capability : 0;
}

static size_t export_devices(struct rg_integrity_device *out, size_t max)
{
    size_t n = 0;
    for (; n < (size_t)sg_state.n_devices && n < max; n++) {
        const struct sg_device *device = &sg_state.devices[n];
        memcpy(out[n].uuid, device->uuid.bytes, sizeof out[n].uuid);
        out[n].pci_domain = device->pci_domain;
        out[n].pci_bus = device->pci_bus;
        out[n].pci_device = device->pci_device;
    }
    return n;
}

static const struct rg_export_operations export_operations = {
    .driver_version = export_driver_version,
    .primary_context = export_primary_context,
    .module_load = export_module_load,
    .current_context = export_current_context,
    .context_id = cuCtxGetId,
    .stream_id = cuStreamGetId,
    .context_create = export_context_create,
    .function_count = cuModuleGetFunctionCount,
    .functions = cuModuleEnumerateFunctions,
    .ptx_architecture = export_ptx_architecture,
    .devices = export_devices,
};

/* Memory of a device is memory of the process; host memory, which its owner may free at any time, is not meant. */
static bool is_in_place(uint64_t address, uint64_t size, bool write)
{
    return sg_address_is_device(address) && sg_range_allows(address, size, write);
}

/* Of the tables for the libraries beside this one, the one of that id; NULL: there is none such. */
static const void *own_table(const CUuuid *id)
{
    static const struct rg_captured_table captured = {sizeof captured, rg_capture_number, rg_captured_add,
                                                      rg_captured_collect, is_in_place};
    return memcmp(id->bytes, RG_SOFT_DEVICES_ID, sizeof id->bytes) == 0     ? &sg_soft_devices
           : memcmp(id->bytes, RG_CAPTURED_TABLE_ID, sizeof id->bytes) == 0 ? (const void *)&captured
                                                                            : NULL;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    const void *own = table != NULL && id != NULL ? own_table(id) : NULL;
    if (own != NULL) {
        *table = own;
        return CUDA_SUCCESS;
    }
    rg_export_tables_init(&export_operations);
    return rg_export_table_get(table, id);
}
