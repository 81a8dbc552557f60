/*
 * device.h - streams and events of the device as the simulation sees them: when each has done what it was
 * given.
 *
 * The same rules serve twice: to find in a trace how long each piece of work took (it began when it had been
 * given, what is before it in its stream was done, and the events its stream waits for had come), and to tell
 * when it would end in another run.
 */
#ifndef RG_CLIENT_PREDICT_DEVICE_H
#define RG_CLIENT_PREDICT_DEVICE_H

#include "common/base/hash_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rg_device_act {
    RG_DEVICE_NOTHING,
    RG_DEVICE_WORK,        /* of `time` on `stream` */
    RG_DEVICE_RECORD,      /* `event` on `stream` */
    RG_DEVICE_WAIT_EVENT,  /* `stream` goes on after `event` */
    RG_DEVICE_SYNC_STREAM, /* somebody waits for `stream`, … */
    RG_DEVICE_SYNC_EVENT,
    RG_DEVICE_SYNC_ALL
};

struct rg_device_use {
    enum rg_device_act act;
    uint32_t stream, event; /* numbers; 0 is the legacy stream, or no event */
    uint64_t time;
};

/* Numbers from 0 for handles. */
struct rg_device_names {
    struct rg_hash_table streams, events;
    bool *non_blocking; /* by stream */
};

/* When each has done all that it was given. */
struct rg_device {
    const struct rg_device_names *names;
    uint64_t *streams, *events;
    uint64_t blocking; /* the latest of all streams that the legacy one waits for */
    uint64_t all;
};

/** False: out of memory. */
bool rg_device_names_init(struct rg_device_names *names);
void rg_device_names_free(struct rg_device_names *names);
/** The number of a handle, made on first use; UINT32_MAX: out of memory. */
uint32_t rg_device_stream(struct rg_device_names *names, uint64_t handle, bool non_blocking);
uint32_t rg_device_event(struct rg_device_names *names, uint64_t handle);

/** Nothing has been given to it. `names` must be complete and stay. False: out of memory. */
bool rg_device_init(struct rg_device *device, const struct rg_device_names *names);
void rg_device_free(struct rg_device *device);
/** When work on the stream that is given at `now` could begin. */
uint64_t rg_device_start(const struct rg_device *device, uint32_t stream, uint64_t now);
/** Work on the stream ends at `end`. */
void rg_device_end(struct rg_device *device, uint32_t stream, uint64_t end);
/** Records and waits for events. */
void rg_device_order(struct rg_device *device, const struct rg_device_use *use, uint64_t now);
/** When what is waited for by `use` is done; 0: nothing is. */
uint64_t rg_device_done(const struct rg_device *device, const struct rg_device_use *use);

#endif
