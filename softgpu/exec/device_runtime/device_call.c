/*
 * device_call.c - the functions of the device runtime, as kernels call them (launches: device_launch.c; copies: device_copy.c).
 *
 * What a kernel gives to be written to is written here, in the kernel's own thread and under no lock: if it is no memory, that is the
 * kernel's fault.
 */
#include "softgpu/exec/device_runtime/call.h"

#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define RUNTIME_VERSION          13000
#define STREAM_NON_BLOCKING      1u
#define EVENT_BLOCKING_SYNC      1u
#define EVENT_DISABLE_TIMING     2u
#define LIMIT_MAX                5
#define ATTRIBUTES_OF_A_FUNCTION 13u

static int put_int(const struct sg_runtime_call *call, unsigned index, int value)
{
    void *to = sg_guest_pointer(sg_runtime_pointer(call, index));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    memcpy(to, &value, sizeof(value));
    return SG_CUDA_SUCCESS;
}

static int put_number(const struct sg_runtime_call *call, unsigned index, uint64_t value)
{
    void *to = sg_guest_pointer(sg_runtime_pointer(call, index));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    memcpy(to, &value, sizeof(value));
    return SG_CUDA_SUCCESS;
}

/* --- questions --- */

/** cudaFuncAttributes: three sizes, then numbers, in the order of these attributes; 0: it is none. */
static int function_attributes(const struct sg_runtime_call *call)
{
    static const int attributes[ATTRIBUTES_OF_A_FUNCTION + 3] = {
        1 /* shared */, 2 /* constant */, 3 /* local */, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14};
    unsigned char *to = sg_guest_pointer(sg_runtime_pointer(call, 0));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    size_t offset = 0;
    for (unsigned i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int value = 0;
        int error = call->services->function_attribute(call->launch, sg_runtime_pointer(call, 1),
                                                       attributes[i], &value);
        if (error)
            return error;
        uint64_t wide = (uint64_t)(unsigned)value;
        size_t size = i < 3 ? sizeof(wide) : sizeof(value);
        memcpy(to + offset, i < 3 ? (void *)&wide : (void *)&value, size);
        offset += size;
    }
    return SG_CUDA_SUCCESS;
}

static int occupancy(const struct sg_runtime_call *call)
{
    int blocks = 0;
    int error = call->services->occupancy(call->launch, sg_runtime_pointer(call, 1),
                                          (int)sg_runtime_word(call, 2), sg_runtime_number(call, 3), &blocks);
    return error ? error : put_int(call, 0, blocks);
}

static int attribute(const struct sg_runtime_call *call)
{
    int value = 0;
    int error = call->services->attribute(call->launch, (int)sg_runtime_word(call, 1),
                                          (int)sg_runtime_word(call, 2), &value);
    return error ? error : put_int(call, 0, value);
}

static int limit(const struct sg_runtime_call *call)
{
    int which = (int)sg_runtime_word(call, 1);
    uint64_t value =
        which >= 0 && which <= LIMIT_MAX ? call->services->limit(call->launch, which) : UINT64_MAX;
    return value == UINT64_MAX ? SG_CUDA_INVALID_VALUE : put_number(call, 0, value);
}

static int allocate(const struct sg_runtime_call *call)
{
    uint64_t size = sg_runtime_number(call, 1);
    void *memory = size ? sg_rt_malloc(call->thread, size) : NULL;
    int error = put_number(call, 0, (uint64_t)(uintptr_t)memory);
    return error ? error : size && !memory ? SG_CUDA_OUT_OF_MEMORY : SG_CUDA_SUCCESS;
}

static int stream_create(const struct sg_runtime_call *call)
{
    uint64_t stream;
    if (sg_runtime_word(call, 1) != STREAM_NON_BLOCKING)
        return SG_CUDA_INVALID_VALUE;
    int error = sg_child_stream_create(call->parent, &stream);
    return error ? error : put_number(call, 0, stream);
}

static int event_create(const struct sg_runtime_call *call)
{
    uint64_t event;
    if ((sg_runtime_word(call, 1) & ~EVENT_BLOCKING_SYNC) != EVENT_DISABLE_TIMING)
        return SG_CUDA_INVALID_VALUE;
    int error = sg_child_event_create(call->parent, &event);
    return error ? error : put_number(call, 0, event);
}

/* Streams and events. */
static int serve_order(const struct sg_runtime_call *call, enum sg_device_call what)
{
    switch (what) {
    case SG_CALL_StreamCreateWithFlags:
        return stream_create(call);
    case SG_CALL_StreamDestroy:
        return sg_child_stream_destroy(call->parent, sg_runtime_number(call, 0));
    case SG_CALL_StreamWaitEvent:
        return sg_child_wait(call->parent, sg_runtime_number(call, 1), call->block,
                             sg_runtime_number(call, 0));
    case SG_CALL_EventCreateWithFlags:
        return event_create(call);
    case SG_CALL_EventRecord:
    case SG_CALL_EventRecordWithFlags:
        return sg_child_record(call->parent, sg_runtime_number(call, 0), call->block,
                               sg_runtime_number(call, 1));
    case SG_CALL_EventDestroy:
        return sg_child_event_destroy(call->parent, sg_runtime_number(call, 0));
    default:
        return SG_CUDA_NOT_SUPPORTED;
    }
}

