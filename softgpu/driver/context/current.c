/*
 * current.c - the calling thread's part: its stack of current contexts, its default streams, and the checks
 * that calls begin with.
 *
 * A thread's stack holds references, so a context destroyed elsewhere stays readable and answers
 * CUDA_ERROR_CONTEXT_IS_DESTROYED. All of it goes with the thread.
 */
#include <stdlib.h>

#include "softgpu/driver/context/context.h"
#include "softgpu/driver/schedule/schedule.h"

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
static bool ends_are_told; /* else the program has all keys that there are */
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

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
    ends_are_told = pthread_key_create(&thread_end, drop_thread) == 0;
}

static void watch_thread_end(void)
{
    pthread_once(&thread_end_once, make_thread_end);
    if (ends_are_told)
        pthread_setspecific(thread_end, &mine);
}

bool sg_context_push(struct sg_context *context)
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

void sg_context_pop(void)
{
    sg_release(&mine.stack[--mine.depth]->object);
}

struct sg_context *sg_context_current(void)
{
    return mine.depth > 0 ? mine.stack[mine.depth - 1] : NULL;
}

CUresult sg_enter_current(bool any, struct sg_context **context)
{
    RG_TRY(sg_enter());
    struct sg_context *current = sg_context_current();
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load_explicit(&current->active, memory_order_acquire) ||
        !atomic_load_explicit(&current->owner->active, memory_order_acquire))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = current;
    return any ? CUDA_SUCCESS : (CUresult)atomic_load_explicit(&current->owner->sticky, memory_order_relaxed);
}

CUresult sg_enter_context_any(struct sg_context **context)
{
    RG_TRY(sg_enter_current(true, context));
    *context = (*context)->owner;
    return CUDA_SUCCESS;
}

CUresult sg_enter_context(struct sg_context **context)
{
    RG_TRY(sg_enter_context_any(context));
    return (CUresult)atomic_load_explicit(&(*context)->sticky, memory_order_relaxed);
}

CUresult sg_enter_anywhere(void)
{
    struct sg_context *context;
    const CUresult result = sg_enter_context(&context);
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? sg_enter()
                                                                                             : result;
}

CUresult sg_context_argument(CUcontext handle, struct sg_context **context)
{
    if (handle == NULL) {
        struct sg_context *current;
        RG_TRY(sg_enter_current(true, &current));
        sg_acquire(&current->object);
        *context = current;
        return CUDA_SUCCESS;
    }
    RG_TRY(sg_enter());
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

static _Atomic int process_error; /* the first fault of any context */

void sg_context_poison(struct sg_context *context, CUresult error)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&context->owner->sticky, &none, (int)error);
    none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&process_error, &none, (int)error);
}

CUresult sg_context_process_error(void)
{
    return (CUresult)atomic_load(&process_error);
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

/* --- the thread's stack --- */

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_context) context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sg_context_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    RG_TRY(sg_enter());
    struct sg_context *context = sg_context_current();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out != NULL)
        *out = sg_context_handle(context);
    sg_context_pop();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    RG_TRY(sg_enter());
    if (handle == NULL) {
        if (mine.depth > 0)
            sg_context_pop();
        return CUDA_SUCCESS;
    }
    SG_REF(struct sg_context) context = sg_handle_get(handle, SG_KIND_CONTEXT);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (mine.depth == 0)
        return sg_context_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire(&context->object);
    sg_release(&mine.stack[mine.depth - 1]->object);
    mine.stack[mine.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sg_context_handle(sg_context_current());
    return CUDA_SUCCESS;
}
