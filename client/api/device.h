/* device.h - attributes of devices, fetched once. */
#ifndef RG_CLIENT_API_DEVICE_H
#define RG_CLIENT_API_DEVICE_H

#include <cuda.h>

/** An attribute as the application sees it; 0 on failure. For checks before a call is sent. */
int rg_device_attribute(CUdevice device, CUdevice_attribute attribute);

#endif
