/*
 * device_call.c - the functions of the device runtime, as kernels call them.
 *
 * Arguments come as the addresses of what PTX passes. What a kernel gives to be written to is written here,
 * in the kernel's own thread and under no lock: if it is no memory, that is the kernel's fault.
 */
#include "softgpu/device_calls.h"
#include "softgpu/exec/device_runtime/children.h"
#include "softgpu/exec/engine.h"
#include "softgpu/guest.h"

#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define RUNTIME_VERSION          13000
#define STREAM_NON_BLOCKING      1u
#define EVENT_BLOCKING_SYNC      1u
#define EVENT_DISABLE_TIMING     2u
#define LIMIT_MAX                5
#define PARAMS_MAX               32764u
#define ATTRIBUTES_OF_A_FUNCTION 13u

struct call {
    struct sg_thread *thread;
    const struct sg_launch *launch;
    const struct sg_device_services *services;
    struct sg_parent *parent;
    uint64_t block; /* its number */
    const void *const *arguments;
};

static uint64_t number(const struct call *call, unsigned index)
{
    uint64_t value;
    memcpy(&value, sg_guest_pointer(call->arguments[index]), sizeof(value));
    return value;
}

static uint32_t word(const struct call *call, unsigned index)
{
    uint32_t value;
    memcpy(&value, sg_guest_pointer(call->arguments[index]), sizeof(value));
    return value;
}

static void *pointer(const struct call *call, unsigned index)
{
    return (void *)(uintptr_t)number(call, index);
}

static int put_int(const struct call *call, unsigned index, int value)
{
    void *to = sg_guest_pointer(pointer(call, index));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    memcpy(to, &value, sizeof(value));
    return SG_CUDA_SUCCESS;
}

static int put_number(const struct call *call, unsigned index, uint64_t value)
{
    void *to = sg_guest_pointer(pointer(call, index));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    memcpy(to, &value, sizeof(value));
    return SG_CUDA_SUCCESS;
}

/* --- launches --- */

static int shape(const struct call *call, unsigned grid, unsigned block, unsigned shared,
                 struct sg_launch *to)
{
    memcpy(to->grid, sg_guest_pointer(call->arguments[grid]), sizeof(to->grid));
    memcpy(to->block, sg_guest_pointer(call->arguments[block]), sizeof(to->block));
    to->shared_dynamic = word(call, shared);
    return SG_CUDA_SUCCESS;
}

/** A buffer whose launch is known from the start; 0 with *error. */
static uint64_t parameter_buffer_v2(const struct call *call, int *error)
{
    struct sg_launch launch = {0};
    shape(call, 1, 2, 3, &launch);
    *error = call->services->prepare(call->launch, pointer(call, 0), &launch);
    if (*error)
        return 0;
    struct sg_child *child = sg_child_prepare(call->parent, launch.params_size);
    if (!child) {
        *error = SG_CUDA_OUT_OF_MEMORY;
        return 0;
    }
    launch.params = sg_child_params(child);
    *sg_child_launch(child) = launch;
    sg_child_put_back(call->parent, child);
    return (uint64_t)(uintptr_t)launch.params;
}

static int launch_v2(const struct call *call)
{
    struct sg_child *child;
    int error = sg_child_take(call->parent, pointer(call, 0), &child);
    if (!error && !sg_child_launch(child)->kernel_name) {
        sg_child_put_back(call->parent, child);
        error = SG_CUDA_INVALID_VALUE;
    }
    return error ? error : sg_child_submit(call->parent, child, call->block, number(call, 1));
}

/** A buffer of a size that the kernel gives; what is launched comes later. */
static uint64_t parameter_buffer(const struct call *call, int *error)
{
    uint64_t alignment = number(call, 0), size = number(call, 1);
    struct sg_child *child = NULL;
    *error = size > PARAMS_MAX || alignment > 16 ? SG_CUDA_INVALID_VALUE : SG_CUDA_SUCCESS;
    if (!*error && !(child = sg_child_prepare(call->parent, (uint32_t)size)))
        *error = SG_CUDA_OUT_OF_MEMORY;
    if (!child)
        return 0;
    const uint64_t params = (uint64_t)(uintptr_t)sg_child_params(child);
    sg_child_put_back(call->parent, child);
    return params;
}

