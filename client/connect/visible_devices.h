/* visible_devices.h - CUDA_VISIBLE_DEVICES as the application's environment has it. */
#ifndef RG_CLIENT_CONNECT_VISIBLE_DEVICES_H
#define RG_CLIENT_CONNECT_VISIBLE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/** How the variable names devices. */
enum rg_visible { RG_VISIBLE_ALL /* it is not set */, RG_VISIBLE_NUMBERS, RG_VISIBLE_UUIDS };

/** As this process's environment has it now. Any thread. */
enum rg_visible rg_visible_kind(void);

/**
 * Those that it makes visible of `n` devices, RG_DEVICES_MAX at most, in the order in which the program counts them; returns how
 * many. `out` has room for `n`. `uuids` may be NULL unless devices are named by them.
 */
uint32_t rg_visible_choose(const uint8_t (*uuids)[16], uint32_t n, uint32_t *out);

#endif
