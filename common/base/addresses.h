/*
 * addresses.h - which addresses are used for what, where client and server decide: device memory has the same addresses in the
 * client's process as on the server, and page-locked memory of the client has them there.
 *
 * Everything is below 2^47, what x86-64 processes get unless they ask for more.
 */
#ifndef RG_COMMON_BASE_ADDRESSES_H
#define RG_COMMON_BASE_ADDRESSES_H

#include <stdint.h>

#define RG_ADDRESS_END  (1ull << 47)
#define RG_ADDRESS_PAGE 4096ull

/* Page-locked memory that the client allocates. */
#define RG_ADDRESS_HOST_START 0x0000300000000000ull
#define RG_ADDRESS_HOST_SIZE  (8ull << 40)

/*
 * The software device confines kernels to what is below this (softgpu/guest.h), so windows are there. Page-locked memory
 * from here on is mapped a second time in the worker, at its address less this: where clients have their heaps
 * (0x5550… and up) and their libraries (0x7000… and up) no window is either.
 */
#define RG_ADDRESS_CONFINED_END (1ull << 46)

/*
 * A window of device addresses, and where the first one is if nothing else is there. A program with one server has more: NVIDIA's driver
 * reserves addresses for twice the GPU's memory for each memory pool.
 */
#define RG_ADDRESS_WINDOW_START 0x0000200000000000ull
#define RG_ADDRESS_WINDOW_SIZE  (4ull << 40)
#define RG_ADDRESS_WINDOW_ALONE (RG_ADDRESS_HOST_START - RG_ADDRESS_WINDOW_START)
#define RG_ADDRESS_WINDOW_LEAST (1ull << 30)

/*
 * What NVIDIA's driver takes for itself by fixed addresses when it is initialised, which fails where it cannot (programs with
 * the address sanitizer, whose shadow gap is there, have to say protect_shadow_gap=0; see /proc/PID/maps of any CUDA program):
 * from 8 GiB on, 4 GiB or more with the number of devices, and from 1 TiB on, 64 MiB or some GiB. Some of it becomes device memory,
 * as that of memory pools. The end is below the address sanitizer's own shadow.
 */
#define RG_ADDRESS_LOW_START 0x0000000200000000ull
#define RG_ADDRESS_LOW_NEXT  0x0000010000000000ull
#define RG_ADDRESS_LOW_END   0x0000020000000000ull

/*
 * How far from its stack the libraries of a worker's process are. The kernel puts what a process maps below a gap that the
 * stack may grow into, as large as the limit of its size; 17 TiB is more than its random offsets are (vm.mmap_rnd_bits is 32 at
 * most), so that they are not where a client's are, whose page-locked memory the worker must have at the client's addresses.
 */
#define RG_ADDRESS_STACK_GAP (17ull << 40)

/**
 * The first address of the window of part `part` (0, 1, …) where it is where it belongs; behind what confined kernels can
 * reach if there are more parts than places: then it is to be elsewhere.
 */
static inline uint64_t rg_address_window(uint32_t part)
{
    /* in units of a window: from its start to the page-locked memory; below; behind, where aliases may be in the way */
    static const uint8_t places[] = {8, 9, 10, 11, 1, 2, 3, 4, 6, 14, 15};
    const uint32_t n = sizeof places / sizeof *places;
    return (part < n ? places[part] : 16 + (uint64_t)(part - n)) * RG_ADDRESS_WINDOW_SIZE;
}

#endif