static int launch_v1(const struct call *call)
{
    struct sg_child *child = NULL;
    struct sg_launch launch = {0};
    shape(call, 2, 3, 4, &launch);
    int error = call->services->prepare(call->launch, pointer(call, 0), &launch);
    if (error)
        return error;
    if (number(call, 1))
        error = sg_child_take(call->parent, pointer(call, 1), &child);
    else if (!(child = sg_child_prepare(call->parent, 0))) /* a kernel without parameters */
        error = SG_CUDA_OUT_OF_MEMORY;
    if (!error && sg_child_launch(child)->params_size < launch.params_size) {
        sg_child_put_back(call->parent, child);
        error = SG_CUDA_INVALID_VALUE;
    }
    if (error)
        return error;
    launch.params = sg_child_params(child);
    *sg_child_launch(child) = launch;
    return sg_child_submit(call->parent, child, call->block, number(call, 5));
}

/* --- copies --- */

static bool reachable(const struct call *call, const void *address, uint64_t pitch, uint64_t width,
                      uint64_t height, bool write)
{
    uint64_t at = (uintptr_t)address, size;
    if (__builtin_mul_overflow(height - 1, pitch, &size) || __builtin_add_overflow(size, width, &size))
        return false;
    return sg_heap_holds(at, size) || call->services->reachable(at, size, write);
}

static int transfer(const struct call *call, const struct sg_transfer *t, uint64_t stream)
{
    if (!t->width || !t->height)
        return SG_CUDA_SUCCESS;
    if (t->height > 1 && (t->to_pitch < t->width || (t->from && t->from_pitch < t->width)))
        return SG_CUDA_INVALID_PITCH;
    if (!reachable(call, t->to, t->to_pitch, t->width, t->height, true) ||
        (t->from && !reachable(call, t->from, t->from_pitch, t->width, t->height, false)))
        return SG_CUDA_INVALID_VALUE;
    return sg_child_transfer(call->parent, t, call->block, stream);
}

static int copy(const struct call *call, const struct sg_transfer *t, unsigned kind, unsigned stream)
{
    enum { DEVICE_TO_DEVICE = 3, DEFAULT = 4 };
    if (word(call, kind) != DEVICE_TO_DEVICE && word(call, kind) != DEFAULT)
        return SG_CUDA_INVALID_VALUE;
    if (!t->from)
        return SG_CUDA_INVALID_VALUE;
    return transfer(call, t, number(call, stream));
}

static int copy_1d(const struct call *call)
{
    const struct sg_transfer t = {
        .to = pointer(call, 0), .from = pointer(call, 1), .width = number(call, 2), .height = 1};
    return copy(call, &t, 3, 4);
}

static int copy_2d(const struct call *call)
{
    const struct sg_transfer t = {.to = pointer(call, 0),
                                  .to_pitch = number(call, 1),
                                  .from = pointer(call, 2),
                                  .from_pitch = number(call, 3),
                                  .width = number(call, 4),
                                  .height = number(call, 5)};
    return copy(call, &t, 6, 7);
}

static int set_1d(const struct call *call)
{
    const struct sg_transfer t = {
        .to = pointer(call, 0), .value = (unsigned char)word(call, 1), .width = number(call, 2), .height = 1};
    return transfer(call, &t, number(call, 3));
}

static int set_2d(const struct call *call)
{
    const struct sg_transfer t = {.to = pointer(call, 0),
                                  .to_pitch = number(call, 1),
                                  .value = (unsigned char)word(call, 2),
                                  .width = number(call, 3),
                                  .height = number(call, 4)};
    return transfer(call, &t, number(call, 5));
}

/* --- questions --- */

/** cudaFuncAttributes: three sizes, then numbers, in the order of these attributes; 0: it is none. */
static int function_attributes(const struct call *call)
{
    static const int attributes[ATTRIBUTES_OF_A_FUNCTION + 3] = {
        1 /* shared */, 2 /* constant */, 3 /* local */, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14};
    unsigned char *to = sg_guest_pointer(pointer(call, 0));
    if (!to)
        return SG_CUDA_INVALID_VALUE;
    size_t offset = 0;
    for (unsigned i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int value = 0;
        int error = call->services->function_attribute(call->launch, pointer(call, 1), attributes[i], &value);
        if (error)
            return error;
        uint64_t wide = (uint64_t)(unsigned)value;
        size_t size = i < 3 ? sizeof(wide) : sizeof(value);
        memcpy(to + offset, i < 3 ? (void *)&wide : (void *)&value, size);
        offset += size;
    }
    return SG_CUDA_SUCCESS;
}

