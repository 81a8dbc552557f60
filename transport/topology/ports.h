/*
 * ports.h - which physical port an RDMA device's port is, from sysfs: what shares one is no further way for
 * data.
 *
 * `root` is what stands before /sys: "" is this machine.
 */
#ifndef RG_TRANSPORT_TOPOLOGY_PORTS_H
#define RG_TRANSPORT_TOPOLOGY_PORTS_H

#include <stddef.h>

/**
 * A name for the physical port behind port `port` of `device`, whose network interface is `interface`: the
 * same for all virtual functions (SR-IOV) and sub-functions of it, VLANs on it, and software devices
 * (Soft-RoCE) of its interface. A machine that was given functions without being told what they belong to
 * sees different ports.
 */
void rg_port_name(const char *root, const char *device, unsigned port, const char *interface, char *out,
                  size_t size);

#endif
