/*
 * coredump.c - settings of core dumps. The device writes none: what can be set is that there are none, and
 * names, which are remembered; asking for dumps is refused.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cuda/coredump.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/driver.h"

#define NAME_MAX_BYTES RG_COREDUMP_NAME_MAX

static struct {
    pthread_mutex_t lock;
    char file[NAME_MAX_BYTES], pipe[NAME_MAX_BYTES]; /* empty: the default */
    unsigned flags;
    bool trigger_host, lightweight;
} settings = {.lock = PTHREAD_MUTEX_INITIALIZER, .trigger_host = true};

static void default_name(char *out, const char *prefix)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(out, NAME_MAX_BYTES, "%s.cuda.%s.%d", prefix, host, (int)getpid());
}

static CUresult give(const void *from, size_t exact, void *value, size_t *size)
{
    if (value == NULL) {
        *size = exact;
        return CUDA_SUCCESS;
    }
    if (*size < exact)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, from, exact);
    *size = exact;
    return CUDA_SUCCESS;
}

static CUresult get(CUcoredumpSettings setting, void *value, size_t *size)
{
    const bool no = false;
    char name[NAME_MAX_BYTES];
    RG_SCOPED_LOCK(&settings.lock);
    if (size == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (setting) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return give(&no, sizeof no, value, size);
    case CU_COREDUMP_TRIGGER_HOST:
        return give(&settings.trigger_host, sizeof(bool), value, size);
    case CU_COREDUMP_LIGHTWEIGHT:
        return give(&settings.lightweight, sizeof(bool), value, size);
    case CU_COREDUMP_GENERATION_FLAGS:
        return give(&settings.flags, sizeof settings.flags, value, size);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        if (*(setting == CU_COREDUMP_FILE ? settings.file : settings.pipe) != '\0')
            strcpy(name, setting == CU_COREDUMP_FILE ? settings.file : settings.pipe);
        else
            default_name(name, setting == CU_COREDUMP_FILE ? "core" : "corepipe");
        return give(name, strlen(name) + 1, value, size);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set(CUcoredumpSettings setting, const void *value, size_t *size)
{
    RG_SCOPED_LOCK(&settings.lock);
    bool on = false;
    const size_t room = rg_coredump_size(setting);
    if (size == NULL || room == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (value == NULL) { /* asks for the size */
        *size = room;
        return CUDA_SUCCESS;
    }
    if (!rg_coredump_value_good(setting, value, *size))
        return CUDA_ERROR_INVALID_VALUE;
    if (setting == CU_COREDUMP_FILE || setting == CU_COREDUMP_PIPE) {
        strcpy(setting == CU_COREDUMP_FILE ? settings.file : settings.pipe, value);
        return CUDA_SUCCESS;
    }
    if (setting == CU_COREDUMP_GENERATION_FLAGS) {
        memcpy(&settings.flags, value, sizeof settings.flags);
        return CUDA_SUCCESS;
    }
    memcpy(&on, value, 1);
    if (setting == CU_COREDUMP_TRIGGER_HOST)
        settings.trigger_host = on;
    else if (setting == CU_COREDUMP_LIGHTWEIGHT)
        settings.lightweight = on;
    else if (on) /* nobody would write them */
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings setting, void *value, size_t *size)
{
    SG_CONTEXT_OR_RETURN(context);
    return get(setting, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings setting, void *value, size_t *size)
{
    RG_TRY(sg_enter());
    return get(setting, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings setting, void *value, size_t *size)
{
    SG_CONTEXT_OR_RETURN(context);
    return set(setting, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings setting, void *value, size_t *size)
{
    RG_TRY(sg_enter());
    return set(setting, value, size);
}
