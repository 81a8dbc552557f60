/*
 * fault.h - what a kernel's fault means to the program.
 */
#ifndef SG_DRIVER_LAUNCH_FAULT_H
#define SG_DRIVER_LAUNCH_FAULT_H

#include "softgpu/driver/driver.h"
#include "softgpu/exec/exec.h"

/**
 * The error of a grid that ended with this fault (CUDA_SUCCESS for none). Tells it in the log, and with
 * SOFTGPU_REPORT=1 at length on stderr.
 */
CUresult sg_fault_log(const struct sg_launch *launch, const struct sg_fault_report *report);

#endif
