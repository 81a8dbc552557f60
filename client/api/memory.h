/* memory.h - device memory for the client's own use. */
#ifndef RG_CLIENT_API_MEMORY_H
#define RG_CLIENT_API_MEMORY_H

#include <cuda.h>
#include <stddef.h>

/** Linear memory in the current context; freed by rg_op_cuMemFree_v2. Its range is neither reserved nor noted here. */
CUresult rg_memory_get(size_t size, CUdeviceptr *address);

#endif
