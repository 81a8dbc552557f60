/*
 * driver.h - which CUDA driver the sessions of this server run on, and what devices it has.
 *
 * The daemon never loads a driver: a process that has may not be forked or trusted with other people's
 * sessions any more. The program lib/remote-gpu/probe loads it, looks, and reports an Inventory (or a Refusal
 * with the reason).
 */
#ifndef RG_SERVER_DAEMON_DRIVER_H
#define RG_SERVER_DAEMON_DRIVER_H

#include "proto/control/control.h"

struct rg_driver {
    struct rg_driver_info info;
    uint32_t n_devices;
    struct rg_device_info devices[RG_DEVICES_MAX];
};

/**
 * Finds a driver that works. `wanted`: "auto", "soft" or a path. Says at info which one it is, and for "auto"
 * at warn why it is not NVIDIA's. RG_ERR_NOT_FOUND or RG_ERR_UNSUPPORTED: there is none; `why` says why.
 */
RG_MUST_CHECK enum rg_status rg_driver_find(const char *wanted, struct rg_driver *out, char *why,
                                            size_t why_size);

/**
 * Copies the devices (driver->n_devices of them); with `fresh`, their free memory is that of now or of a
 * second ago: many who ask do not cost many probes. Any thread.
 */
void rg_driver_devices(struct rg_driver *driver, bool fresh, struct rg_device_info *out);

#endif
