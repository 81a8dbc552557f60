/*
 * export_tables.h - cuGetExportTable: the undocumented tables by which a CUDA runtime and CUDA's libraries
 * talk to the driver.
 *
 * The tables belong to the process. A stand-in gives its operations once; slots that are known call them,
 * every other slot is a function of its own that returns 0 and, at debug level, names table and slot, so that
 * what a newer runtime wants can be read from the log.
 */
#ifndef RG_COMMON_CUDA_EXPORT_TABLES_H
#define RG_COMMON_CUDA_EXPORT_TABLES_H

#include "common/cuda/api.h"
#include "common/cuda/integrity.h"

#define RG_EXPORT_DEVICES_MAX 64

struct rg_export_operations {
    /** What cuDriverGetVersion says. */
    int (*driver_version)(void);
    /** Retains the device's primary context without making it current. */
    CUresult (*primary_context)(CUcontext *out, CUdevice device);
    /** Loads a module from a fat binary wrapper or container into the current context. */
    CUresult (*module_load)(CUmodule *out, const void *image);
    /** The calling thread's current context, or NULL. */
    CUcontext (*current_context)(void);
    /** What cuCtxGetId says. */
    CUresult (*context_id)(CUcontext context, unsigned long long *id);
    /** What cuStreamGetId says. */
    CUresult (*stream_id)(CUstream stream, unsigned long long *id);
    /** What cuCtxCreate_v2 does. */
    CUresult (*context_create)(CUcontext *out, unsigned flags, CUdevice device);
    /** What cuModuleGetFunctionCount and cuModuleEnumerateFunctions do. */
    CUresult (*function_count)(unsigned *count, CUmodule module);
    CUresult (*functions)(CUfunction *out, unsigned n, CUmodule module);
    /** The newest architecture, like 130, for which PTX stands in for machine code; 0: devices run machine code. */
    unsigned (*ptx_architecture)(void);
    /** Describes up to `max` devices as the public calls do; returns how many. */
    size_t (*devices)(struct rg_integrity_device *out, size_t max);
};

/** Names the operations; `operations` must stay valid. Calls after the first do nothing. Any thread. */
void rg_export_tables_init(const struct rg_export_operations *operations);
/** cuGetExportTable. An unknown id gives CUDA_ERROR_NOT_FOUND and sets *table to NULL. Any thread. */
CUresult rg_export_table_get(const void **table, const CUuuid *id);

#endif
