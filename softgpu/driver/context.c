/*
 * context.c - primary and explicit contexts, and each thread's stack of current ones.
 *
 * A thread's stack holds references, so a context destroyed elsewhere stays readable and answers
 * CUDA_ERROR_CONTEXT_IS_DESTROYED. A primary context is one object for the life of the device that is
 * switched on by the first retain and off by the last release; each life has a generation number, by which
 * things of an earlier life are known as dead.
 */
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver/context.h"
#include "softgpu/driver/module.h"
#include "softgpu/driver/range.h"
#include "softgpu/driver/schedule.h"
#include "softgpu/exec/exec.h"

struct thread_stream {
    struct thread_stream *next;
    struct sg_context *context; /* reference held */
    unsigned long long generation;
    struct sg_stream *stream; /* reference held */
};

struct thread_contexts {
    struct sg_context **stack; /* references held */
    size_t depth, capacity;
    struct thread_stream *streams;
};

static __thread struct thread_contexts mine;
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static _Atomic unsigned long long next_context_id = 1;

static void drop_thread(void *value)
{
    struct thread_contexts *t = value;
    while (t->streams != NULL) {
        struct thread_stream *s = t->streams;
        t->streams = s->next;
        sg_release(&s->stream->object);
        sg_release(&s->context->object);
        free(s);
    }
    while (t->depth > 0)
        sg_release(&t->stack[--t->depth]->object);
    free(t->stack);
    t->stack = NULL;
    t->capacity = 0;
}

static void make_thread_end(void)
{
    pthread_key_create(&thread_end, drop_thread);
}

static void watch_thread_end(void)
{
    pthread_once(&thread_end_once, make_thread_end);
    pthread_setspecific(thread_end, &mine);
}

static bool stack_push(struct sg_context *context)
{
    if (mine.depth == mine.capacity) {
        size_t capacity = mine.capacity == 0 ? 8 : mine.capacity * 2;
        struct sg_context **stack = realloc(mine.stack, capacity * sizeof *stack);
        if (stack == NULL)
            return false;
        mine.stack = stack;
        mine.capacity = capacity;
        watch_thread_end();
    }
    sg_acquire(&context->object);
    mine.stack[mine.depth++] = context;
    return true;
}

static void stack_pop(void)
{
    sg_release(&mine.stack[--mine.depth]->object);
}

struct sg_context *sg_context_current(void)
{
    return mine.depth > 0 ? mine.stack[mine.depth - 1] : NULL;
}

CUresult sg_enter_context_any(struct sg_context **context)
{
    SG_RETURN_IF(sg_enter());
    struct sg_context *current = sg_context_current();
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load_explicit(&current->active, memory_order_acquire))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult sg_enter_context(struct sg_context **context)
{
    SG_RETURN_IF(sg_enter_context_any(context));
    return (CUresult)atomic_load_explicit(&(*context)->sticky, memory_order_relaxed);
}

CUresult sg_context_argument(CUcontext handle, struct sg_context **context)
{
    if (handle == NULL) {
        struct sg_context *current;
        SG_RETURN_IF(sg_enter_context_any(&current));
        sg_acquire(&current->object);
        *context = current;
        return CUDA_SUCCESS;
    }
    SG_RETURN_IF(sg_enter());
    struct sg_context *named = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (named == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load(&named->active)) {
        sg_release(&named->object);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *context = named;
    return CUDA_SUCCESS;
}

void sg_context_poison(struct sg_context *context, CUresult error)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&context->sticky, &none, (int)error);
}

/* --- life of a context --- */

