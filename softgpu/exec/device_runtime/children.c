/* children.c - see children.h. */
#include "softgpu/exec/device_runtime/children.h"

#include "softgpu/device_calls.h"
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/grid/pool.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

enum child_kind { CHILD_GRID, CHILD_TRANSFER, CHILD_RECORD, CHILD_WAIT };

struct sg_child {
    enum child_kind kind;
    struct sg_child *next;       /* prepared, in its stream, or in the tail */
    struct sg_child *next_ready; /* in its family */
    struct sg_parent *parent;
    struct sg_child_stream *queue;   /* NULL: tail, or fire and forget */
    unsigned blockers;               /* what it waits for: its turn in the stream, an event */
    struct sg_child_event *recorded; /* of a record */
    struct sg_child *waiters;        /* for the record, through next_waiter */
    struct sg_child *next_waiter;
    struct sg_transfer transfer;
    struct sg_launch launch;
    struct sg_parent own; /* of a grid */
    _Alignas(16) unsigned char params[];
};

/** A stream: its first child runs or may. */
struct sg_child_stream {
    struct sg_child_stream *next;
    bool named, destroyed;
    uint64_t block; /* of a default stream */
    struct sg_child *first, *last;
};

/** An event. */
struct sg_child_event {
    struct sg_child_event *next;
    bool destroyed;
    struct sg_child *record; /* the last one, until it is complete */
};

struct sg_thread_error {
    struct sg_thread_error *next;
    uint64_t block;
    uint32_t thread;
    int error;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something is ready, or a family is complete */
    struct sg_family *families;
    unsigned n_threads, n_idle;
} children = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *help(void *unused);

/* --- what is ready (under the lock) --- */

static void call_helper(void)
{
    /* if it cannot be made, the thread that waits for the family does the work */
    if (!children.n_idle && children.n_threads < sg_exec_cores() &&
        rg_thread_start("softgpu-child", help, NULL))
        children.n_threads++;
}

static uint64_t pending_limit(const struct sg_family *family)
{
    return family->launch->services->limit(family->launch, SG_LIMIT_PENDING_LAUNCHES);
}

static void release(struct sg_parent *parent)
{
    struct sg_family *family = parent->family;
    if (!parent->held)
        return;
    for (struct sg_child *child = parent->held, *next; child; child = next) {
        next = child->next_ready; /* the newest first: the oldest comes to the top */
        child->next_ready = family->ready;
        family->ready = child;
    }
    parent->held = NULL;
    call_helper();
    pthread_cond_broadcast(&children.changed);
}

/** The child may run, as far as its stream is concerned. */
static void make_ready(struct sg_child *child)
{
    struct sg_parent *parent = child->parent;
    child->next_ready = parent->held;
    parent->held = child;
    if (parent->ended || parent->family->pending > pending_limit(parent->family) / 2)
        release(parent);
}

static void unblock(struct sg_child *child)
{
    if (--child->blockers == 0)
        make_ready(child);
}

static struct sg_child *take_ready(struct sg_family *family)
{
    struct sg_child *child = family->ready;
    if (child)
        family->ready = child->next_ready;
    if (child && child->kind == CHILD_GRID)
        family->pending--;
    return child;
}

/* --- the end of things (under the lock) --- */

static void parent_fini(struct sg_parent *parent)
{
#define FREE_LIST(type, list)                                                                                \
    for (type *item = (list), *next; item; item = next) {                                                    \
        next = item->next;                                                                                   \
        free(item);                                                                                          \
    }                                                                                                        \
    (list) = NULL
    FREE_LIST(struct sg_child, parent->prepared);
    FREE_LIST(struct sg_child_stream, parent->streams);
    FREE_LIST(struct sg_child_event, parent->events);
    FREE_LIST(struct sg_thread_error, parent->errors);
#undef FREE_LIST
}

/** Takes a child that is complete out of its stream and lets go what waited for it. */
static void leave_stream(struct sg_child *child)
{
    struct sg_child_stream *queue = child->queue;
    if (queue) {
        queue->first = child->next;
        if (queue->first)
            unblock(queue->first);
        else
            queue->last = NULL;
    }
    if (child->recorded && child->recorded->record == child)
        child->recorded->record = NULL;
    for (struct sg_child *waiter = child->waiters, *next; waiter; waiter = next) {
        next = waiter->next_waiter;
        unblock(waiter);
    }
}

/** Something that the parent waits for is complete; goes up the family as far as grids become so. */
static void count_down(struct sg_parent *parent)
{
    while (--parent->unfinished == 0) {
        struct sg_child *tail = parent->tail_first, *self = parent->self;
        if (tail) {
            parent->tail_first = tail->next;
            parent->unfinished = 1;
            make_ready(tail);
            return;
        }
        parent_fini(parent);
        if (!self) {
            pthread_cond_broadcast(&children.changed);
            return;
        }
        parent = self->parent;
        leave_stream(self);
        free(self);
    }
}

