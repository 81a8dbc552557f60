/*
 * devices.h - the RDMA devices of this machine as sysfs shows them; no library is needed, no device is opened.
 */
#ifndef RG_TRANSPORT_DEVICES_H
#define RG_TRANSPORT_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

/** An address by which an RDMA device is reached: one of the network interface that belongs to an active port. */
struct rg_rdma_address {
    char device[64];    /* "mlx5_0" */
    char interface[32]; /* "ens1f0" */
    char address[64];   /* number, without brackets: IPv4, or IPv6 that is not link-local */
};

/**
 * Fills `out` with up to `max` addresses of devices with an active port; returns how many there are. Threads: any.
 */
unsigned rg_rdma_addresses(struct rg_rdma_address *out, unsigned max);

#endif
