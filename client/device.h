/* device.h - what is known of the devices: from the handshake, and attributes fetched once. */
#ifndef RG_CLIENT_DEVICE_H
#define RG_CLIENT_DEVICE_H

#include "proto/control.h"

#include <cuda.h>

/** The device's entry of the handshake, or NULL if there is no such device. */
const struct rg_device_info *rg_device(CUdevice device);
/** An attribute as the application sees it; 0 on failure. For checks before a call is sent. */
int rg_device_attribute(CUdevice device, CUdevice_attribute attribute);
/** The current context's device; -1 if there is none. */
CUdevice rg_device_current(void);

#endif