/** The parent's own blocks have ended. */
static void end_own(struct sg_parent *parent)
{
    parent->ended = true;
    release(parent);
    count_down(parent);
}

/* --- running --- */

static void run_grid(struct sg_child *child)
{
    struct sg_family *family = child->parent->family;
    struct sg_fault_report report = {0};
    if (child->launch.services->code(&child->launch))
        sg_pool_run(&child->launch, &child->own, &report);
    else
        report.fault = SG_FAULT_ILLEGAL_INSTRUCTION; /* services->code has said why */
    RG_SCOPED_LOCK(&children.lock);
    if (report.fault && !family->stopped) {
        family->stopped = true;
        family->report = report;
        family->report.child = true;
        family->report.kernel_name = child->launch.kernel_name;
        memcpy(family->report.grid, child->launch.grid, sizeof(report.grid));
        memcpy(family->report.block, child->launch.block, sizeof(report.block));
    }
}

static void run_transfer(const struct sg_transfer *transfer)
{
    unsigned char *to = transfer->to;
    const unsigned char *from = transfer->from;
    for (uint64_t row = 0; row < transfer->height; row++) {
        if (from)
            memmove(to + row * transfer->to_pitch, from + row * transfer->from_pitch, transfer->width);
        else
            memset(to + row * transfer->to_pitch, transfer->value, transfer->width);
    }
}

/** Runs a child that was taken; under the lock, which is open meanwhile. */
static void run_child(struct sg_child *child)
{
    struct sg_parent *parent = child->parent;
    if (!parent->family->stopped) {
        pthread_mutex_unlock(&children.lock);
        if (child->kind == CHILD_GRID)
            run_grid(child);
        else if (child->kind == CHILD_TRANSFER)
            run_transfer(&child->transfer);
        pthread_mutex_lock(&children.lock);
    }
    if (child->kind == CHILD_GRID) {
        end_own(&child->own);
        return;
    }
    leave_stream(child);
    free(child);
    count_down(parent);
}

static void *help(void *unused)
{
    (void)unused;
    bool able = sg_signals_thread_init();
    pthread_mutex_lock(&children.lock);
    while (able) {
        struct sg_family *family = children.families;
        while (family && !family->ready)
            family = family->next;
        if (family) {
            run_child(take_ready(family));
        } else {
            children.n_idle++;
            pthread_cond_wait(&children.changed, &children.lock);
            children.n_idle--;
        }
    }
    children.n_threads--;
    pthread_mutex_unlock(&children.lock);
    return NULL;
}

static void family_init(struct sg_family *family, const struct sg_launch *launch)
{
    *family = (struct sg_family){.launch = launch, .first = {.unfinished = 1}};
    family->first.family = family;
}

/**
 * The blocks of the family's first grid have ended, with this report: returns when the family is complete.
 */
static void family_finish(struct sg_family *family, struct sg_fault_report *report)
{
    if (!atomic_load(&family->used))
        return;
    pthread_mutex_lock(&children.lock);
    family->stopped |= report->fault != SG_FAULT_NONE;
    end_own(&family->first);
    while (family->first.unfinished) {
        struct sg_child *child = take_ready(family);
        if (child)
            run_child(child);
        else
            pthread_cond_wait(&children.changed, &children.lock);
    }
    if (family->previous)
        family->previous->next = family->next;
    else
        children.families = family->next;
    if (family->next)
        family->next->previous = family->previous;
    pthread_mutex_unlock(&children.lock);
    if (!report->fault && family->report.fault)
        *report = family->report;
}

enum sg_fault sg_exec_run(const struct sg_launch *launch, struct sg_fault_report *report)
{
    struct sg_family family;
    family_init(&family, launch);
    sg_pool_run(launch, &family.first, report);
    family_finish(&family, report);
    return report->fault;
}

/* --- launching --- */

static void use_family(struct sg_family *family)
{
    if (atomic_exchange(&family->used, true))
        return;
    family->next = children.families;
    if (family->next)
        family->next->previous = family;
    children.families = family;
}

