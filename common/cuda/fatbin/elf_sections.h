/*
 * elf_sections.h - the sections of a cubin and their names, with every offset checked, and an end to what is looked at:
 * parts of a file may lie on top of each other, and entries of a fat binary unpack to much more than they are. Any thread.
 */
#ifndef RG_COMMON_CUDA_FATBIN_ELF_SECTIONS_H
#define RG_COMMON_CUDA_FATBIN_ELF_SECTIONS_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

/** How much may still be looked at. */
struct rg_look {
    uint64_t left; /* bytes */
    bool stopped;  /* they did not suffice */
};

/** Before `bytes` are looked at; false: that is too much. */
bool rg_look_at(struct rg_look *look, uint64_t bytes);

struct rg_elf {
    const unsigned char *data;
    uint64_t size;
    Elf64_Ehdr header;
};

/** Begins with `size` bytes that were found to be a 64-bit ELF file. False: they are too few for a header. */
bool rg_elf_open(struct rg_elf *elf, const void *data, uint64_t size);
/** The header of a section whose bytes, if it has any, lie in the file. */
bool rg_elf_section(const struct rg_elf *elf, uint64_t index, Elf64_Shdr *section);
/** A name of the table of names `index`; NULL: there is none that ends in it, or it is too much to look at. */
const char *rg_elf_name(const struct rg_elf *elf, uint64_t index, uint64_t offset, struct rg_look *look);

#endif
