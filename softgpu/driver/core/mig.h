/*
 * mig.h - devices that are divided, as MIG divides NVIDIA's: SOFTGPU_MIG says into which instances.
 *
 *     SOFTGPU_MIG="0=1:1G,2:2G;2=1:512M"
 *
 * Device 0 has an instance of one multiprocessor and 1 GiB of memory and one of two and 2 GiB; device 2 has one. Each has a UUID of
 * its own. A process that sees it has as many cores, if there are as many. Any thread.
 */
#ifndef SG_DRIVER_CORE_MIG_H
#define SG_DRIVER_CORE_MIG_H

#include "softgpu/driver/driver.h"

struct sg_mig_instance {
    int number; /* of the device that it is a part of */
    int index;  /* among that one's instances, from 0 */
    int multiprocessors;
    uint64_t memory;
};

/** The instances of `n` devices, those of one after the other. What is wrong is said, and divides nothing. */
int sg_mig_instances(int n, struct sg_mig_instance out[SG_DEVICES_MAX]);

#endif
