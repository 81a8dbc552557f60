/*
 * export_table.c - cuGetExportTable: the tables of common/cuda/export_tables.h with this client's operations.
 * The integrity check is about this process and the devices it sees, so it is computed here.
 */
#include "client/api/export_table.h"

#include "client/api/device.h"
#include "client/core/device_list.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "common/cuda/context_storage.h"
#include "common/cuda/export_tables.h"

#include <string.h>

static CUcontext current_context(void)
{
    return (CUcontext)rg_context_current_handle();
}

/* The software device runs PTX alone. A program that has another device as well gets what that one runs. */
static unsigned ptx_architecture(void)
{
    unsigned newest = 0;
    for (unsigned i = 0; i < rg_device_count(); i++) {
        const struct rg_device_info *info = rg_device((CUdevice)i);
        const unsigned architecture = info->compute_major * 10 + info->compute_minor;
        if (strcmp(rg_device_session((CUdevice)i)->hello.driver.kind, "soft") != 0)
            return 0;
        if (newest == 0 || architecture < newest)
            newest = architecture;
    }
    return newest;
}

static size_t devices(struct rg_integrity_device *out, size_t max)
{
    size_t n = rg_device_count() < max ? rg_device_count() : max;
    for (size_t i = 0; i < n; i++) {
        const CUdevice device = (CUdevice)i;
        const struct rg_device_info *info = rg_device(device);
        memcpy(out[i].uuid, info->uuid, sizeof out[i].uuid);
        out[i].pci_domain = rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
        out[i].pci_bus = rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
        out[i].pci_device = rg_device_attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    }
    return n;
}

static const struct rg_export_operations operations = {
    .driver_version = rg_driver_version,
    .primary_context = cuDevicePrimaryCtxRetain,
    .module_load = cuModuleLoadData,
    .current_context = current_context,
    .context_id = cuCtxGetId,
    .stream_id = cuStreamGetId,
    .context_create = cuCtxCreate_v2,
    .function_count = cuModuleGetFunctionCount,
    .functions = cuModuleEnumerateFunctions,
    .ptx_architecture = ptx_architecture,
    .devices = devices,
};

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    rg_export_tables_init(&operations);
    return rg_export_table_get(ppExportTable, pExportTableId);
}

void rg_export_table_context_ended(uint64_t context)
{
    rg_context_storage_end((CUcontext)context);
}
