/*
 * family.h - internal to children.c, which puts children into streams, and family.c, which runs them and
 * follows what becomes complete. All with sg_families_lock held.
 */
#ifndef SG_EXEC_DEVICE_RUNTIME_FAMILY_H
#define SG_EXEC_DEVICE_RUNTIME_FAMILY_H

#include "softgpu/exec/device_runtime/children.h"

#include <pthread.h>

extern pthread_mutex_t sg_families_lock;

enum sg_child_kind { CHILD_GRID, CHILD_TRANSFER, CHILD_RECORD, CHILD_WAIT };

struct sg_child {
    enum sg_child_kind kind;
    struct sg_child *next;       /* prepared, in its stream, or in the tail */
    struct sg_child *next_ready; /* in its family */
    struct sg_parent *parent;
    struct sg_child_stream *queue;   /* NULL: tail, or fire and forget */
    unsigned blockers;               /* what it waits for: its turn in the stream, an event */
    struct sg_child_event *recorded; /* of a record */
    struct sg_child *waiters;        /* for the record, through next_waiter */
    struct sg_child *next_waiter;
    struct sg_child_copy transfer;
    struct sg_launch launch;
    struct sg_parent own;  /* of a grid */
    unsigned char *params; /* behind the child; guarded, where kernels can reach, and of mapped_size bytes */
    size_t mapped_size;
    _Alignas(16) unsigned char own_params[];
};
/** Of a child that is in no list. */
void sg_child_free(struct sg_child *child);

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

/**
 * The family has launched something: from now on helpers look at it, and its end frees what its parents have.
 */
void sg_family_use(struct sg_family *family);
/** How many grids of the family may be pending. */
uint64_t sg_family_pending_limit(const struct sg_family *family);
/** One of the things that the child waits for is there; with the last it may run. */
void sg_family_unblock(struct sg_child *child);

#endif
