/*
 * devices.h - the RDMA devices of this machine as sysfs shows them; no library is needed, no device is
 * opened.
 */
#ifndef RG_TRANSPORT_TOPOLOGY_DEVICES_H
#define RG_TRANSPORT_TOPOLOGY_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

/**
 * An address by which an RDMA device is reached: one of the network interface that belongs to an active port.
 */
struct rg_rdma_address {
    char device[64];    /* "mlx5_0" */
    unsigned port;      /* of the device, from 1 */
    char interface[32]; /* "ens1f0" */
    char address[64];   /* number, without brackets: IPv4, or IPv6 that is not link-local */
    unsigned prefix;    /* bits of it that its network has */
};

/**
 * Fills `out` with up to `max` addresses of network interfaces that have a link, but for loopback; the device is the
 * interface. Returns how many there are. Threads: any.
 */
unsigned rg_link_addresses(struct rg_rdma_address *out, unsigned max);

/**
 * Fills `out` with up to `max` addresses of devices with an active port; returns how many there are. Threads:
 * any.
 */
unsigned rg_rdma_addresses(struct rg_rdma_address *out, unsigned max);

/**
 * The version of a library of this machine as its file's name has it ("1.14.44.0" of libibverbs.so.1), from
 * the usual folders below `root` ("": this machine) and without loading it. False: it is not there.
 */
bool rg_rdma_library(const char *root, const char *name, char *path, size_t path_size, char *version,
                     size_t version_size);
/**
 * What there is, as one sentence for people: "rxe0 (10.77.0.1); libibverbs 1.14.44.0, librdmacm 1.3.44.0".
 */
void rg_rdma_describe(char *out, size_t size);

#endif
