/*
 * soft_devices.h - what the software device tells its management library: a table that cuGetExportTable of the software
 * device gives by an id of its own. No other driver knows it.
 *
 * Nothing of it needs cuInit, or does what cuInit does: programs ask NVML before they decide whether they use a GPU in
 * this process, and fork afterwards. Any thread.
 */
#ifndef RG_COMMON_CUDA_SOFT_DEVICES_H
#define RG_COMMON_CUDA_SOFT_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of the table's id. */
#define RG_SOFT_DEVICES_ID "remote-gpu: soft"

struct rg_soft_device {
    char name[64];
    uint8_t uuid[16];
    unsigned capability; /* 130 for 13.0 */
    unsigned pci_domain, pci_bus, pci_device;
    uint64_t memory_total;
    uint64_t memory_used;                           /* by this process */
    bool in_use;                                    /* this process has called cuInit and sees the device */
    int compute_mode;                               /* CU_COMPUTEMODE_…, which NVML's are equal to */
    unsigned clock_mhz, memory_clock_mhz, bus_bits; /* as CUDA's attributes have them; they never change */
    bool peers;                                     /* it can access other devices' memory */
    int numa_node;                                  /* of the machine; -1: not known */
    int nvlink,
        pcie;     /* devices with the same number are linked by NVLink, or below one PCIe switch; -1: none */
    bool divided; /* as by MIG: its instances stand behind all devices */
    bool mig;     /* it is an instance … */
    unsigned instance; /* … of this number, from 0 … */
    uint8_t whole[16]; /* … of the device with this UUID */
};

struct rg_soft_devices {
    size_t size; /* of this structure */
    int (*driver_version)(void);
    /** All devices, whatever CUDA_VISIBLE_DEVICES says, then instances; at most `max`, returns how many there are. */
    size_t (*devices)(struct rg_soft_device *out, size_t max);
};

#endif
