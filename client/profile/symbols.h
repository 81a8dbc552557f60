/*
 * symbols.h - what an address of code is: module, function, file and line.
 *
 * The dynamic linker knows modules and exported functions. With libdw, which is looked for at the first use,
 * functions come from the full symbol table and lines from DWARF, as far as the file itself has them
 * (debuginfod is not asked).
 */
#ifndef RG_CLIENT_PROFILE_SYMBOLS_H
#define RG_CLIENT_PROFILE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct rg_symbol {
    char module[256];   /* the file's name without its folder; "": unknown */
    uint64_t offset;    /* in the module */
    char function[512]; /* demangled where that is possible; "": unknown */
    char file[512];     /* "": unknown */
    int line;
    bool ours; /* of remote-gpu's own client */
};

/**
 * Describes the call before the return address. `lines`: with libdw, which takes time. One thread at a time.
 */
void rg_symbol_find(const void *return_address, bool lines, struct rg_symbol *symbol);

#endif