struct sg_child *sg_child_prepare(struct sg_parent *parent, uint32_t size)
{
    size_t bytes = (sizeof(struct sg_child) + size + 63) & ~(size_t)63;
    struct sg_child *child = aligned_alloc(64, bytes);
    if (!child)
        return NULL;
    memset(child, 0, bytes);
    child->parent = parent;
    child->own = (struct sg_parent){.family = parent->family, .self = child, .unfinished = 1};
    child->launch.params = child->params;
    child->launch.params_size = size;
    RG_SCOPED_LOCK(&children.lock);
    use_family(parent->family);
    child->next = parent->prepared;
    parent->prepared = child;
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

int sg_child_find(struct sg_parent *parent, const void *params, struct sg_child **out)
{
    pthread_mutex_lock(&children.lock);
    struct sg_child *child = parent->prepared;
    while (child && child->params != params)
        child = child->next;
    pthread_mutex_unlock(&children.lock);
    *out = child;
    return child ? SG_CUDA_SUCCESS : SG_CUDA_INVALID_VALUE;
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
        if (family->pending >= pending_limit(family)) {
            if (!family->told)
                rg_warn("kernel %s: more than %llu launches are pending: further ones fail "
                        "(cudaLimitDevRuntimePendingLaunchCount)",
                        launch->kernel_name, (unsigned long long)family->pending);
            family->told = true;
            return SG_CUDA_LAUNCH_PENDING_COUNT_EXCEEDED;
        }
        family->pending++;
    }
    use_family(family);
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
    unblock(child);
    return SG_CUDA_SUCCESS;
}

int sg_child_submit(struct sg_parent *parent, struct sg_child *child, uint64_t block, uint64_t stream)
{
    RG_SCOPED_LOCK(&children.lock);
    struct sg_child **link = &parent->prepared;
    while (*link && *link != child)
        link = &(*link)->next;
    int error = SG_CUDA_INVALID_VALUE;
    if (*link) {
        *link = child->next;
        error = enqueue(parent, child, block, stream);
        if (error)
            free(child);
    }
    return error;
}

static struct sg_child *new_child(struct sg_parent *parent, enum child_kind kind)
{
    struct sg_child *child = aligned_alloc(64, (sizeof(*child) + 63) & ~(size_t)63);
    if (!child)
        return NULL;
    memset(child, 0, sizeof(*child));
    child->kind = kind;
    child->parent = parent;
    return child;
}

int sg_child_transfer(struct sg_parent *parent, const struct sg_transfer *transfer, uint64_t block,
                      uint64_t stream)
{
    struct sg_child *child = new_child(parent, CHILD_TRANSFER);
    if (!child)
        return SG_CUDA_OUT_OF_MEMORY;
    child->transfer = *transfer;
    pthread_mutex_lock(&children.lock);
    int error = enqueue(parent, child, block, stream);
    pthread_mutex_unlock(&children.lock);
    if (error)
        free(child);
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
    pthread_mutex_lock(&children.lock);
    child->recorded = find_event(parent, event);
    int error = !child->recorded           ? SG_CUDA_INVALID_HANDLE
                : stream == SG_STREAM_TAIL ? SG_CUDA_INVALID_VALUE
                                           : enqueue(parent, child, block, stream);
    if (!error)
        child->recorded->record = child;
    pthread_mutex_unlock(&children.lock);
    if (error)
        free(child);
    return error;
}

int sg_child_wait(struct sg_parent *parent, uint64_t event, uint64_t block, uint64_t stream)
{
    struct sg_child *child = new_child(parent, CHILD_WAIT);
    if (!child)
        return SG_CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&children.lock);
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
    pthread_mutex_unlock(&children.lock);
    if (error)
        free(child);
    return error;
}

int sg_child_stream_create(struct sg_parent *parent, uint64_t *stream)
{
    struct sg_child_stream *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return SG_CUDA_OUT_OF_MEMORY;
    queue->named = true;
    pthread_mutex_lock(&children.lock);
    use_family(parent->family);
    queue->next = parent->streams;
    parent->streams = queue;
    pthread_mutex_unlock(&children.lock);
    *stream = (uint64_t)(uintptr_t)queue;
    return SG_CUDA_SUCCESS;
}

int sg_child_stream_destroy(struct sg_parent *parent, uint64_t stream)
{
    int error = SG_CUDA_INVALID_HANDLE;
    RG_SCOPED_LOCK(&children.lock);
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
    pthread_mutex_lock(&children.lock);
    use_family(parent->family);
    found->next = parent->events;
    parent->events = found;
    pthread_mutex_unlock(&children.lock);
    *event = (uint64_t)(uintptr_t)found;
    return SG_CUDA_SUCCESS;
}

int sg_child_event_destroy(struct sg_parent *parent, uint64_t event)
{
    RG_SCOPED_LOCK(&children.lock);
    struct sg_child_event *found = find_event(parent, event);
    if (found)
        found->destroyed = true;
    return found ? SG_CUDA_SUCCESS : SG_CUDA_INVALID_HANDLE;
}

/* --- errors --- */

int sg_child_last_error(struct sg_parent *parent, uint64_t block, uint32_t thread, bool clear)
{
    int error = SG_CUDA_SUCCESS;
    RG_SCOPED_LOCK(&children.lock);
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
    RG_SCOPED_LOCK(&children.lock);
    use_family(parent->family); /* whose end frees the list */
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
