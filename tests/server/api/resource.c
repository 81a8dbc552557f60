/*
 * resource.c - device resources and green contexts on the worker, over a driver of the test's own that has
 * them: only what was given out is taken back, and a green context's ordinary context, which is on its device, ends with it, but not
 * what was made in it: that is the primary context's.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

static int green_object, context_object, description_object, stream_object, primary_object, event_object;
static unsigned splits, destroyed, streams, popped;
static _Thread_local CUcontext current;

static CUresult query(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}
static CUresult device_resource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = 16 + (unsigned)device;
    return CUDA_SUCCESS;
}
static CUresult split(CUdevResource *result, unsigned *groups, const CUdevResource *input,
                      CUdevResource *remaining, unsigned flags, unsigned minimum)
{
    (void)flags;
    splits++;
    const unsigned possible = input->sm.smCount / minimum;
    if (!result || *groups > possible)
        *groups = possible;
    for (unsigned i = 0; result && i < *groups; i++) {
        result[i] = *input;
        result[i].sm.smCount = minimum;
        result[i]._internal_padding[0] = (unsigned char)(i + 1);
    }
    *remaining = *input;
    remaining->sm.smCount -= *groups * minimum;
    return CUDA_SUCCESS;
}
static CUresult describe(CUdevResourceDesc *out, CUdevResource *resources, unsigned n)
{
    (void)resources, (void)n;
    *out = (CUdevResourceDesc)(void *)&description_object;
    return CUDA_SUCCESS;
}
static CUresult create(CUgreenCtx *out, CUdevResourceDesc description, CUdevice device, unsigned flags)
{
    (void)device;
    if (description != (CUdevResourceDesc)(void *)&description_object || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgreenCtx)(void *)&green_object;
    return CUDA_SUCCESS;
}
static CUresult destroy(CUgreenCtx green)
{
    destroyed += green == (CUgreenCtx)(void *)&green_object;
    return CUDA_SUCCESS;
}
static CUresult ordinary(CUcontext *out, CUgreenCtx green)
{
    (void)green;
    *out = (CUcontext)(void *)&context_object;
    return CUDA_SUCCESS;
}
static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}
static CUresult pop_current(CUcontext *context)
{
    *context = current;
    current = NULL;
    popped++;
    return CUDA_SUCCESS;
}
static CUresult current_device(CUdevice *device)
{
    *device = current == (CUcontext)(void *)&context_object;
    return CUDA_SUCCESS;
}
static CUresult retain(CUcontext *out, CUdevice device)
{
    (void)device;
    *out = (CUcontext)(void *)&primary_object;
    return CUDA_SUCCESS;
}
static CUresult event_create(CUevent *out, unsigned flags)
{
    (void)flags;
    *out = (CUevent)(void *)&event_object;
    return CUDA_SUCCESS;
}
static CUresult event_query(CUevent event)
{
    return event == (CUevent)(void *)&event_object ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult stream_create(CUstream *out, CUgreenCtx green, unsigned flags, int priority)
{
    streams +=
        green == (CUgreenCtx)(void *)&green_object && flags == CU_STREAM_NON_BLOCKING && priority == -1;
    *out = (CUstream)(void *)&stream_object;
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuStreamQuery = query;
    rg_driver.cuDeviceGetDevResource = device_resource;
    rg_driver.cuDevSmResourceSplitByCount = split;
    rg_driver.cuDevResourceGenerateDesc = describe;
    rg_driver.cuGreenCtxCreate = create;
    rg_driver.cuGreenCtxDestroy = destroy;
    rg_driver.cuCtxFromGreenCtx = ordinary;
    rg_driver.cuGreenCtxStreamCreate = stream_create;
    rg_driver.cuDevicePrimaryCtxRetain = retain;
    rg_driver.cuEventCreate = event_create;
    rg_driver.cuEventQuery = event_query;
    rg_driver.cuCtxSetCurrent = set_current;
    rg_driver.cuCtxPopCurrent_v2 = pop_current;
    rg_driver.cuCtxGetDevice = current_device;
}

static void test_green_contexts(void)
{
    const uint64_t description = handle(RG_KIND_RESOURCES, 3), green = handle(RG_KIND_GREEN, 4);
    const uint64_t context = handle(RG_KIND_CONTEXT, 5), stream = handle(RG_KIND_STREAM, 6);
    struct client *c = client_create();
    CUdevResource whole, forged, groups[2];

    CALL(c, RG_OP_cuDeviceGetDevResource, 0, CUDA_SUCCESS, "44", 0, CU_DEV_RESOURCE_TYPE_SM);
    CHECK(c->got.output_size == sizeof whole);
    memcpy(&whole, c->got.output, sizeof whole);
    CHECK(whole.sm.smCount == 16);

    forged = whole;
    forged._internal_padding[5] = 1;
    CALL(c, RG_OP_rgSmResourceSplit, 0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "444r", 2, 0, 4, &forged,
         sizeof forged);
    CHECK(splits == 0);
    CALL(c, RG_OP_rgSmResourceSplit, 0, CUDA_SUCCESS, "444r", 0, 0, 4, &whole, sizeof whole);
    unsigned n;
    memcpy(&n, c->got.output, sizeof n);
    CHECK(n == 4);
    CALL(c, RG_OP_rgSmResourceSplit, 0, CUDA_SUCCESS, "444r", 2, 0, 4, &whole, sizeof whole);
    memcpy(&n, c->got.output, sizeof n);
    CHECK(n == 2 && c->got.output_size == sizeof n + 3 * sizeof whole);
    memcpy(groups, c->got.output + sizeof n, sizeof groups);
    CHECK(groups[0].sm.smCount == 4 && groups[1]._internal_padding[0] == 2);

    CALL(c, RG_OP_cuDevResourceGenerateDesc, 0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "488r", 1,
         description, (uint64_t)1, &forged, sizeof forged);
    CALL(c, RG_OP_cuDevResourceGenerateDesc, 0, CUDA_SUCCESS, "488r", 2, description, (uint64_t)2, groups,
         sizeof groups);
    CALL(c, RG_OP_cuGreenCtxCreate, 0, CUDA_SUCCESS, "4488", 0, CU_GREEN_CTX_DEFAULT_STREAM, green,
         description);
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8",
        (uint64_t)0); /* nobody has asked for the context: none is the client thread's, either */
    CALL(c, RG_OP_rgGreenStreamCreate, 0, CUDA_ERROR_INVALID_CONTEXT, "4488", CU_STREAM_NON_BLOCKING, -1,
         handle(RG_KIND_STREAM, 8), green);
    CALL(c, RG_OP_rgGreenContext, 0, CUDA_SUCCESS, "88", green, context);
    CHECK(output_u64(c) == context);
    CHECK(rg_context_find(c->worker, context)->device == 1 && popped == 0); /* nobody had made it current */
    CALL(c, RG_OP_cuCtxCreate_v2, 1, CUDA_SUCCESS, "448", 0, 2, handle(RG_KIND_CONTEXT, 7));
    CHECK(rg_context_find(c->worker, handle(RG_KIND_CONTEXT, 7))->device == 2 && popped == 1);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 7)); /* it would outlive the stream */
    CALL(c, RG_OP_rgGreenStreamCreate, 1, CUDA_ERROR_INVALID_CONTEXT, "4488", CU_STREAM_NON_BLOCKING, -1,
         handle(RG_KIND_STREAM, 8), green);
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", context);
    CALL(c, RG_OP_rgGreenStreamCreate, 0, CUDA_SUCCESS, "4488", CU_STREAM_NON_BLOCKING, -1, stream, green);
    CHECK(streams == 1);
    CALL(c, RG_OP_cuStreamQuery, 0, CUDA_SUCCESS, "8", stream);

    CALL(c, RG_OP_cuGreenCtxDestroy, 0, CUDA_SUCCESS, "8", green);
    CHECK(destroyed == 1);
    CALL(c, RG_OP_cuStreamQuery, 0, CUDA_ERROR_INVALID_HANDLE, "8", stream); /* ended with its context */
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_ERROR_CONTEXT_IS_DESTROYED, "");
    CALL(c, RG_OP_cuGreenCtxDestroy, 0, CUDA_ERROR_INVALID_HANDLE, "8", green);
    CHECK(destroyed == 1);
    /* its context's place is another's */
    CALL(c, RG_OP_cuEventCreate, 1, CUDA_SUCCESS, "48", 0, rg_handle_make(RG_KIND_EVENT, 5, 2));
    CHECK(client_destroy(c) == 0);
}