static int serve(const struct sg_runtime_call *call, enum sg_device_call what, uint64_t *result)
{
    int count, error;
    switch (what) {
    case SG_CALL_DeviceGetAttribute:
        return attribute(call);
    case SG_CALL_DeviceGetLimit:
        return limit(call);
    case SG_CALL_DeviceGetCacheConfig: /* cudaFuncCachePreferNone, cudaSharedMemBankSizeDefault */
    case SG_CALL_DeviceGetSharedMemConfig:
        return put_int(call, 0, 0);
    case SG_CALL_GetDeviceCount:
        call->services->device(call->launch, &count);
        return put_int(call, 0, count);
    case SG_CALL_GetDevice:
        return put_int(call, 0, call->services->device(call->launch, &count));
    case SG_CALL_RuntimeGetVersion:
        return put_int(call, 0, RUNTIME_VERSION);
    case SG_CALL_FuncGetAttributes:
        return function_attributes(call);
    case SG_CALL_OccupancyMaxActiveBlocksPerMultiprocessor:
    case SG_CALL_OccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
        return occupancy(call);
    case SG_CALL_Malloc:
        return allocate(call);
    case SG_CALL_Free:
        sg_rt_free(call->thread, sg_runtime_pointer(call, 0));
        return SG_CUDA_SUCCESS;
    case SG_CALL_MemcpyAsync:
        return sg_runtime_copy_1d(call);
    case SG_CALL_Memcpy2DAsync:
        return sg_runtime_copy_2d(call);
    case SG_CALL_MemsetAsync:
        return sg_runtime_set_1d(call);
    case SG_CALL_Memset2DAsync:
        return sg_runtime_set_2d(call);
    case SG_CALL_GetParameterBuffer:
        *result = sg_runtime_parameter_buffer(call, &error);
        return error;
    case SG_CALL_GetParameterBufferV2:
        *result = sg_runtime_parameter_buffer_v2(call, &error);
        return error;
    case SG_CALL_LaunchDevice:
        return sg_runtime_launch_v1(call);
    case SG_CALL_LaunchDeviceV2:
        return sg_runtime_launch_v2(call);
    default:
        return serve_order(call, what);
    }
}

/** A text of the engine's as kernels can reach it: guarded, a copy, of which each text has one. */
static uint64_t text_for_kernels(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const size_t size = 16384; /* they are some, and short */
    static char *copies;
    static size_t used;
    if (!sg_guest_guarded())
        return (uint64_t)(uintptr_t)text;
    const size_t length = strlen(text) + 1;
    RG_SCOPED_LOCK(&lock);
    if (!copies && !(copies = sg_guest_map(size, PROT_READ | PROT_WRITE)))
        return 0;
    for (size_t at = 0; at + length <= used;
         at++) /* a kernel may have written there: nothing is taken for granted */
        if (memcmp(copies + at, text, length) == 0)
            return (uint64_t)(uintptr_t)(copies + at);
    if (length > size - used)
        return 0;
    memcpy(copies + used, text, length);
    used += length;
    return (uint64_t)(uintptr_t)(copies + used - length);
}

static bool returns_pointer(enum sg_device_call what)
{
    return what == SG_CALL_GetParameterBuffer || what == SG_CALL_GetParameterBufferV2;
}

uint64_t sg_rt_device_call(struct sg_thread *t, uint32_t which, const void *const *arguments)
{
    const struct sg_block *block = t->block;
    const uint32_t *at = block->ctaid, *of = block->nctaid;
    const struct sg_launch *launch = block->grid->launch;
    struct sg_runtime_call call = {.thread = t,
                                   .launch = launch,
                                   .services = launch->services,
                                   .parent = block->grid->parent,
                                   .block = at[0] + (uint64_t)of[0] * (at[1] + (uint64_t)of[1] * at[2]),
                                   .arguments = arguments};
    uint32_t thread = t->tid[0] + block->ntid[0] * (t->tid[1] + block->ntid[1] * t->tid[2]);
    enum sg_device_call what = (enum sg_device_call)which;
    uint64_t result = 0;

    if (!call.services || !call.parent)
        return returns_pointer(what) ? 0 : SG_CUDA_NOT_SUPPORTED;
    if (what == SG_CALL_GetLastError || what == SG_CALL_PeekAtLastError)
        return (uint64_t)sg_child_last_error(call.parent, call.block, thread, what == SG_CALL_GetLastError);
    if (what == SG_CALL_GetErrorString || what == SG_CALL_GetErrorName)
        return text_for_kernels(
            call.services->error_text((int)sg_runtime_word(&call, 0), what == SG_CALL_GetErrorName));
    int error = serve(&call, what, &result);
    if (error)
        sg_child_set_error(call.parent, call.block, thread, error);
    return returns_pointer(what) ? result : (uint64_t)(unsigned)error;
}