static int occupancy(const struct call *call)
{
    int blocks = 0;
    int error = call->services->occupancy(call->launch, pointer(call, 1), (int)word(call, 2), number(call, 3),
                                          &blocks);
    return error ? error : put_int(call, 0, blocks);
}

static int attribute(const struct call *call)
{
    int value = 0;
    int error = call->services->attribute(call->launch, (int)word(call, 1), (int)word(call, 2), &value);
    return error ? error : put_int(call, 0, value);
}

static int limit(const struct call *call)
{
    int which = (int)word(call, 1);
    uint64_t value =
        which >= 0 && which <= LIMIT_MAX ? call->services->limit(call->launch, which) : UINT64_MAX;
    return value == UINT64_MAX ? SG_CUDA_INVALID_VALUE : put_number(call, 0, value);
}

static int allocate(const struct call *call)
{
    uint64_t size = number(call, 1);
    void *memory = size ? sg_rt_malloc(call->thread, size) : NULL;
    int error = put_number(call, 0, (uint64_t)(uintptr_t)memory);
    return error ? error : size && !memory ? SG_CUDA_OUT_OF_MEMORY : SG_CUDA_SUCCESS;
}

static int stream_create(const struct call *call)
{
    uint64_t stream;
    if (word(call, 1) != STREAM_NON_BLOCKING)
        return SG_CUDA_INVALID_VALUE;
    int error = sg_child_stream_create(call->parent, &stream);
    return error ? error : put_number(call, 0, stream);
}

static int event_create(const struct call *call)
{
    uint64_t event;
    if ((word(call, 1) & ~EVENT_BLOCKING_SYNC) != EVENT_DISABLE_TIMING)
        return SG_CUDA_INVALID_VALUE;
    int error = sg_child_event_create(call->parent, &event);
    return error ? error : put_number(call, 0, event);
}

static int serve(const struct call *call, enum sg_device_call what, uint64_t *result)
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
        sg_rt_free(call->thread, pointer(call, 0));
        return SG_CUDA_SUCCESS;
    case SG_CALL_StreamCreateWithFlags:
        return stream_create(call);
    case SG_CALL_StreamDestroy:
        return sg_child_stream_destroy(call->parent, number(call, 0));
    case SG_CALL_StreamWaitEvent:
        return sg_child_wait(call->parent, number(call, 1), call->block, number(call, 0));
    case SG_CALL_EventCreateWithFlags:
        return event_create(call);
    case SG_CALL_EventRecord:
    case SG_CALL_EventRecordWithFlags:
        return sg_child_record(call->parent, number(call, 0), call->block, number(call, 1));
    case SG_CALL_EventDestroy:
        return sg_child_event_destroy(call->parent, number(call, 0));
    case SG_CALL_MemcpyAsync:
        return copy_1d(call);
    case SG_CALL_Memcpy2DAsync:
        return copy_2d(call);
    case SG_CALL_MemsetAsync:
        return set_1d(call);
    case SG_CALL_Memset2DAsync:
        return set_2d(call);
    case SG_CALL_GetParameterBuffer:
        *result = parameter_buffer(call, &error);
        return error;
    case SG_CALL_GetParameterBufferV2:
        *result = parameter_buffer_v2(call, &error);
        return error;
    case SG_CALL_LaunchDevice:
        return launch_v1(call);
    case SG_CALL_LaunchDeviceV2:
        return launch_v2(call);
    default:
        return SG_CUDA_NOT_SUPPORTED;
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
    struct call call = {.thread = t,
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
        return text_for_kernels(call.services->error_text((int)word(&call, 0), what == SG_CALL_GetErrorName));
    int error = serve(&call, what, &result);
    if (error)
        sg_child_set_error(call.parent, call.block, thread, error);
    return returns_pointer(what) ? result : (uint64_t)(unsigned)error;
}
