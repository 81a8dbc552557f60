/*
 * children.c - what kernels call to launch, copy, record and wait in streams of the device: see children.h.
 * Children are made here and put into their streams; family.c runs them. What cannot be done is the calling
 * thread's error. Any thread that runs a kernel.
 */
#include "softgpu/exec/device_runtime/family.h"

#include "softgpu/device_calls.h"
#include "softgpu/guest.h"

#include "common/base/align.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- launching --- */

void sg_child_free(struct sg_child *child)
{
    if (child->mapped_size)
        sg_guest_unmap(child->params, child->mapped_size);
    free(child);
}

struct sg_child *sg_child_prepare(struct sg_parent *parent, uint32_t size)
{
    const bool mapped = size && sg_guest_guarded();
    size_t bytes = rg_align_up(sizeof(struct sg_child) + (mapped ? 0 : size), 64);
    struct sg_child *child = aligned_alloc(64, bytes);
    if (!child)
        return NULL;
    memset(child, 0, bytes);
    child->parent = parent;
    child->params = child->own_params;
    if (mapped) {
        child->params = sg_guest_map(size, PROT_READ | PROT_WRITE);
        child->mapped_size = size;
        if (!child->params) {
            free(child);
            return NULL;
        }
    }
    child->own = (struct sg_parent){.family = parent->family, .self = child, .unfinished = 1};
    child->launch.params = child->params;
    child->launch.params_size = size;
    RG_SCOPED_LOCK(&sg_families_lock);
    sg_family_use(parent->family);
    return child;
}

void *sg_child_params(struct sg_child *child)
{
    return child->params;
}

struct sg_launch *sg_child_launch(struct sg_child *child)
{
    return &child->launch;
}

int sg_child_take(struct sg_parent *parent, const void *params, struct sg_child **out)
{
    pthread_mutex_lock(&sg_families_lock);
    struct sg_child **link = &parent->prepared;
    while (*link && (*link)->params != params)
        link = &(*link)->next;
    struct sg_child *child = *link;
    if (child)
        *link = child->next;
    pthread_mutex_unlock(&sg_families_lock);
    *out = child;
    return child ? SG_CUDA_SUCCESS : SG_CUDA_INVALID_VALUE;
}

void sg_child_put_back(struct sg_parent *parent, struct sg_child *child)
{
    RG_SCOPED_LOCK(&sg_families_lock);
    child->next = parent->prepared;
    parent->prepared = child;
}

/**
 * The stream, made if it is the block's default; NULL with *error (SUCCESS: it is not a queue). Under the
 * lock.
 */
static struct sg_child_stream *find_stream(struct sg_parent *parent, uint64_t block, uint64_t stream,
                                           int *error)
{
    bool named = stream > SG_STREAM_FIRE_AND_FORGET;
    *error = SG_CUDA_SUCCESS;
    if (stream == SG_STREAM_TAIL || stream == SG_STREAM_FIRE_AND_FORGET)
        return NULL;
    for (struct sg_child_stream *queue = parent->streams; queue; queue = queue->next)
        if (named ? (uint64_t)(uintptr_t)queue == stream && queue->named && !queue->destroyed
                  : !queue->named && queue->block == block)
            return queue;
    if (named) {
        *error = SG_CUDA_INVALID_HANDLE;
        return NULL;
    }
    struct sg_child_stream *queue = calloc(1, sizeof(*queue));
    if (!queue) {
        *error = SG_CUDA_OUT_OF_MEMORY;
        return NULL;
    }
    queue->block = block;
    queue->next = parent->streams;
    parent->streams = queue;
    return queue;
}

/**
 * Puts the child where its stream says; under the lock. The child is the caller's still if there is an error.
 */
static int enqueue(struct sg_parent *parent, struct sg_child *child, uint64_t block, uint64_t stream)
{
    struct sg_family *family = parent->family;
    int error;
    struct sg_child_stream *queue = find_stream(parent, block, stream, &error);
    if (error)
        return error;
    if (child->kind == CHILD_GRID) {
        const struct sg_launch *launch = family->launch;
        if (family->pending >= sg_family_pending_limit(family)) {
            if (!family->told)
                rg_warn("kernel %s: more than %llu launches are pending: further ones fail "
                        "(cudaLimitDevRuntimePendingLaunchCount)",
                        launch->kernel_name, (unsigned long long)family->pending);
            family->told = true;
            return SG_CUDA_LAUNCH_PENDING_COUNT_EXCEEDED;
        }
        family->pending++;
    }
    sg_family_use(family);
    child->next = NULL;
    child->queue = queue;
    if (stream == SG_STREAM_TAIL) {
        if (parent->tail_first)
            parent->tail_last->next = child;
        else
            parent->tail_first = child;
        parent->tail_last = child;
        return SG_CUDA_SUCCESS;
    }
    parent->unfinished++;
    child->blockers++; /* one more until here all is done */
    if (queue && queue->first) {
        child->blockers++;
        queue->last->next = child;
    } else if (queue) {
        queue->first = child;
    }
    if (queue)
        queue->last = child;
    sg_family_unblock(child);
    return SG_CUDA_SUCCESS;
}

int sg_child_submit(struct sg_parent *parent, struct sg_child *child, uint64_t block, uint64_t stream)
{
    RG_SCOPED_LOCK(&sg_families_lock);
    int error = enqueue(parent, child, block, stream);
    if (error)
        sg_child_free(child);
    return error;
}

