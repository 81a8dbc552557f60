/*
 * errors.c - what NCCL's functions say of failures: results, and the sentence of the last one, which is the client's or the server's
 * library's. See nccl.h. Any thread.
 */
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/nccl/nccl.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows; a leaf */
static char last_error[RG_NCCL_TEXT_BYTES];

static void set_last_error(const char *text)
{
    RG_SCOPED_LOCK(&lock);
    snprintf(last_error, sizeof last_error, "%s", text);
}

ncclResult_t rg_nccl_fail(ncclResult_t result, const char *format, ...)
{
    char text[RG_NCCL_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_last_error(text);
    rg_info("NCCL: %s", text);
    return result;
}

/* What the server's library says of its last failure. */
static void ask_why(const struct rg_session *session)
{
    char text[RG_NCCL_TEXT_BYTES] = "";
    if (rg_op_rgNcclError(sizeof text, text, rg_home_of_session(session)) != CUDA_SUCCESS)
        return;
    text[sizeof text - 1] = '\0';
    rg_printable_clean_lines(text, strlen(text));
    if (text[0])
        set_last_error(text);
}

ncclResult_t rg_nccl_answered(const struct rg_session *session, const char *what, CUresult status, int result)
{
    static atomic_bool said;
    if (status == CUDA_ERROR_DEVICE_UNAVAILABLE)
        return rg_nccl_fail(ncclRemoteError, "%s: the session with the server %s is over", what,
                            session->server);
    if (status == CUDA_ERROR_NOT_SUPPORTED)
        return rg_nccl_fail(
            ncclSystemError,
            "%s: the server %s is older than this client and knows nothing of NCCL; 'remote-gpu "
            "run --opt -nccl' uses the program's own",
            what, session->server);
    if (status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_INVALID_HANDLE)
        return rg_nccl_fail(ncclInvalidArgument,
                            "%s names memory, a stream or a communicator that is not there", what);
    if (status != CUDA_SUCCESS)
        return rg_nccl_fail(ncclUnhandledCudaError, "%s failed with CUDA error %d", what, (int)status);
    if (result < 0 || result >= ncclNumResults)
        result = ncclInternalError;
    if (result == ncclSuccess || result == ncclInProgress)
        return (ncclResult_t)result;
    ask_why(session);
    if (result == ncclSystemError && !atomic_exchange(&said, true)) /* most likely there is no library */
        rg_warn("NCCL: %s", ncclGetLastError(NULL));
    return (ncclResult_t)result;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return rg_nccl_error_string(result);
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static __thread char copy[sizeof last_error];
    (void)comm; /* NCCL's is the process's, too */
    RG_SCOPED_LOCK(&lock);
    memcpy(copy, last_error, sizeof copy);
    return copy;
}

void ncclResetDebugInit(void)
{
}

/* What this library is: programs ask before they have any device. */
ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
