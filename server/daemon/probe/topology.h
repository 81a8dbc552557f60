/* topology.h - where a machine's GPUs are, as NVML and the kernel tell it; for the probe, on its one thread. */
#ifndef RG_SERVER_DAEMON_PROBE_TOPOLOGY_H
#define RG_SERVER_DAEMON_PROBE_TOPOLOGY_H

#include "proto/control/control.h"

/**
 * Fills in nvlink_group and pcie_group, and numa_node where the driver has not told it, of devices whose UUIDs and PCI addresses are known.
 * `nvml`: the library, initialised; NULL: there is none, and no group is known.
 */
void rg_topology_look(void *nvml, struct rg_device_info *devices, uint32_t n);

#endif