static struct sg_child *new_child(struct sg_parent *parent, enum sg_child_kind kind)
{
    struct sg_child *child = aligned_alloc(64, rg_align_up(sizeof(*child), 64));
    if (!child)
        return NULL;
    memset(child, 0, sizeof(*child));
    child->kind = kind;
    child->parent = parent;
    return child;
}

int sg_child_transfer(struct sg_parent *parent, const struct sg_child_copy *transfer, uint64_t block,
                      uint64_t stream)
{
    struct sg_child *child = new_child(parent, CHILD_TRANSFER);
    if (!child)
        return SG_CUDA_OUT_OF_MEMORY;
    child->transfer = *transfer;
    pthread_mutex_lock(&sg_families_lock);
    int error = enqueue(parent, child, block, stream);
    pthread_mutex_unlock(&sg_families_lock);
    if (error)
        sg_child_free(child);
    return error;
}

/* --- streams and events --- */

static struct sg_child_event *find_event(struct sg_parent *parent, uint64_t event)
{
    for (struct sg_child_event *found = parent->events; found; found = found->next)
        if ((uint64_t)(uintptr_t)found == event && !found->destroyed)
            return found;
    return NULL;
}

int sg_child_record(struct sg_parent *parent, uint64_t event, uint64_t block, uint64_t stream)
{
    struct sg_child *child = new_child(parent, CHILD_RECORD);
    if (!child)
        return SG_CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&sg_families_lock);
    child->recorded = find_event(parent, event);
    int error = !child->recorded           ? SG_CUDA_INVALID_HANDLE
                : stream == SG_STREAM_TAIL ? SG_CUDA_INVALID_VALUE
                                           : enqueue(parent, child, block, stream);
    if (!error)
        child->recorded->record = child;
    pthread_mutex_unlock(&sg_families_lock);
    if (error)
        sg_child_free(child);
    return error;
}

int sg_child_wait(struct sg_parent *parent, uint64_t event, uint64_t block, uint64_t stream)
{
    struct sg_child *child = new_child(parent, CHILD_WAIT);
    if (!child)
        return SG_CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&sg_families_lock);
    struct sg_child_event *found = find_event(parent, event);
    struct sg_child *record = found ? found->record : NULL;
    child->blockers = record != NULL;
    int error = !found                     ? SG_CUDA_INVALID_HANDLE
                : stream == SG_STREAM_TAIL ? SG_CUDA_INVALID_VALUE
                                           : enqueue(parent, child, block, stream);
    if (!error && record) {
        child->next_waiter = record->waiters;
        record->waiters = child;
    }
    pthread_mutex_unlock(&sg_families_lock);
    if (error)
        sg_child_free(child);
    return error;
}

int sg_child_stream_create(struct sg_parent *parent, uint64_t *stream)
{
    struct sg_child_stream *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return SG_CUDA_OUT_OF_MEMORY;
    queue->named = true;
    pthread_mutex_lock(&sg_families_lock);
    sg_family_use(parent->family);
    queue->next = parent->streams;
    parent->streams = queue;
    pthread_mutex_unlock(&sg_families_lock);
    *stream = (uint64_t)(uintptr_t)queue;
    return SG_CUDA_SUCCESS;
}

int sg_child_stream_destroy(struct sg_parent *parent, uint64_t stream)
{
    int error = SG_CUDA_INVALID_HANDLE;
    RG_SCOPED_LOCK(&sg_families_lock);
    struct sg_child_stream *queue =
        stream > SG_STREAM_FIRE_AND_FORGET ? find_stream(parent, 0, stream, &error) : NULL;
    if (queue)
        queue->destroyed = true; /* what is in it runs */
    return error;
}

int sg_child_event_create(struct sg_parent *parent, uint64_t *event)
{
    struct sg_child_event *found = calloc(1, sizeof(*found));
    if (!found)
        return SG_CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&sg_families_lock);
    sg_family_use(parent->family);
    found->next = parent->events;
    parent->events = found;
    pthread_mutex_unlock(&sg_families_lock);
    *event = (uint64_t)(uintptr_t)found;
    return SG_CUDA_SUCCESS;
}

int sg_child_event_destroy(struct sg_parent *parent, uint64_t event)
{
    RG_SCOPED_LOCK(&sg_families_lock);
    struct sg_child_event *found = find_event(parent, event);
    if (found)
        found->destroyed = true;
    return found ? SG_CUDA_SUCCESS : SG_CUDA_INVALID_HANDLE;
}

/* --- errors --- */

int sg_child_last_error(struct sg_parent *parent, uint64_t block, uint32_t thread, bool clear)
{
    int error = SG_CUDA_SUCCESS;
    RG_SCOPED_LOCK(&sg_families_lock);
    for (struct sg_thread_error *e = parent->errors; e; e = e->next)
        if (e->block == block && e->thread == thread) {
            error = e->error;
            if (clear)
                e->error = SG_CUDA_SUCCESS;
            break;
        }
    return error;
}

void sg_child_set_error(struct sg_parent *parent, uint64_t block, uint32_t thread, int error)
{
    struct sg_thread_error *e;
    RG_SCOPED_LOCK(&sg_families_lock);
    sg_family_use(parent->family); /* whose end frees the list */
    for (e = parent->errors; e; e = e->next)
        if (e->block == block && e->thread == thread)
            break;
    if (!e && (e = calloc(1, sizeof(*e)))) {
        e->block = block;
        e->thread = thread;
        e->next = parent->errors;
        parent->errors = e;
    }
    if (e)
        e->error = error;
}
