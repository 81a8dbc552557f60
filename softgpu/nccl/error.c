/* error.c - what the process's last error was (sg_nccl_fail, clique.h). */
#include "common/base/log.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/functions.h"

#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512];

ncclResult_t sg_nccl_fail(ncclResult_t result, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&last_lock);
    snprintf(last_error, sizeof last_error, "%s", text);
    pthread_mutex_unlock(&last_lock);
    rg_info("NCCL: %s", text);
    return result;
}

const char *sg_ncclGetLastError(ncclComm_t comm)
{
    static __thread char copy[sizeof last_error];
    (void)comm; /* NCCL's is the process's, too */
    pthread_mutex_lock(&last_lock);
    snprintf(copy, sizeof copy, "%s", last_error);
    pthread_mutex_unlock(&last_lock);
    return copy;
}
