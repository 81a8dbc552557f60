/* visible_devices.h - CUDA_VISIBLE_DEVICES as the application's environment has it. */
#ifndef RG_CLIENT_CONNECT_VISIBLE_DEVICES_H
#define RG_CLIENT_CONNECT_VISIBLE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Reads the variable's numbers into `out`: up to the first that is none, as the driver does. False: the
 * variable is not set, or names devices by UUID, which is told once and otherwise left alone. True with *n 0:
 * no device is visible.
 */
bool rg_visible_devices(uint32_t *out, size_t max, uint32_t *n);

#endif
