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
 * Whether what the program has not asked for may be loaded: drivers load a function when it is first used, and may wait for all work
 * of its context then, which may depend on what the program does next. The dispatcher, before the request goes out of order.
 */
bool rg_module_may_load(struct rg_request *request);
/**
 * Outputs what a launch needs to know of a function or kernel (proto/function_info.h). Of a function: without its attributes if it
 * is not loaded and not to be loaded for them. Of a kernel: on `device`; `function`: the one that it has in the current context, or
 * NULL.
 */
CUresult rg_module_output_function(struct rg_request *request, CUfunction function, bool may_load);
CUresult rg_module_output_kernel(struct rg_request *request, CUkernel kernel, CUdevice device,
                                 CUfunction function);
/** Outputs a variable, and the managed memory that it is part of. */
CUresult rg_module_output_variable(struct rg_request *request, CUdeviceptr address, size_t bytes);

#endif
