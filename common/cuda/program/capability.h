/*
 * capability.h - which compute capability the software device should report to a program.
 *
 * A device that has no machine code is best served by a capability above all that exist: NVIDIA's libraries then take
 * their PTX (docs/softgpu-libraries.md). But some programs compile at run time for exactly the capability that they
 * find, and their compilers must know it. Both cannot be had from one number, so it is chosen by process: as the user
 * says (SOFTGPU_CC), else by what the program's own kernels are for, else by what is loaded when the program first asks;
 * and those libraries are told another one.
 */
#ifndef RG_COMMON_CUDA_PROGRAM_CAPABILITY_H
#define RG_COMMON_CUDA_PROGRAM_CAPABILITY_H

#include <stddef.h>

#define RG_CAPABILITY_NEWEST    121 /* that compilers of today know */
#define RG_CAPABILITY_ABOVE_ALL 130 /* that libraries have machine code for */

/**
 * The capability that this process does best with, as major * 10 + minor: SOFTGPU_CC if it is a number like 12.1, else
 * that of its own kernels if they are for certain architectures alone (compute_90a), else that of the compilers that are
 * loaded, else 0 (none is wanted). Threads: any.
 */
unsigned rg_capability_wanted(void);
/**
 * What is said to `asker`, an address of the code that asks, of a software device of this capability: another one to NVIDIA's
 * libraries that take machine code for the devices that they know (cuBLAS), where rg_capability_wanted has chosen by what is
 * loaded. Threads: any.
 */
unsigned rg_capability_told(const void *asker, unsigned capability);
/** Who made this thread's last call of those whose answer depends on it (`asker` in proto/api), as its wrapper has seen it. */
extern __thread const void *rg_capability_asker;
/** Understands "12.1". 0: it is none. */
unsigned rg_capability_parse(const char *text);
/**
 * What a program with these images wants, pointers as cuLibraryLoadData takes them: the lowest capability for which each has PTX, if one of
 * them has none for other devices; 0: none, or there is no such capability.
 */
unsigned rg_capability_of_images(const void *const *images, size_t n);
/** What is wanted by a process in which the objects with these paths are loaded (ended by NULL); for tests. */
unsigned rg_capability_of_objects(const char *const *paths);

#endif
