/* module.h - what answers say of functions and variables. Any thread that executes a record. */
#ifndef RG_SERVER_API_MODULE_H
#define RG_SERVER_API_MODULE_H

#include "server/core/worker.h"
#include "server/modules.h"

/** State of describe.c: for how long images have been loaded that nobody has asked for. */
struct rg_image_prefetch {
    uint64_t ns;
};

/**
 * Outputs what a launch needs to know of a function or kernel (proto/function_info.h). Of a kernel: on
 * `device`; `function`: the one that it has in the current context, or NULL.
 */
CUresult rg_module_output_function(struct rg_request *request, CUfunction function);
CUresult rg_module_output_kernel(struct rg_request *request, CUkernel kernel, CUdevice device,
                                 CUfunction function);
/** Outputs a variable, and the managed memory that it is part of. */
CUresult rg_module_output_variable(struct rg_request *request, CUdeviceptr address, size_t bytes);

#endif
