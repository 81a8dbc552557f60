/* unsupported.c - what is not served, and says so once. Declared in call.h. */
#include "client/core/call.h"
#include "client/core/session.h"
#include "common/base/log.h"
#include "generated/proto/api_table.h"

#include <pthread.h>
#include <string.h>

CUresult rg_refuse(const char *function, const char *why)
{
    /* A small set of names already told; a name that finds it full is told again, which does no harm. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *told[RG_API_COUNT];
    static size_t n_told;
    RG_TRY(atomic_load(&rg_sessions_ended));
    bool known = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_told && !known; i++)
        known = strcmp(told[i], function) == 0;
    if (!known && n_told < RG_API_COUNT)
        told[n_told++] = function;
    pthread_mutex_unlock(&lock);
    if (!known)
        rg_warn("%s is not supported%s%s; it returns CUDA_ERROR_NOT_SUPPORTED", function, *why ? ": " : "",
                why);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_unsupported(const char *function)
{
    return rg_refuse(function, "");
}
