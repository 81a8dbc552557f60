/*
 * load.h - how an exported function of the stand-in library finds its implementation.
 *
 * The library itself does nothing when it is loaded: no constructor, no thread, no dependency but libc. The first call
 * of any CUDA function loads the client core (client.so beside this library) locally, so that neither it nor what it
 * needs enters the application's symbol scope. If it cannot be loaded, the reason is told once on stderr and every
 * call returns CUDA_ERROR_SYSTEM_NOT_READY.
 */
#ifndef RG_INTERPOSE_LOAD_H
#define RG_INTERPOSE_LOAD_H

#include "generated/proto/api_table.h"
#include "interpose/core.h"

/** The client core's table, once loaded; read with acquire. */
extern void *const *rg_interpose_table;
/** Loads the core and returns the table to use: that of the thread that came first. */
void *const *rg_interpose_load(void);

static inline void *rg_entry(int index)
{
    void *const *table = __atomic_load_n(&rg_interpose_table, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!table, 0))
        table = rg_interpose_load();
    return table[index];
}

#endif
