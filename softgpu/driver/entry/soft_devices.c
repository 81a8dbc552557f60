/* soft_devices.c - see soft_devices.h. */
#include "softgpu/driver/entry/soft_devices.h"

#include <string.h>

#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/range/range.h"

static struct sg_device all[2 * SG_DEVICES_MAX];
static int n_all;

static void describe_all(void)
{
    n_all = sg_devices_all(all);
}

/* The one of the devices of this process, once it has called cuInit, that has the UUID; NULL: none. */
static const struct sg_device *in_use(const CUuuid *uuid)
{
    if (sg_enter() != CUDA_SUCCESS)
        return NULL;
    for (int i = 0; i < sg_state.n_devices; i++)
        if (memcmp(&sg_state.devices[i].uuid, uuid, sizeof *uuid) == 0)
            return &sg_state.devices[i];
    return NULL;
}

static size_t tell_devices(struct rg_soft_device *out, size_t max)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, describe_all); /* settings that are wrong are said once */
    const uint32_t capability = sg_capability();
    for (int i = 0; i < n_all && (size_t)i < max; i++) {
        const struct sg_device *used = in_use(&all[i].uuid), *told = used != NULL ? used : &all[i];
        out[i] = (struct rg_soft_device){
            .capability = capability,
            .pci_domain = (unsigned)told->pci_domain,
            .pci_bus = (unsigned)told->pci_bus,
            .pci_device = (unsigned)told->pci_device,
            .memory_total = told->memory_total,
            .memory_used = used != NULL ? sg_memory_used(used) : 0,
            .in_use = used != NULL,
            .compute_mode = sg_behave_compute_mode(),
            .clock_mhz = SG_CLOCK_KHZ / 1000,
            .memory_clock_mhz = SG_MEMORY_CLOCK_KHZ / 1000,
            .bus_bits = SG_MEMORY_BUS_BITS,
            .peers = sg_behaviour()->peers,
            .numa_node = told->numa_node,
            .nvlink = told->nvlink,
            .pcie = told->pcie,
            .divided = told->divided,
            .mig = told->mig,
            .instance = (unsigned)told->instance,
        };
        memcpy(out[i].name, told->name, sizeof out[i].name);
        memcpy(out[i].uuid, told->uuid.bytes, sizeof out[i].uuid);
        memcpy(out[i].whole, told->whole.bytes, sizeof out[i].whole);
    }
    return (size_t)n_all;
}

static int tell_version(void)
{
    return sg_version()->number;
}

const struct rg_soft_devices sg_soft_devices = {sizeof sg_soft_devices, tell_version, tell_devices};
