/*
 * jit.c - options of the calls that load and link code: what of them counts here is where the logs and the time go. Any
 * thread; an option that there is not is CUDA_ERROR_INVALID_VALUE.
 */
#include <string.h>

#include "common/base/clock.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/module/module.h"

CUresult sg_jit_options(struct sg_load_options *jit, unsigned n, const CUjit_option *options, void **values)
{
    memset(jit, 0, sizeof *jit);
    jit->started = rg_now_ns();
    if (n > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        switch ((int)options[i]) {
        case CU_JIT_WALL_TIME:
            jit->wall_time = &values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            jit->info_log = values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            jit->info_size = (uintptr_t)values[i] & 0xffffffffu;
            jit->info_size_out = &values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            jit->error_log = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            jit->error_size = (uintptr_t)values[i] & 0xffffffffu;
            jit->error_size_out = &values[i];
            break;
        default: /* what is left guides code for real hardware */
            if ((int)options[i] < 0 || (int)options[i] >= sg_version()->jit_options)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        }
    }
    return CUDA_SUCCESS;
}

static size_t write_log(char *buffer, size_t size, const char *text, size_t length)
{
    if (buffer == NULL || size == 0)
        return 0;
    size_t n = length < size - 1 ? length : size - 1;
    memcpy(buffer, text, n);
    buffer[n] = '\0';
    return n > 0 ? n + 1 : 0;
}

void sg_jit_report(const struct sg_load_options *jit, const struct sg_text *log, bool failed)
{
    const char *text = log->data != NULL ? log->data : "";
    size_t length = strlen(text);
    size_t error = write_log(jit->error_log, jit->error_size, failed ? text : "", failed ? length : 0);
    size_t info = write_log(jit->info_log, jit->info_size, failed ? "" : text, failed ? 0 : length);
    if (jit->error_size_out != NULL)
        *jit->error_size_out = (void *)(uintptr_t)error;
    if (jit->info_size_out != NULL)
        *jit->info_size_out = (void *)(uintptr_t)info;
    if (jit->wall_time != NULL) {
        float ms = (float)((double)(rg_now_ns() - jit->started) / 1e6);
        memcpy(jit->wall_time, &ms, sizeof ms);
    }
}
