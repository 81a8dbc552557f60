/* hints.h - what hints about managed memory ask of the client, or of the software device, which define these. Any thread. */
#ifndef RG_COMMON_CUDA_COMPOSED_HINTS_H
#define RG_COMMON_CUDA_COMPOSED_HINTS_H

#include <cuda.h>
#include <stddef.h>

/** Whether it may be asked for, and [address, address + size) is managed memory: else what the call returns. */
CUresult rg_hint_check(CUdeviceptr address, size_t size);
/** The same of a stream. */
CUresult rg_hint_check_stream(CUstream stream);
/** The host will use this memory soon. */
void rg_hint_expect_host(CUdeviceptr address, size_t size);

#endif
