/*
 * family.c - runs what kernels have put into streams, and ends what is complete.
 *
 * A child that waits for nothing any more is ready when its parent's blocks have ended. Helpers, at most one
 * a core, and the thread that waits for the family take what is ready, the newest first. What is complete
 * lets go what is behind it in its stream, what waits for its event, and its parent. A fault stops the
 * family: its children then end without running. A helper that cannot be made is done without. One lock over
 * all families; it is open while a child runs.
 */
#include "softgpu/exec/device_runtime/family.h"
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/grid/pool.h"

#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t sg_families_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pthread_cond_t changed; /* something is ready, or a family is complete */
    struct sg_family *families;
    unsigned n_threads, n_idle;
} children = {.changed = PTHREAD_COND_INITIALIZER};

static void *help(void *unused);

/* --- what is ready (under the lock) --- */

static void call_helper(void)
{
    /* if it cannot be made, the thread that waits for the family does the work */
    if (!children.n_idle && children.n_threads < sg_exec_cores() &&
        rg_thread_start("softgpu-child", help, NULL))
        children.n_threads++;
}

uint64_t sg_family_pending_limit(const struct sg_family *family)
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
    if (parent->ended || parent->family->pending > sg_family_pending_limit(parent->family) / 2)
        release(parent);
}

void sg_family_unblock(struct sg_child *child)
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

void sg_family_use(struct sg_family *family)
{
    if (atomic_exchange(&family->used, true))
        return;
    family->next = children.families;
    if (family->next)
        family->next->previous = family;
    children.families = family;
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
    for (struct sg_child *child = parent->prepared, *next; child; child = next) { /* never launched */
        next = child->next;
        sg_child_free(child);
    }
    parent->prepared = NULL;
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
            sg_family_unblock(queue->first);
        else
            queue->last = NULL;
    }
    if (child->recorded && child->recorded->record == child)
        child->recorded->record = NULL;
    for (struct sg_child *waiter = child->waiters, *next; waiter; waiter = next) {
        next = waiter->next_waiter;
        sg_family_unblock(waiter);
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
        sg_child_free(self);
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
    RG_SCOPED_LOCK(&sg_families_lock);
    if (report.fault && !family->stopped) {
        family->stopped = true;
        family->report = report;
        family->report.child = true;
        family->report.kernel_name = child->launch.kernel_name;
        memcpy(family->report.grid, child->launch.grid, sizeof(report.grid));
        memcpy(family->report.block, child->launch.block, sizeof(report.block));
    }
}

static void run_transfer(const struct sg_child_copy *transfer)
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
        pthread_mutex_unlock(&sg_families_lock);
        if (child->kind == CHILD_GRID)
            run_grid(child);
        else if (child->kind == CHILD_TRANSFER)
            run_transfer(&child->transfer);
        pthread_mutex_lock(&sg_families_lock);
    }
    if (child->kind == CHILD_GRID) {
        end_own(&child->own);
        return;
    }
    leave_stream(child);
    sg_child_free(child);
    count_down(parent);
}

static void *help(void *unused)
{
    (void)unused;
    bool able = sg_signals_thread_init();
    pthread_mutex_lock(&sg_families_lock);
    while (able) {
        struct sg_family *family = children.families;
        while (family && !family->ready)
            family = family->next;
        if (family) {
            run_child(take_ready(family));
        } else {
            children.n_idle++;
            pthread_cond_wait(&children.changed, &sg_families_lock);
            children.n_idle--;
        }
    }
    children.n_threads--;
    pthread_mutex_unlock(&sg_families_lock);
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
    pthread_mutex_lock(&sg_families_lock);
    family->stopped |= report->fault != SG_FAULT_NONE;
    end_own(&family->first);
    while (family->first.unfinished) {
        struct sg_child *child = take_ready(family);
        if (child)
            run_child(child);
        else
            pthread_cond_wait(&children.changed, &sg_families_lock);
    }
    if (family->previous)
        family->previous->next = family->next;
    else
        children.families = family->next;
    if (family->next)
        family->next->previous = family->previous;
    pthread_mutex_unlock(&sg_families_lock);
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
