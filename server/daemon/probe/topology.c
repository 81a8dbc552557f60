/*
 * topology.c - see topology.h.
 *
 * NVML is asked of each pair: NVLink is what its peer-to-peer status says of NVLink, which holds for pairs that are linked directly or by
 * NVSwitches; below one PCIe switch is whatever meets before a host bridge. What NVML does not answer is not known.
 */
#include "server/daemon/probe/topology.h"

#include "common/base/uuid_text.h"
#include "server/daemon/probe/gpu_groups.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* nvml.h: nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t */
enum { P2P_BY_NVLINK = 2, P2P_OK = 0, TOPOLOGY_INTERNAL = 0, TOPOLOGY_MULTIPLE = 20 };

struct topology {
    int (*by_uuid)(const char *, void **);
    int (*ancestor)(void *, void *, int *);
    int (*peers)(void *, void *, int, int *);
    void *handles[RG_DEVICES_MAX]; /* NULL: NVML does not know it */
};

static bool by_nvlink(void *data, uint32_t one, uint32_t other)
{
    const struct topology *topology = data;
    int status = -1;
    return topology->peers && topology->handles[one] && topology->handles[other] &&
           topology->peers(topology->handles[one], topology->handles[other], P2P_BY_NVLINK, &status) == 0 &&
           status == P2P_OK;
}

static bool by_switch(void *data, uint32_t one, uint32_t other)
{
    const struct topology *topology = data;
    int level = -1;
    return topology->ancestor && topology->handles[one] && topology->handles[other] &&
           topology->ancestor(topology->handles[one], topology->handles[other], &level) == 0 &&
           level >= TOPOLOGY_INTERNAL && level <= TOPOLOGY_MULTIPLE;
}

/* By the kernel: "0000:65:00.0" in lower case. One more than the node; 0: not known. */
static uint32_t numa_node(const char *pci)
{
    char path[96], name[sizeof((struct rg_device_info *)0)->pci];
    int node = -1;
    snprintf(name, sizeof name, "%s", pci);
    for (char *at = name; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", name);
    FILE *file = *pci && !strchr(pci, '/') ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node >= 0 && node < 1 << 16 ? (uint32_t)node + 1 : 0;
}

void rg_topology_look(void *nvml, struct rg_device_info *devices, uint32_t n)
{
    struct topology topology = {0};
    int32_t nvlink[RG_DEVICES_MAX], pcie[RG_DEVICES_MAX];
    if (nvml) {
        topology.by_uuid = dlsym(nvml, "nvmlDeviceGetHandleByUUID");
        topology.ancestor = dlsym(nvml, "nvmlDeviceGetTopologyCommonAncestor");
        topology.peers = dlsym(nvml, "nvmlDeviceGetP2PStatus");
    }
    for (uint32_t i = 0; i < n; i++) {
        char uuid[RG_UUID_TEXT];
        if (!topology.by_uuid || topology.by_uuid(rg_uuid_text(devices[i].uuid, false, uuid, sizeof uuid),
                                                  &topology.handles[i]) != 0)
            topology.handles[i] = NULL;
        if (!devices[i].numa_node)
            devices[i].numa_node = numa_node(devices[i].pci);
    }
    rg_gpu_groups(n, by_nvlink, &topology, nvlink);
    rg_gpu_groups(n, by_switch, &topology, pcie);
    for (uint32_t i = 0; i < n; i++) {
        devices[i].nvlink_group = (uint32_t)(nvlink[i] + 1);
        devices[i].pcie_group = (uint32_t)(pcie[i] + 1);
    }
}
