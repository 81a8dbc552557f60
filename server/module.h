/* module.h - what answers say of functions and variables. The dispatcher's. */
#ifndef RG_SERVER_MODULE_H
#define RG_SERVER_MODULE_H

#include "server/worker.h"

/** Outputs what a launch needs to know of a function or kernel (proto/function_info.h). */
CUresult rg_module_output_function(struct rg_job *job, void *object, bool is_kernel);
/** Outputs a variable, and the managed memory that it is part of. */
CUresult rg_module_output_variable(struct rg_job *job, CUdeviceptr address, size_t bytes);

#endif