static void test_what_is_made_in_one(void)
{
    const uint64_t description = handle(RG_KIND_RESOURCES, 3), green = handle(RG_KIND_GREEN, 4);
    const uint64_t context = handle(RG_KIND_CONTEXT, 5), primary = handle(RG_KIND_CONTEXT, 6);
    const uint64_t stream = handle(RG_KIND_STREAM, 7), event = handle(RG_KIND_EVENT, 8);
    struct client *c = client_create();
    CUdevResource whole;
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 0, CUDA_SUCCESS, "48", 1, primary);
    CALL(c, RG_OP_cuDeviceGetDevResource, 0, CUDA_SUCCESS, "44", 1, CU_DEV_RESOURCE_TYPE_SM);
    memcpy(&whole, c->got.output, sizeof whole);
    CALL(c, RG_OP_cuDevResourceGenerateDesc, 0, CUDA_SUCCESS, "488r", 1, description, (uint64_t)1, &whole,
         sizeof whole);
    CALL(c, RG_OP_cuGreenCtxCreate, 0, CUDA_SUCCESS, "4488", 1, CU_GREEN_CTX_DEFAULT_STREAM, green,
         description);
    CALL(c, RG_OP_rgGreenContext, 0, CUDA_SUCCESS, "88", green, context);
    CHECK(rg_context_owner(c->worker, rg_context_find(c->worker, context))->handle == primary);
    put(c, RG_OP_rgThreadSetContext, 0, 0, "8", context);
    CALL(c, RG_OP_rgGreenStreamCreate, 0, CUDA_SUCCESS, "4488", CU_STREAM_NON_BLOCKING, -1, stream, green);
    CALL(c, RG_OP_cuEventCreate, 0, CUDA_SUCCESS, "48", 0, event);
    CALL(c, RG_OP_cuGreenCtxDestroy, 0, CUDA_SUCCESS, "8", green);
    CALL(c, RG_OP_cuStreamQuery, 0, CUDA_ERROR_INVALID_HANDLE, "8", stream);
    CALL(c, RG_OP_cuEventQuery, 0, CUDA_SUCCESS, "8", event);
    CHECK(rg_context_find(c->worker, primary)->greens == 0);
    CHECK(client_destroy(c) == 0);
}

int main(void)
{
    use_driver();
    test_green_contexts();
    test_what_is_made_in_one();
    return 0;
}
