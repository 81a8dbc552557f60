/*
 * link.c - linking of device code: the driver's linker states, with log buffers of ours that live as long as they do.
 */
#include "common/limits.h"
#include "common/log.h"
#include "generated/server/serve.h"
#include "server/aside.h"
#include "server/image.h"
#include "server/worker.h"

#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 64u
#define LOG_MAX     (RG_REPLY_INLINE / 2 - 64)

/* What goes with a linker state; freed with its entry. */
struct link_extra {
    size_t info_size, error_size; /* of the buffers, which follow: info, then error */
    const unsigned char *result;  /* the driver's, until the state is destroyed */
    size_t result_size;
    char logs[];
};

struct options {
    unsigned count;
    CUjit_option options[OPTIONS_MAX];
    void *values[OPTIONS_MAX];
};

static struct link_extra *extra_of(struct rg_job *job, CUlinkState state)
{
    struct rg_object *entry = rg_objects_find_object(&job->worker->objects, RG_KIND_LINK, state);
    return entry ? entry->extra : NULL;
}

static CUresult read_options(struct rg_job *job, struct options *out, unsigned count,
                             const CUjit_option *options, const unsigned long long *values)
{
    out->count = 0;
    if (count > OPTIONS_MAX - 4)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (!rg_jit_option_travels(options[i])) {
            rg_warn("session %llu: linking with JIT option %d, which cannot be passed on",
                    (unsigned long long)job->worker->session, (int)options[i]);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        out->options[out->count] = options[i];
        out->values[out->count++] = (void *)(uintptr_t)values[i];
    }
    return CUDA_SUCCESS;
}

static void add_log(struct options *to, CUjit_option buffer_option, char *buffer, CUjit_option size_option,
                    size_t size)
{
    if (!size)
        return;
    to->options[to->count] = buffer_option;
    to->values[to->count++] = buffer;
    to->options[to->count] = size_option;
    to->values[to->count++] = (void *)size;
}

CUresult rg_serve_rgLinkCreate(struct rg_job *job, uint64_t state, unsigned int count,
                               const CUjit_option *options, const unsigned long long *values,
                               size_t info_size, size_t error_size)
{
    struct options all;
    CUlinkState made = NULL;
    CUresult result = read_options(job, &all, count, options, values);
    if (result != CUDA_SUCCESS)
        return result;
    if (!rg_driver.cuLinkCreate_v2 || !rg_driver.cuLinkAddData_v2 || !rg_driver.cuLinkComplete)
        return CUDA_ERROR_NOT_SUPPORTED;
    info_size = info_size < LOG_MAX ? info_size : LOG_MAX;
    error_size = error_size < LOG_MAX ? error_size : LOG_MAX;
    struct link_extra *extra = calloc(1, sizeof *extra + info_size + error_size + 2);
    if (!extra)
        return CUDA_ERROR_OUT_OF_MEMORY;
    extra->info_size = info_size;
    extra->error_size = error_size;
    add_log(&all, CU_JIT_INFO_LOG_BUFFER, extra->logs, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_size);
    add_log(&all, CU_JIT_ERROR_LOG_BUFFER, extra->logs + info_size + 1, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            error_size);
    result = rg_driver.cuLinkCreate_v2(all.count, all.options, all.values, &made);
    if (result != CUDA_SUCCESS) {
        free(extra);
        return result;
    }
    rg_job_new(job, RG_KIND_LINK, state, made);
    struct rg_object *entry = rg_objects_find(&job->worker->objects, state);
    if (entry && entry->object == made)
        entry->extra = extra;
    else
        free(extra); /* the session has been ended */
    return CUDA_SUCCESS;
}

static void output_log(struct rg_job *job, const char *log, size_t size)
{
    const uint64_t length = strnlen(log, size);
    rg_job_output(job, &length, sizeof length);
    rg_job_output(job, log, length);
}

static void output_logs(struct rg_job *job, const struct link_extra *extra)
{
    output_log(job, extra->logs, extra->info_size);
    output_log(job, extra->logs + extra->info_size + 1, extra->error_size);
}

CUresult rg_serve_rgLinkAdd(struct rg_job *job, CUlinkState state, unsigned int type, unsigned long long id,
                            const char *name, unsigned int count, const CUjit_option *options,
                            const unsigned long long *values)
{
    struct options all;
    rg_aside_settle(job, state, 0); /* one after another */
    struct link_extra *extra = extra_of(job, state);
    struct rg_image *image = rg_image_take(job->worker, id);
    struct rg_image_code code;
    CUresult result = read_options(job, &all, count, options, values);
    if (!extra || !image || type >= CU_JIT_NUM_INPUT_TYPES)
        result = CUDA_ERROR_INVALID_VALUE;
    rg_job_stand_aside(job);
    if (result == CUDA_SUCCESS)
        result = rg_image_code(job, image, type, &code);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuLinkAddData_v2(state, (CUjitInputType)type, (void *)(uintptr_t)code.data,
                                            code.size, name, all.count, all.options, all.values);
    if (extra)
        output_logs(job, extra);
    rg_image_free(job->worker, image);
    return result;
}

CUresult rg_serve_rgLinkComplete(struct rg_job *job, CUlinkState state)
{
    rg_aside_settle(job, state, 0);
    struct link_extra *extra = extra_of(job, state);
    if (!extra)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_job_stand_aside(job);
    void *cubin = NULL;
    size_t size = 0;
    CUresult result = rg_driver.cuLinkComplete(state, &cubin, &size);
    if (result == CUDA_SUCCESS) {
        extra->result = cubin;
        extra->result_size = size;
    }
    output_logs(job, extra);
    const uint64_t reported = extra->result_size;
    rg_job_output(job, &reported, sizeof reported);
    return result;
}

CUresult rg_serve_rgLinkRead(struct rg_job *job, CUlinkState state, size_t offset, size_t size)
{
    rg_aside_settle(job, state, 0);
    const struct link_extra *extra = extra_of(job, state);
    if (!extra || !extra->result || size > RG_BULK_MAX || offset > extra->result_size ||
        size > extra->result_size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    job->reply_bulk = extra->result + offset;
    job->reply_bulk_size = size;
    return CUDA_SUCCESS;
}

CUresult rg_serve_cuLinkDestroy(struct rg_job *job, CUlinkState state)
{
    if (!rg_driver.cuLinkDestroy)
        return CUDA_ERROR_NOT_SUPPORTED;
    rg_aside_settle(job, state, 0);
    return rg_driver.cuLinkDestroy(state);
}
