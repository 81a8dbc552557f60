/* coredump.c - see coredump.h. Sizes and values are those that cuda.h documents. */
#include "common/cuda/coredump.h"

#include <string.h>

#define KNOWN_FLAGS ((unsigned)CU_COREDUMP_LIGHTWEIGHT_FLAGS | (unsigned)CU_COREDUMP_SKIP_ABORT)

size_t rg_coredump_size(CUcoredumpSettings setting)
{
    switch ((int)setting) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return sizeof(bool);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        return RG_COREDUMP_NAME_MAX;
    case CU_COREDUMP_GENERATION_FLAGS:
        return sizeof(unsigned);
    default:
        return 0;
    }
}

bool rg_coredump_value_good(CUcoredumpSettings setting, const void *value, size_t size)
{
    const size_t exact = rg_coredump_size(setting);
    unsigned flags;
    if (exact == RG_COREDUMP_NAME_MAX)
        return size != 0 && size <= exact && memchr(value, '\0', size) != NULL;
    if (exact == 0 || size != exact)
        return false;
    if (setting != CU_COREDUMP_GENERATION_FLAGS)
        return *(const unsigned char *)value <= 1;
    memcpy(&flags, value, sizeof flags);
    return (flags & ~KNOWN_FLAGS) == 0;
}

bool rg_coredump_of_server(CUcoredumpSettings setting, const void *value)
{
    switch ((int)setting) {
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        return true;
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return *(const unsigned char *)value != 0;
    default:
        return false;
    }
}

CUresult rg_coredump_context_flags(unsigned flags)
{
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    if (!(flags & (CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE)))
        return CUDA_SUCCESS;
    /* flags that no context can have are that first */
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) || (schedule & (schedule - 1)) ? CUDA_ERROR_INVALID_VALUE
                                                                                 : CUDA_ERROR_NOT_PERMITTED;
}
