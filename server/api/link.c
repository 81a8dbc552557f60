/*
 * link.c - linking of device code: the driver's linker states, with log buffers of ours that live as long as
 * they do, and as long as a record that uses them, which may go out of order (out_of_order.h).
 */
#include "generated/server/execute.h"
#include "server/api/jit_options.h"
#include "server/core/out_of_order.h"
#include "server/images/image.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What goes with a linker state. */
struct linker {
    struct rg_extra extra;
    atomic_uint users;            /* its entry and the records that are using it: the last one frees it */
    size_t info_size, error_size; /* of the buffers, which follow: info, then error */
    const unsigned char *result;  /* the driver's, until the state is destroyed */
    size_t result_size;
    void *values
        [RG_JIT_OPTIONS_MAX]; /* of the options that it was made with: the driver writes to them until it is destroyed */
    char logs[];
};

/* What goes with the state, for the record to use until it lets go; NULL: no such state. The dispatcher. */
static struct linker *use(struct rg_request *request, CUlinkState state)
{
    struct rg_object *entry = rg_objects_find_object(&request->worker->objects, RG_KIND_LINK, state);
    struct linker *extra = entry ? entry->extra : NULL;
    if (extra)
        atomic_fetch_add(&extra->users, 1);
    return extra;
}

static void release(struct linker *extra)
{
    if (extra && atomic_fetch_sub(&extra->users, 1) == 1)
        free(extra);
}

/* The state's entry ends. */
static void release_extra(struct rg_extra *extra)
{
    release((struct linker *)extra);
}

struct drop {
    struct rg_worker *worker;
    uint64_t context;
};

static void drop(struct rg_object *entry, void *user)
{
    const struct drop *which = user;
    if (rg_handle_kind(entry->handle) != RG_KIND_LINK || entry->context != which->context)
        return;
    (void)rg_driver.cuLinkDestroy(entry->object);
    rg_extra_release(entry->extra);
    rg_objects_remove(&which->worker->objects, entry);
}

/* No record uses its linker states: the dispatcher has waited for those (rg_out_of_order_settle). */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    rg_objects_each(&worker->objects, drop, &(struct drop){worker, context->handle});
}

/* The states that have no context. */
static void stop(struct rg_worker *worker)
{
    rg_objects_each(&worker->objects, drop, &(struct drop){worker, 0});
}

const struct rg_server_module rg_link_module = {.stop = stop, .drop_context = drop_context};

CUresult rg_execute_rgLinkCreate(struct rg_request *request, uint64_t state, unsigned int count,
                                 const CUjit_option *options, const unsigned long long *values,
                                 size_t info_size, size_t error_size)
{
    struct rg_jit_options all;
    CUlinkState made = NULL;
    RG_TRY(rg_jit_options_read(request, &all, count, options, values));
    info_size = rg_jit_log_size(info_size);
    error_size = rg_jit_log_size(error_size);
    struct linker *extra = calloc(1, sizeof *extra + info_size + error_size + 2);
    if (!extra)
        return CUDA_ERROR_OUT_OF_MEMORY;
    extra->extra.release = release_extra;
    atomic_init(&extra->users, 1);
    extra->info_size = info_size;
    extra->error_size = error_size;
    rg_jit_options_add_logs(&all, extra->logs, info_size, extra->logs + info_size + 1, error_size);
    memcpy(extra->values, all.values, all.count * sizeof *all.values);
    CUresult result = rg_driver.cuLinkCreate_v2(all.count, all.options, extra->values, &made);
    if (result != CUDA_SUCCESS) {
        free(extra);
        return result;
    }
    rg_request_new(request, RG_KIND_LINK, state, made);
    struct rg_object *entry = request->violated ? NULL : rg_objects_find(&request->worker->objects, state);
    if (entry) {
        entry->extra = extra;
        return CUDA_SUCCESS;
    }
    (void)rg_driver.cuLinkDestroy(made);
    release(extra);
    return CUDA_ERROR_UNKNOWN;
}

static void output_logs(struct rg_request *request, const struct linker *extra)
{
    rg_jit_output_log(request, extra->logs, extra->info_size);
    rg_jit_output_log(request, extra->logs + extra->info_size + 1, extra->error_size);
}

CUresult rg_execute_rgLinkAdd(struct rg_request *request, CUlinkState state, unsigned int type,
                              unsigned long long id, const char *name, unsigned int count,
                              const CUjit_option *options, const unsigned long long *values)
{
    struct rg_jit_options all;
    rg_out_of_order_settle(request, state, 0); /* one after another */
    struct linker *extra = use(request, state);
    struct rg_image *image = rg_image_take(request->worker, id);
    struct rg_image_code code;
    CUresult result = rg_jit_options_read(request, &all, count, options, values);
    if (!extra || !image || type >= CU_JIT_NUM_INPUT_TYPES)
        result = CUDA_ERROR_INVALID_VALUE;
    rg_request_go_out_of_order(request);
    if (result == CUDA_SUCCESS)
        result = rg_image_code(request, image, type, &code);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuLinkAddData_v2(state, (CUjitInputType)type, (void *)(uintptr_t)code.data,
                                            code.size, name, all.count, all.options, all.values);
    if (extra)
        output_logs(request, extra);
    release(extra);
    rg_image_free(request->worker, image);
    return result;
}

CUresult rg_execute_rgLinkComplete(struct rg_request *request, CUlinkState state)
{
    rg_out_of_order_settle(request, state, 0);
    struct linker *extra = use(request, state);
    if (!extra)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_request_go_out_of_order(request);
    void *cubin = NULL;
    size_t size = 0;
    CUresult result = rg_driver.cuLinkComplete(state, &cubin, &size);
    if (result == CUDA_SUCCESS) {
        extra->result = cubin;
        extra->result_size = size;
    }
    output_logs(request, extra);
    const uint64_t reported = extra->result_size;
    rg_request_output(request, &reported, sizeof reported);
    release(extra);
    return result;
}

CUresult rg_execute_rgLinkRead(struct rg_request *request, CUlinkState state, size_t offset, size_t size)
{
    rg_out_of_order_settle(request, state, 0);
    struct linker *extra = use(request, state);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (extra && extra->result && size <= RG_BULK_MAX && offset <= extra->result_size &&
        size <= extra->result_size - offset) {
        request->reply_bulk = extra->result + offset;
        request->reply_bulk_size = size;
        result = CUDA_SUCCESS;
    }
    release(extra);
    return result;
}

CUresult rg_execute_cuLinkDestroy(struct rg_request *request, CUlinkState state)
{
    if (!state)
        return CUDA_ERROR_INVALID_HANDLE;
    rg_out_of_order_settle(request, state, 0);
    return rg_driver.cuLinkDestroy(state);
}
