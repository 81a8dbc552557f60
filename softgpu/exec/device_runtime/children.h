/*
 * children.h - what kernels put into streams of the device: grids, copies, events (dynamic parallelism).
 *
 *   family  a grid of the host and all that comes from it. The launch is over when the whole family is.
 *   parent  a grid as those see it that it launches. It owns the streams and events that its threads make,
 *           and is complete when its own blocks have ended and all that it launched is complete; then what is
 *           in its tail stream runs, one after the other.
 *   child   one piece of work in a stream.
 *
 * Children begin when their parent's blocks have ended: programs let one lane of a warp launch what reads the
 * stores of all, which it does before the others have made theirs here. Only when half of the launches that
 * may be pending are, they begin at once. Those that may run are taken, the newest grid's first, by threads
 * made for that (at most one a core) and by the thread that waits for the family; none waits for another on a
 * stack. One lock; all functions may be called from kernels, and read no memory of kernels but a child's own.
 */
#ifndef SG_EXEC_DEVICE_RUNTIME_CHILDREN_H
#define SG_EXEC_DEVICE_RUNTIME_CHILDREN_H

#include "softgpu/exec/exec.h"

#include <stdatomic.h>

/* Streams below these (0, 1, 2: default, legacy, per thread) are a block's own. */
#define SG_STREAM_TAIL            3u
#define SG_STREAM_FIRE_AND_FORGET 4u

struct sg_child;
struct sg_family;

struct sg_parent {
    struct sg_family *family;
    struct sg_child *self;     /* NULL: the family's first */
    uint64_t unfinished;       /* its own blocks count as one, and each child that is not complete */
    bool ended;                /* its blocks have: children begin */
    struct sg_child *held;     /* those that wait for just that, the newest first */
    struct sg_child *prepared; /* parameter buffers that were not launched, the newest first */
    struct sg_child *tail_first, *tail_last;
    struct sg_child_stream *streams;
    struct sg_child_event *events;
    struct sg_thread_error *errors;
};

struct sg_family {
    struct sg_parent first;
    const struct sg_launch *launch;
    _Atomic bool used;      /* kernels have launched something */
    bool stopped;           /* there is a fault: nothing more begins */
    bool told;              /* that too much is pending */
    uint64_t pending;       /* grids that have not begun */
    struct sg_child *ready; /* the newest first */
    struct sg_fault_report report;
    struct sg_family *next, *previous; /* those that are used */
};

/** What a child does in its stream beside running a grid: `width` bytes in `height` rows. */
struct sg_child_copy {
    void *to;
    const void *from; /* NULL: `value` is written */
    uint64_t to_pitch, from_pitch, width, height;
    unsigned char value;
};

/**
 * Room for a launch and `size` bytes of parameters, which are zero; NULL: no memory. It is the kernel's to find by its
 * parameters (sg_child_take) until it is launched.
 */
struct sg_child *sg_child_prepare(struct sg_parent *parent, uint32_t size);
void *sg_child_params(struct sg_child *child);
struct sg_launch *sg_child_launch(struct sg_child *child);

/**
 * Takes the child whose parameters these are, if it has not been launched: no other thread finds it meanwhile. It goes to
 * sg_child_submit or is put back.
 */
int sg_child_take(struct sg_parent *parent, const void *params, struct sg_child **out);
void sg_child_put_back(struct sg_parent *parent, struct sg_child *child);

/*
 * These return a cudaError_t, and take the number of the calling block and the stream's handle.
 */
/** The child is gone afterwards, whether it could be submitted or not. */
int sg_child_submit(struct sg_parent *parent, struct sg_child *child, uint64_t block, uint64_t stream);
int sg_child_transfer(struct sg_parent *parent, const struct sg_child_copy *transfer, uint64_t block,
                      uint64_t stream);
int sg_child_record(struct sg_parent *parent, uint64_t event, uint64_t block, uint64_t stream);
int sg_child_wait(struct sg_parent *parent, uint64_t event, uint64_t block, uint64_t stream);
int sg_child_stream_create(struct sg_parent *parent, uint64_t *stream);
int sg_child_stream_destroy(struct sg_parent *parent, uint64_t stream);
int sg_child_event_create(struct sg_parent *parent, uint64_t *event);
int sg_child_event_destroy(struct sg_parent *parent, uint64_t event);

/** The last error of a thread, by the number of its block and its own; 0 if there is none. */
int sg_child_last_error(struct sg_parent *parent, uint64_t block, uint32_t thread, bool clear);
void sg_child_set_error(struct sg_parent *parent, uint64_t block, uint32_t thread, int error);

/** heap.c: whether the bytes are in the heap of kernels. */
bool sg_heap_holds(uint64_t address, uint64_t size);

#endif
