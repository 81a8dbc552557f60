/* driver_parts.h - the devices of a machine on which MIG has divided GPUs. See driver.h. */
#ifndef RG_SERVER_DAEMON_DRIVER_DRIVER_PARTS_H
#define RG_SERVER_DAEMON_DRIVER_DRIVER_PARTS_H

#include "server/daemon/driver/driver.h"

/** Looks with CUDA_VISIBLE_DEVICES set: `visible` is the assignment. As the probe of driver.c does. */
typedef enum rg_status rg_driver_look(void *data, char *visible, struct rg_driver *out, char *why,
                                      size_t why_size);

/**
 * All devices of `parts`, whole GPUs first: one process's CUDA shows one instance alone, so each is looked at by itself. One that does not
 * work is said, and left out. RG_ERR_UNSUPPORTED: none does.
 */
RG_MUST_CHECK enum rg_status rg_driver_of_parts(const struct rg_probe_part *parts, uint32_t n,
                                                rg_driver_look *look, void *data, struct rg_driver *out,
                                                char *why, size_t why_size);
/** Takes over the free memory of `parts`, found by their UUIDs; of devices that are not among them it is not known. */
void rg_driver_take_parts(const struct rg_probe_part *parts, uint32_t n, struct rg_driver *driver);

#endif
