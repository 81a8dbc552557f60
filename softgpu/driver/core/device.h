/* device.h - the limits of the device model: what attributes state and launches are held to. */
#ifndef SG_DRIVER_CORE_DEVICE_H
#define SG_DRIVER_CORE_DEVICE_H

#define SG_WARP                  32
#define SG_MAX_THREADS_PER_BLOCK 1024
#define SG_MAX_BLOCK_X           1024
#define SG_MAX_BLOCK_Y           1024
#define SG_MAX_BLOCK_Z           64
#define SG_MAX_GRID_X            2147483647
#define SG_MAX_GRID_YZ           65535
#define SG_SHARED_PER_BLOCK      (48 * 1024)
#define SG_THREADS_PER_SM        1536
#define SG_BLOCKS_PER_SM         24
#define SG_CLUSTER_PORTABLE      8 /* blocks of a cluster; with leave up to SG_CLUSTER_MAX (kernel_abi.h) */
#define SG_REGISTERS_PER_SM      65536
#define SG_REGISTERS_PER_THREAD  32 /* of any kernel: there is no register file to measure */
#define SG_MAX_PITCH             2147483647

/* Textures and arrays, in texels. */
#define SG_TEXTURE_1D_MAX          131072
#define SG_TEXTURE_2D_WIDTH_MAX    131072
#define SG_TEXTURE_2D_HEIGHT_MAX   65536
#define SG_TEXTURE_3D_MAX          16384
#define SG_TEXTURE_LAYERED_MAX     32768
#define SG_TEXTURE_LAYERS_MAX      2048
#define SG_TEXTURE_CUBE_MAX        32768
#define SG_TEXTURE_CUBE_LAYERS_MAX 2046
#define SG_CLOCK_KHZ               1000000 /* %clock counts at 1 GHz */
#define SG_MEMORY_CLOCK_KHZ        1000000
#define SG_MEMORY_BUS_BITS         64
#define SG_TEXTURE_LINEAR_MAX      (1 << 28)
#define SG_TEXTURE_PITCHED_MAX     131072
#define SG_TEXTURE_ALIGNMENT_1D    512 /* bytes */
#define SG_TEXTURE_PITCH_ALIGNMENT 32

#include "softgpu/driver/driver.h"

/* The device of an ordinal, for a call that needs no context, or return. */
#define SG_DEVICE_OR_RETURN(var, ordinal)                                                                    \
    RG_TRY(sg_enter());                                                                                      \
    struct sg_device *var = sg_device(ordinal);                                                              \
    if (var == NULL)                                                                                         \
    return CUDA_ERROR_INVALID_DEVICE

/**
 * Bytes of shared memory: of a multiprocessor, what each block takes of them besides its own, and what is left for one block. As
 * devices of the same compute capability have them (cuda_occupancy.h), which libraries take for granted; unknown ones have most.
 */
unsigned sg_shared_per_multiprocessor(void);
unsigned sg_shared_reserved(void);
unsigned sg_shared_optin(void);

/**
 * Describes all devices, as they are before any is used: visible or not, initialised or not; then the instances of those that are
 * divided. Returns how many there are.
 */
int sg_devices_all(struct sg_device out[2 * SG_DEVICES_MAX]);
/** The compute capability that the devices have or, before cuInit, would have now: 130 for 13.0. */
uint32_t sg_capability(void);

#endif
