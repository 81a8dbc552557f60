/* primary.h - calls that need a context, of threads that have none. Any thread. */
#ifndef RG_COMMON_CUDA_COMPOSED_PRIMARY_H
#define RG_COMMON_CUDA_COMPOSED_PRIMARY_H

#include <cuda.h>

/**
 * Makes the call in the primary context of a device. Where that was not active it is from then on, so that what the call has made
 * lasts; it is given back if the call fails.
 */
CUresult rg_call_in_primary_context(CUdevice device, CUresult (*call)(void *arguments), void *arguments);

#endif
