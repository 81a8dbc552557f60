/* functions.h - the functions of the library by the names that they have inside; generated symbols call them. */
#ifndef SG_NCCL_FUNCTIONS_H
#define SG_NCCL_FUNCTIONS_H

#include "generated/proto/nccl.h"

#define RG_EXPORT __attribute__((visibility("default")))

#define SG_NCCL_DECLARE(name) __typeof__(name) sg_##name;
RG_NCCL_FUNCTIONS(SG_NCCL_DECLARE)

/** ncclInvalidUsage: `name` is a function of a later version; ncclGetLastError says so. */
ncclResult_t sg_nccl_later(const char *name);

#endif
