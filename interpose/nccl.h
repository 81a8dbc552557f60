/*
 * nccl.h - how the functions of libnccl.so.2 find their implementation, as load.h for the driver's: the first call loads the client
 * core. If that is not possible, the reason is told once on stderr and every call returns ncclSystemError.
 */
#ifndef RG_INTERPOSE_NCCL_H
#define RG_INTERPOSE_NCCL_H

#include "generated/proto/nccl.h"
#include "interpose/core.h"

/** Where a call of that function goes. The first one in a process loads the client. Any thread. */
void *rg_nccl_entry(enum rg_nccl_function function);
/** ncclInvalidUsage: `name` is a function of a later version. The first of them is named on stderr. Any thread. */
ncclResult_t rg_nccl_later(const char *name);

#endif
