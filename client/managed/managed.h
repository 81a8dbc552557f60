/*
 * managed.h - managed memory: memory that is shared from the beginning (client/managed/unified.h), allocated or of a variable.
 */
#ifndef RG_CLIENT_MANAGED_MANAGED_H
#define RG_CLIENT_MANAGED_MANAGED_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/** Frees managed memory that begins at `start`; false if there is none. */
bool rg_managed_free(uint64_t start, CUresult *result);
/**
 * The managed memory [start, start + size) of the worker's holds variables: it is shared from now on if it is not yet.
 * The current context is that of the variables, `owner` the module or library.
 */
CUresult rg_managed_variables(uint64_t owner, uint64_t start, uint64_t size);
/** Forgets the managed variables of a module or library that is unloaded. */
void rg_managed_drop_owner(uint64_t owner);
/** Forgets the managed memory of a context that has ended. */
void rg_managed_drop_context(uint64_t context);

#endif
