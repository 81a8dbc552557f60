/* jit_options.c - see jit_options.h. */
#include "client/cache/jit_options.h"

#include "client/core/call.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/printable.h"

#include <string.h>

/*
 * One log: at most `size` bytes with the NUL, and how many were written: cuda.h's "amount of log buffer filled with messages",
 * which is nothing where there is no message.
 */
static void write_log(const char *text, size_t length, char *buffer, size_t size, void **size_out)
{
    if (size_out)
        *size_out = NULL;
    if (!buffer || !size)
        return;
    if (length > size - 1)
        length = size - 1;
    memcpy(buffer, text, length);
    rg_printable_clean_lines(buffer, length); /* programs show it */
    buffer[length] = '\0';
    if (size_out && length)
        *size_out = (void *)(uintptr_t)(length + 1);
}

CUresult rg_jit_read(struct rg_jit *jit, unsigned count, const CUjit_option *options, void *const *values)
{
    *jit = (struct rg_jit){.began = rg_now_ns()};
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    if (count > RG_JIT_OPTIONS)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
            jit->info = values[i];
            continue;
        case CU_JIT_ERROR_LOG_BUFFER:
            jit->error = values[i];
            continue;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            jit->info_size = (unsigned)(uintptr_t)values[i];
            jit->info_size_out = (void **)(uintptr_t)&values[i];
            continue;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            jit->error_size = (unsigned)(uintptr_t)values[i];
            jit->error_size_out = (void **)(uintptr_t)&values[i];
            continue;
        case CU_JIT_WALL_TIME:
            jit->wall_time = (void **)(uintptr_t)&values[i];
            continue;
        case CU_JIT_GLOBAL_SYMBOL_NAMES:
        case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
        case CU_JIT_REFERENCED_KERNEL_NAMES:
        case CU_JIT_REFERENCED_VARIABLE_NAMES:
            return rg_unsupported("module loading with JIT options that name symbols");
        default:
            jit->options[jit->count] = options[i];
            jit->values[jit->count++] = (unsigned long long)(uintptr_t)values[i];
        }
    }
    if (!jit->info)
        jit->info_size = 0;
    if (!jit->error)
        jit->error_size = 0;
    return CUDA_SUCCESS;
}

/* One log of the worker's. */
static void copy_log(struct rg_reader *in, char *buffer, size_t size, void **size_out)
{
    const size_t length = rg_get_count(in, RG_REPLY_INLINE, 1);
    const char *text = rg_get(in, length);
    if (text)
        write_log(text, length, buffer, size, size_out);
}

void rg_jit_fail(struct rg_jit *jit, const char *text)
{
    write_log("", 0, jit->info, jit->info_size, jit->info_size_out);
    write_log(text, strlen(text), jit->error, jit->error_size, jit->error_size_out);
}

void rg_jit_done(const struct rg_jit *jit)
{
    const float ms = (float)((double)(rg_now_ns() - jit->began) / 1e6);
    if (jit->wall_time)
        memcpy(jit->wall_time, &ms, sizeof ms); /* the value becomes a float (cuda.h) */
}

void rg_jit_answer(struct rg_jit *jit, struct rg_reader *reply)
{
    if (rg_left(reply) == 0)
        return;
    copy_log(reply, jit->info, jit->info_size, jit->info_size_out);
    copy_log(reply, jit->error, jit->error_size, jit->error_size_out);
}
