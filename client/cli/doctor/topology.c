/*
 * topology.c - where adapters and GPUs are: NUMA nodes, and what stands between them (IOMMU, ATS,
 * peer-to-peer).
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PCI "/sys/bus/pci/devices"

enum { GPUS_MAX = 64, CONFIG_SIZE = 4096, EXTENDED = 256, CAPABILITY_ATS = 0x0f };

struct gpu {
    char pci[64];
    long node;
};

static unsigned find_gpus(const struct rg_doctor *doctor, struct gpu *out)
{
    static struct rg_tree_names list;
    unsigned n = 0;
    rg_tree_list(doctor, &list, PCI);
    for (unsigned i = 0; i < list.n && n < GPUS_MAX; i++)
        if (rg_tree_number(doctor, 0, PCI "/%s/vendor", list.names[i]) == 0x10de &&
            rg_tree_number(doctor, 0, PCI "/%s/class", list.names[i]) >> 16 == 0x03) {
            snprintf(out[n].pci, sizeof out[n].pci, "%s", list.names[i]);
            out[n++].node = rg_tree_number(doctor, -1, PCI "/%s/numa_node", list.names[i]);
        }
    return n;
}

static void check_numa(struct rg_doctor *doctor, const struct rg_doctor_device *device,
                       const struct gpu *gpus, unsigned n)
{
    long node = rg_tree_number(doctor, -1, "/sys/class/infiniband/%s/device/numa_node", device->name);
    const struct gpu *first = NULL; /* of those that are far */
    unsigned far = 0;
    for (unsigned i = 0; i < n; i++)
        if (gpus[i].node >= 0 && node >= 0 && gpus[i].node != node) {
            first = first ? first : &gpus[i];
            far++;
        }
    if (node < 0)
        rg_doctor_say(doctor, RG_CHECK_OK, "numa", NULL, "%s: one NUMA node, or not told", device->name);
    else if (far == 0)
        rg_doctor_say(doctor, RG_CHECK_OK, "numa", NULL, "%s: on NUMA node %ld%s", device->name, node,
                      n ? ", as the GPUs" : "");
    else
        rg_doctor_say(doctor, RG_CHECK_WARNING, "numa",
                      "serve these GPUs by an adapter of their own node, or move the adapter to a slot there",
                      "%s: on NUMA node %ld; %u of %u GPUs are on another (%s on %ld)", device->name, node,
                      far, n, first->pci, first->node);
}

static uint32_t word(const unsigned char *config, size_t at)
{
    return config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
           (uint32_t)config[at + 3] << 24;
}

/* 1: on, 0: off, -1: not there, -2: not to be read (extended configuration space is root's). */
static int ats_state(const struct rg_doctor *doctor, const char *pci)
{
    static unsigned char config[CONFIG_SIZE + 1];
    size_t size = rg_tree_read(doctor, (char *)config, sizeof config, PCI "/%s/config", pci);
    if (size <= EXTENDED)
        return -2;
    size_t at = EXTENDED;
    for (int steps = 0; steps < 64 && at >= EXTENDED && at + 8 <= size; steps++) {
        uint32_t header = word(config, at);
        if ((header & 0xffff) == CAPABILITY_ATS)
            return (int)(word(config, at + 4) >> 31);
        at = header >> 20 & 0xffc;
    }
    return -1;
}

static void check_peers(struct rg_doctor *doctor, const struct rg_doctor_device *device)
{
    static const char *const states[] = {"cannot be read by this user", "is not there", "is off", "is on"};
    static struct rg_tree_names groups;
    char line[4096];
    int ats = device->pci[0] ? ats_state(doctor, device->pci) : -2;
    rg_tree_line(doctor, line, sizeof line, "/proc/cmdline");
    rg_tree_list(doctor, &groups, "/sys/kernel/iommu_groups");
    bool translates = groups.n > 0 && !strstr(line, "iommu=pt") && !strstr(line, "iommu.passthrough=1");
    bool peer_memory = rg_tree_exists(doctor, "/sys/module/nvidia_peermem") ||
                       rg_tree_exists(doctor, "/sys/module/nv_peer_mem");
    bool dma_buf =
        rg_tree_exists(doctor, "/sys/module/nvidia") && rg_tree_exists(doctor, "/sys/module/ib_uverbs");
    const char *peer = peer_memory ? "the peer memory module is loaded"
                       : dma_buf   ? "no peer memory module (dma-buf may serve with the open driver)"
                                   : "no peer memory module";
    if (translates && ats != 1)
        rg_doctor_say(
            doctor, RG_CHECK_WARNING, "peer-to-peer",
            "iommu=pt on the kernel's command line; ATS on in the adapter (mlxconfig set ATS_ENABLED=1)",
            "%s: an IOMMU translates, and ATS %s, so that direct transfers with the GPU take a detour; %s",
            device->name, states[ats + 2], peer);
    else
        rg_doctor_say(doctor, peer_memory || dma_buf ? RG_CHECK_OK : RG_CHECK_WARNING, "peer-to-peer",
                      peer_memory || dma_buf ? NULL : "modprobe nvidia_peermem", "%s: %s, ATS %s; %s",
                      device->name, groups.n ? "the IOMMU passes through" : "no IOMMU", states[ats + 2],
                      peer);
}

void rg_doctor_topology(struct rg_doctor *doctor)
{
    struct gpu gpus[GPUS_MAX];
    unsigned n = find_gpus(doctor, gpus);
    for (unsigned i = 0; i < doctor->n_devices; i++) {
        if (!doctor->devices[i].driver[0])
            continue; /* a device of software is nowhere */
        check_numa(doctor, &doctor->devices[i], gpus, n);
        if (n > 0)
            check_peers(doctor, &doctor->devices[i]);
    }
}
