/*
 * context_storage.h - what a CUDA runtime and CUDA's libraries keep with a context: values by keys, each with a destructor
 * (cuGetExportTable's c693336e). Any thread; destructors run without a lock.
 */
#ifndef RG_COMMON_CUDA_CONTEXT_STORAGE_H
#define RG_COMMON_CUDA_CONTEXT_STORAGE_H

#include "common/cuda/api.h"

typedef void (*rg_context_storage_destructor)(CUcontext context, void *key, void *value);

/** Replaces what was there, whose destructor does not run. `context` NULL: CUDA_ERROR_INVALID_CONTEXT. */
CUresult rg_context_storage_put(CUcontext context, void *key, void *value,
                                rg_context_storage_destructor destroy);
/** CUDA_ERROR_INVALID_HANDLE, and *value as it was, where nothing is there. */
CUresult rg_context_storage_get(void **value, CUcontext context, const void *key);
/** Forgets the value; its destructor does not run. */
CUresult rg_context_storage_delete(CUcontext context, const void *key);
/** To be called when the life of a context ends: runs the destructors of what was stored with it. */
void rg_context_storage_end(CUcontext context);

#endif
