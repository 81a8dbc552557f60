/* device_services.h - what kernels that launch others need of the driver. */
#ifndef SG_DRIVER_LAUNCH_DEVICE_SERVICES_H
#define SG_DRIVER_LAUNCH_DEVICE_SERVICES_H

#include "softgpu/exec/exec.h"

/** For launches whose owner is the kernel's module. */
extern const struct sg_device_services sg_device_services;

/** A number for the next grid: no other of the process has it. */
uint64_t sg_next_grid_id(void);

#endif
