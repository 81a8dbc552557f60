/*
 * capability.h - which compute capability the software device should report to a program.
 *
 * A device that has no machine code is best served by a capability above all that exist: NVIDIA's libraries then take
 * their PTX (docs/softgpu-libraries.md). But some programs compile at run time for exactly the capability that they
 * find, and their compilers must know it. Both cannot be had from one number, so it is chosen by process: as the user
 * says (SOFTGPU_CC), else by what is loaded when the program first asks.
 */
#ifndef RG_COMMON_CUDA_CAPABILITY_H
#define RG_COMMON_CUDA_CAPABILITY_H

/**
 * The capability that this process does best with, as major * 10 + minor: SOFTGPU_CC if it is a number like 12.1, else
 * that of the compilers that are loaded, else 0 (none is wanted). Threads: any.
 */
unsigned rg_capability_wanted(void);
/** Understands "12.1". 0: it is none. */
unsigned rg_capability_parse(const char *text);
/** What is wanted by a process in which the objects with these paths are loaded (ended by NULL); for tests. */
unsigned rg_capability_of_objects(const char *const *paths);

#endif
