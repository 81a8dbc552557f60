/* memory.h - device memory for the client's own use, and managed memory that is freed as device memory. */
#ifndef RG_CLIENT_API_MEMORY_H
#define RG_CLIENT_API_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Linear memory in the current context; freed by rg_op_cuMemFree_v2. Its range is neither reserved nor noted
 * here.
 */
CUresult rg_memory_get(size_t size, CUdeviceptr *address);

/** Frees managed memory that begins at `start`; false if there is none. */
bool rg_managed_free(uint64_t start, CUresult *result);

#endif
