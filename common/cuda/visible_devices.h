/* visible_devices.h - which devices CUDA_VISIBLE_DEVICES leaves a program, as the driver reads it. Pure functions. */
#ifndef RG_COMMON_CUDA_VISIBLE_DEVICES_H
#define RG_COMMON_CUDA_VISIBLE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/** Whether the value names devices by their UUIDs ("GPU-…", or "MIG-…" of instances), not by numbers. */
bool rg_visible_devices_by_uuid(const char *text);

/**
 * The devices out of `n` that `text`, the variable's value (NULL: not set), makes visible, in the order in which they are
 * counted; returns how many. `out` has room for `n`. `uuids` is read where the value names devices by them, and `mig`, which says
 * of which "MIG-…" is one; NULL: either name will do.
 */
int rg_visible_devices_choose(const char *text, const uint8_t (*uuids)[16], const bool *mig, int n, int *out);

#endif
