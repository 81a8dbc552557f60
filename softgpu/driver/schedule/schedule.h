/*
 * schedule.h - streams as queues of tasks, and the executor threads that run them.
 *
 * A task is one piece of work of a stream. It runs when it is at the head of its stream and every task it was
 * told to wait for has ended: so a stream that waits for an event occupies no thread. Tasks without a run
 * function are marks (events, waits): they end as soon as they may, on whatever thread finds out.
 *
 * All of it is under one lock. Executor threads are made on demand, up to SG_EXECUTORS_MAX, and sleep when
 * there is nothing to do. They block all signals but those of faults.
 */
#ifndef SG_DRIVER_SCHEDULE_SCHEDULE_H
#define SG_DRIVER_SCHEDULE_SCHEDULE_H

#include "softgpu/driver/driver.h"

#define SG_EXECUTORS_MAX 64
#define SG_PRIORITIES    6    /* 0 (least) to -5 (greatest) */
#define SG_STREAM_ROOM   1024 /* a launch waits while its stream has so many tasks */

struct sg_waiter;

struct sg_task {
    _Atomic uint32_t references;
    bool done;   /* scheduler's lock */
    bool always; /* runs though the context is poisoned */
    uint32_t blockers;
    struct sg_stream *stream;
    struct sg_task *next;
    struct sg_waiter *waiters;
    uint64_t sequence; /* order of submission, over all streams */
    uint64_t done_at;  /* ns */
    void (*run)(struct sg_task *task);
    void (*dispose)(struct sg_task *task); /* frees what the payload refers to; may be NULL */
    _Alignas(16) unsigned char payload[];
};

struct sg_stream {
    struct sg_object object;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool blocking; /* synchronises with the legacy stream */
    bool legacy;
    CUsynchronizationPolicy synchronization_policy;
    /* scheduler's lock */
    struct sg_task *head, *tail;
    unsigned queued; /* tasks from head to tail */
    bool scheduled;  /* in the ready queue, or a thread runs its head */
    bool busy;       /* in context->work.busy */
    bool advancing;
    struct sg_stream *ready_next, *advance_next;
    struct sg_stream *busy_next, *busy_previous;
};

/** A task with `payload_size` zeroed bytes of payload, or NULL. `run` NULL makes a mark. */
struct sg_task *sg_task_new(size_t payload_size, void (*run)(struct sg_task *),
                            void (*dispose)(struct sg_task *));
void sg_task_release(struct sg_task *task);
static inline void sg_task_acquire(struct sg_task *task)
{
    atomic_fetch_add_explicit(&task->references, 1, memory_order_relaxed);
}

/**
 * Appends `task` to the stream, ordered after `after` (may be NULL) and after what the default stream's
 * rules ask for. Takes over the caller's reference.
 */
void sg_submit(struct sg_stream *stream, struct sg_task *task, struct sg_task *after);
/** sg_submit, and returns when the task has ended; runs it on this thread if it may run at once. */
void sg_submit_wait(struct sg_stream *stream, struct sg_task *task);

/**
 * Before a launch: waits while the stream has as much work queued as there is room for, or its context has (SOFTGPU_BEHAVE), so that a
 * thread that launches without end neither fills memory nor keeps others waiting for ever longer. An executor, which launches what a
 * conditional node runs, does not: what is queued behind that node would wait for it.
 */
void sg_wait_for_room(struct sg_stream *stream);
/** Before code is loaded into the context: waits for its work where loading does (SOFTGPU_BEHAVE); an executor does not, as above. */
void sg_wait_to_load(struct sg_context *context);

/** Whether it has ended; waits until it has. Of a failed one, too. */
bool sg_task_done(struct sg_task *task);
/** When the task ended, by the monotonic clock; 0 while it has not. */
uint64_t sg_task_done_at(struct sg_task *task);
void sg_task_wait(struct sg_task *task);
bool sg_stream_idle(struct sg_stream *stream);
bool sg_context_idle(struct sg_context *context);
/** Waits for all work queued before the call: of the stream, of all streams of the context. */
void sg_stream_wait(struct sg_stream *stream);
void sg_context_wait(struct sg_context *context);
/** The same, of all contexts. */
void sg_all_wait(void);
/**
 * Waits until no stream has anything to do, or until `deadline` (as sg_gate_close takes it): whether that is so. Nobody may
 * submit anything meanwhile. One thread at a time.
 */
bool sg_wait_for_rest(uint64_t deadline);
/** A mark behind all work of all streams of the context queued so far, submitted to `stream`. */
void sg_submit_behind_context(struct sg_stream *stream, struct sg_task *task, struct sg_context *context);

/* --- stream objects (stream.c) --- */

/**
 * The stream a handle names, with a reference: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are resolved
 * for the current context. Includes sg_enter_context, and the stream's own context's sticky error.
 */
CUresult sg_stream_get(CUstream handle, struct sg_stream **stream);
#define SG_STREAM_OR_RETURN(var, handle)                                                                     \
    SG_REF(struct sg_stream) var = NULL;                                                                     \
    RG_TRY(sg_stream_get(handle, &var))
struct sg_stream *sg_stream_new(struct sg_context *context, unsigned flags, int priority, bool legacy);
/**
 * As sg_submit without `after`, for a task that takes no longer than waking a thread: where nothing is before
 * it, it runs here and now.
 */
void sg_submit_small(struct sg_stream *stream, struct sg_task *task);
/** Submits `task`; for convenience returns CUDA_ERROR_OUT_OF_MEMORY if it is NULL. */
CUresult sg_stream_submit(struct sg_stream *stream, struct sg_task *task);

#endif