static void finish_context(struct sg_object *object)
{
    struct sg_context *context = (struct sg_context *)object;
    if (context->legacy != NULL)
        sg_release(&context->legacy->object);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

struct sg_context *sg_context_new(struct sg_device *device, bool primary, unsigned flags,
                                  unsigned api_version)
{
    struct sg_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    pthread_mutex_init(&context->lock, NULL);
    context->device = device;
    context->primary = primary;
    context->flags = flags;
    context->api_version = api_version;
    sg_handle_add(&context->object, SG_KIND_CONTEXT, finish_context);
    context->legacy = sg_stream_new(context, 0, 0, true);
    if (context->legacy == NULL) {
        sg_handle_remove(context, SG_KIND_CONTEXT);
        sg_release(&context->object);
        return NULL;
    }
    return context;
}

CUresult sg_context_start(struct sg_context *context)
{
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1u << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context->id = atomic_fetch_add(&next_context_id, 1);
    atomic_store(&context->sticky, CUDA_SUCCESS);
    atomic_store(&context->peers, 0);
    atomic_fetch_add(&context->generation, 1);
    atomic_store_explicit(&context->active, true, memory_order_release);
    return CUDA_SUCCESS;
}

/* Ends a life: finishes its work, then frees what it owns. */
static void stop_context(struct sg_context *context)
{
    sg_context_wait(context);
    sg_exec_flush_output();
    sg_context_storage_reset(context);
    atomic_store(&context->active, false);
    atomic_fetch_add(&context->generation, 1);
    sg_modules_drop_context(context);
    sg_ranges_drop_context(context);
}

static CUresult primary_retain(struct sg_device *device)
{
    struct sg_context *context = device->primary;
    pthread_mutex_lock(&sg_state.lock);
    if (context->retained++ == 0)
        sg_context_start(context);
    pthread_mutex_unlock(&sg_state.lock);
    return CUDA_SUCCESS;
}

CUresult sg_primary_retain(struct sg_device *device, struct sg_context **context)
{
    SG_RETURN_IF(primary_retain(device));
    *context = device->primary;
    return CUDA_SUCCESS;
}

/* --- per-thread default streams --- */

struct sg_stream *sg_thread_stream(struct sg_context *context)
{
    unsigned long long generation = atomic_load(&context->generation);
    for (struct thread_stream *s = mine.streams; s != NULL; s = s->next)
        if (s->context == context && s->generation == generation)
            return s->stream;
    struct thread_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->stream = sg_stream_new(context, CU_STREAM_DEFAULT, 0, false);
    if (s->stream == NULL) {
        free(s);
        return NULL;
    }
    sg_handle_remove(s->stream, SG_KIND_STREAM); /* its only name is CU_STREAM_PER_THREAD */
    sg_acquire(&context->object);
    s->context = context;
    s->generation = generation;
    s->next = mine.streams;
    mine.streams = s;
    watch_thread_end();
    return s->stream;
}

/* --- primary contexts --- */

#define DEVICE_OR_RETURN(var, ordinal)                                                                       \
    SG_RETURN_IF(sg_enter());                                                                                \
    struct sg_device *var = sg_device(ordinal);                                                              \
    if (var == NULL)                                                                                         \
    return CUDA_ERROR_INVALID_DEVICE

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    DEVICE_OR_RETURN(device, ordinal);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_RETURN_IF(primary_retain(device));
    *out = sg_context_handle(device->primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    DEVICE_OR_RETURN(device, ordinal);
    struct sg_context *context = device->primary;
    pthread_mutex_lock(&sg_state.lock);
    bool held = context->retained > 0;
    bool last = held && --context->retained == 0;
    if (last)
        stop_context(context);
    pthread_mutex_unlock(&sg_state.lock);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    DEVICE_OR_RETURN(device, ordinal);
    struct sg_context *context = device->primary;
    pthread_mutex_lock(&sg_state.lock);
    if (context->retained > 0) {
        stop_context(context);
        context->flags = 0;
        sg_context_start(context); /* those who hold it go on with an empty one */
    }
    pthread_mutex_unlock(&sg_state.lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

static bool flags_valid(unsigned flags)
{
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && (schedule & (schedule - 1)) == 0;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    DEVICE_OR_RETURN(device, ordinal);
    if (!flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sg_state.lock);
    device->primary->flags = flags;
    pthread_mutex_unlock(&sg_state.lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    DEVICE_OR_RETURN(device, ordinal);
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sg_state.lock);
    *flags = device->primary->flags;
    *active = device->primary->retained > 0;
    pthread_mutex_unlock(&sg_state.lock);
    return CUDA_SUCCESS;
}

/* --- explicit contexts --- */

static CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal, unsigned api_version)
{
    DEVICE_OR_RETURN(device, ordinal);
    if (out == NULL || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_context *context = sg_context_new(device, false, flags, api_version);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_context_start(context);
    if (!stack_push(context)) {
        sg_handle_remove(context, SG_KIND_CONTEXT);
        sg_release(&context->object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = sg_context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    return create(out, flags, ordinal, 3010);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    return create(out, flags, ordinal, 3020);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *affinity, int n, unsigned int flags,
                        CUdevice ordinal)
{
    SG_RETURN_IF(sg_enter());
    if (n < 0 || (n > 0 && affinity == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return n > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(out, flags, ordinal, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    SG_RETURN_IF(sg_enter());
    if (params != NULL && params->numExecAffinityParams > 0)
        return params->execAffinityParams != NULL ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : CUDA_ERROR_INVALID_VALUE;
    if (params != NULL && params->cigParams != NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(out, flags, ordinal, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
    SG_RETURN_IF(sg_enter());
    struct sg_context *context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary || !sg_handle_remove(context, SG_KIND_CONTEXT)) {
        sg_release(&context->object);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    stop_context(context);
    if (sg_context_current() == context)
        stack_pop();
    sg_release(&context->object); /* the handle's */
    sg_release(&context->object);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext handle)
{
    return cuCtxDestroy_v2(handle);
}

/* Usage counts of explicit contexts: attaching counts up, detaching down, and the last one destroys. */
CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&context->attached, 1);
    *out = sg_context_handle(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle)
{
    struct sg_context *current;
    SG_RETURN_IF(sg_enter_context_any(&current));
    if (handle != sg_context_handle(current))
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned attached = atomic_load(&current->attached);
    while (attached > 0)
        if (atomic_compare_exchange_weak(&current->attached, &attached, attached - 1))
            return CUDA_SUCCESS;
    return cuCtxDestroy_v2(handle);
}

/* --- peers: all devices see each other's memory; what was enabled is remembered for the errors it gives --- */

static CUresult peer_argument(CUcontext handle, struct sg_context *context, uint32_t *bit)
{
    SG_REF(struct sg_context) peer = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (peer == NULL || !atomic_load(&peer->active))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_INVALID_DEVICE;
    *bit = 1u << peer->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    struct sg_context *context;
    uint32_t bit;
    SG_RETURN_IF(sg_enter_context(&context));
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SG_RETURN_IF(peer_argument(handle, context, &bit));
    uint32_t before = atomic_fetch_or(&context->peers, bit);
    return before & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    struct sg_context *context;
    uint32_t bit;
    SG_RETURN_IF(sg_enter_context(&context));
    SG_RETURN_IF(peer_argument(handle, context, &bit));
    uint32_t before = atomic_fetch_and(&context->peers, ~bit);
    return before & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* --- the thread's stack --- */

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    SG_RETURN_IF(sg_enter());
    SG_REF(struct sg_context) context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return stack_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPushCurrent(CUcontext handle)
{
    return cuCtxPushCurrent_v2(handle);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    SG_RETURN_IF(sg_enter());
    struct sg_context *context = sg_context_current();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out != NULL)
        *out = sg_context_handle(context);
    stack_pop();
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
    return cuCtxPopCurrent_v2(out);
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    SG_RETURN_IF(sg_enter());
    if (handle == NULL) {
        if (mine.depth > 0)
            stack_pop();
        return CUDA_SUCCESS;
    }
    SG_REF(struct sg_context) context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (mine.depth == 0)
        return stack_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire(&context->object);
    sg_release(&mine.stack[mine.depth - 1]->object);
    mine.stack[mine.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    SG_RETURN_IF(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sg_context_handle(sg_context_current());
    return CUDA_SUCCESS;
}

/* --- questions --- */

CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_RETURN_IF(sg_context_argument(handle, &context));
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
    return cuCtxGetDevice_v2(out, NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context_any(&context));
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (!flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    SG_REF(struct sg_context) context = NULL;
    SG_RETURN_IF(sg_context_argument(handle, &context));
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    SG_REF(struct sg_context) context = NULL;
    SG_RETURN_IF(sg_context_argument(handle, &context));
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version != 0 ? context->api_version : 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    SG_REF(struct sg_context) context = NULL;
    SG_RETURN_IF(sg_context_argument(handle, &context));
    sg_context_wait(context);
    sg_exec_flush_output();
    return (CUresult)atomic_load(&context->sticky);
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = 1 - SG_PRIORITIES;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool limit_known(CUlimit limit)
{
    return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (!limit_known(limit))
        return (unsigned)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE || limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH ||
        limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE && value > (512u << 10))
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > context->device->memory_total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&context->lock);
    context->limits[limit] = limit == CU_LIMIT_STACK_SIZE ? (value + 15) & ~(size_t)15 : value;
    pthread_mutex_unlock(&context->lock);
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        sg_exec_set_heap_limit(value);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!limit_known(limit))
        return (unsigned)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&context->lock);
    *value = context->limits[limit];
    pthread_mutex_unlock(&context->lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
    struct sg_context *context;
    SG_RETURN_IF(sg_enter_context(&context));
    if (param == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_EXEC_AFFINITY_TYPE_SM_COUNT ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : CUDA_ERROR_INVALID_VALUE;
}
