/*
 * topology.h - SOFTGPU_TOPOLOGY: where the devices of a machine would be, for what chooses GPUs by that and is to be tried where there is none.
 *
 *     SOFTGPU_TOPOLOGY=numa=0,0,1,1:nvlink=0,0,1,1:pcie=0,1,2,2
 *
 * Of each device in their order: its NUMA node, and a number that devices share which are linked by NVLink, or lie below one PCIe switch;
 * "-": none. What is left out is not known. Data does not travel otherwise for it. Any thread.
 */
#ifndef SG_DRIVER_CORE_TOPOLOGY_H
#define SG_DRIVER_CORE_TOPOLOGY_H

struct sg_place {
    int numa_node, nvlink, pcie; /* -1: none, or not known */
};

/** The places of devices 0 to n - 1. A setting that is wrong is warned of, and is as if it were not there. */
void sg_places(struct sg_place *out, int n);

#endif
