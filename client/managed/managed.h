/*
 * managed.h - managed memory: memory that is shared from the beginning (client/managed/unified.h), allocated
 * or of a variable.
 */
#ifndef RG_CLIENT_MANAGED_MANAGED_H
#define RG_CLIENT_MANAGED_MANAGED_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * Pages [start, start + size) of device memory of the worker's at `base` are managed memory from now on, of
 * the current context.
 */
CUresult rg_managed_add(uint64_t base, uint64_t start, uint64_t size);
struct rg_managed_memory {
    uint64_t base, context, size;
};
/**
 * Managed memory that begins at `start` is the worker's alone from now on, which is to free it; false if
 * there is none.
 */
bool rg_managed_remove(uint64_t start, struct rg_managed_memory *out);
/**
 * The managed memory [start, start + size) of the worker's holds variables: it is shared from now on if it is
 * not yet. The current context is that of the variables, `owner` the module, or the library (`lasts`): what is a library's
 * outlives contexts, and is the host's until work begins in another one.
 */
CUresult rg_managed_variables(uint64_t owner, bool lasts, uint64_t start, uint64_t size);
/**
 * A context is about to end: brings what outlives it to the host, unless it has failed, and forgets the rest. From when the server knows
 * of the end, other threads may be given the same addresses.
 */
void rg_managed_before_end(uint64_t context, bool failed);
/** rg_unified_begin_work, which has what has outlived its context be the current one's first. */
CUresult rg_managed_begin_work(bool kernel, bool *begun);
/** Forgets the managed variables of a module or library that is unloaded. */
void rg_managed_drop_owner(uint64_t owner);
/** A context has ended: what outlives it is the host's. */
void rg_managed_drop_context(uint64_t context);

#endif
