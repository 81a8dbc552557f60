/*
 * ptx_carrier.h - ELF files in the place of machine code that carry the PTX it would have been made of.
 *
 * A device that runs PTX alone has no machine code of its own, but compilers (NVRTC, nvJitLink) and the programs that
 * use them hold compiled code as ELF files for a named architecture, and nvJitLink links such files. A carrier is
 * one: its PTX is the initial value of a variable, which every linker of device code keeps and puts beside
 * those of other files. So what comes out of a link of carriers carries all of their PTX, and the device links
 * that when it is loaded.
 *
 * The layout is that of files which ptxas makes for a module with one variable; the linkers of CUDA 12.1 to 13.5 take
 * it. For architectures before 10.0 it names CUDA 12.0, as a linker takes no file of a later release than its own.
 */
#ifndef RG_COMMON_CUDA_PTX_CARRIER_H
#define RG_COMMON_CUDA_PTX_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Makes a carrier of `size` bytes of text for an architecture like 120; `relocatable`: it is going to be linked.
 * Returns NULL if there is no memory; otherwise *carrier_size bytes to be freed with free().
 */
void *rg_ptx_carrier_make(const char *text, size_t size, unsigned architecture, bool relocatable,
                          size_t *carrier_size);

/** Where the next text in an ELF file is looked for. */
struct rg_ptx_carrier {
    const unsigned char *at, *end;
};

/** Looks at `size` bytes of any origin. False if that is no ELF file with a place where texts could be. */
bool rg_ptx_carrier_open(struct rg_ptx_carrier *carrier, const void *elf, uint64_t size);
/** Gives the next text, which lies in the file and need not end with NUL. False at the end. */
bool rg_ptx_carrier_next(struct rg_ptx_carrier *carrier, const char **text, size_t *size);

#endif
