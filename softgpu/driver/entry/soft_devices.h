/* soft_devices.h - the table for the management library beside the driver (common/cuda/soft_devices.h). */
#ifndef SG_DRIVER_ENTRY_SOFT_DEVICES_H
#define SG_DRIVER_ENTRY_SOFT_DEVICES_H

#include "common/cuda/soft_devices.h"

extern const struct rg_soft_devices sg_soft_devices;

#endif
