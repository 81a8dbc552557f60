/* jit_options.c - the options of a load or of a linker, and its logs. */
#include "server/api/jit_options.h"
#include "common/base/log.h"

#include <string.h>

/* Whether its value is a number, and so means the same here as at the client. */
static bool travels(CUjit_option option)
{
    switch ((int)option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
        return false;
    default:
        return (int)option >= 0 && option <= CU_JIT_SPLIT_COMPILE; /* the last whose meaning is known here */
    }
}

static void add(struct rg_jit_options *to, CUjit_option option, void *value)
{
    to->options[to->count] = option;
    to->values[to->count++] = value;
}

CUresult rg_jit_options_read(struct rg_request *request, struct rg_jit_options *out, unsigned count,
                             const CUjit_option *options, const unsigned long long *values)
{
    out->count = 0;
    if (count > RG_JIT_OPTIONS_MAX - 4) /* and the logs */
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (!travels(options[i])) {
            rg_warn("session %llu: JIT option %d cannot be passed on",
                    (unsigned long long)request->worker->session, (int)options[i]);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        add(out, options[i], (void *)(uintptr_t)values[i]);
    }
    return CUDA_SUCCESS;
}

size_t rg_jit_log_size(size_t size)
{
    return size < RG_JIT_LOG_MAX ? size : RG_JIT_LOG_MAX;
}

void rg_jit_options_add_logs(struct rg_jit_options *to, char *info, size_t info_size, char *error,
                             size_t error_size)
{
    if (info_size) {
        add(to, CU_JIT_INFO_LOG_BUFFER, info);
        add(to, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, (void *)info_size);
    }
    if (error_size) {
        add(to, CU_JIT_ERROR_LOG_BUFFER, error);
        add(to, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, (void *)error_size);
    }
}

void rg_jit_output_log(struct rg_request *request, const char *log, size_t size)
{
    const uint64_t length = log ? strnlen(log, size) : 0;
    rg_request_output(request, &length, sizeof length);
    rg_request_output(request, log, length);
}
