/*
 * shared_event.h - what an interprocess event has instead of a mark.
 *
 * A page that all its processes have mapped: each record takes the next number, and puts it down as done when its stream gets there.
 * The event is complete when the last number given out is done; those who wait look now and then. Any thread.
 */
#ifndef SG_DRIVER_STREAM_SHARED_EVENT_H
#define SG_DRIVER_STREAM_SHARED_EVENT_H

#include "softgpu/driver/core/shared_file.h"
#include "softgpu/driver/schedule/schedule.h"

/** Outlives the event while work refers to it. */
struct sg_shared_event {
    _Atomic uint32_t references;
    struct sg_event_page *page;
    struct sg_shared_file about;
    int file; /* -1: of another process */
};

/** The page of a file, which is taken over, and stays open if it is this process's own; NULL: no memory. */
struct sg_shared_event *sg_shared_event_new(int file, bool own, const struct sg_shared_file *about);
/** Gives up a reference; NULL is fine. */
void sg_shared_event_release(struct sg_shared_event *shared);
/** The number that the last record took. */
uint64_t sg_shared_event_last(const struct sg_shared_event *shared);
/** Whether that record and all before it are done; no more is to be expected of a process that has died. */
bool sg_shared_event_done(const struct sg_shared_event *shared, uint64_t number);
/** Waits until the number is done, or the context that the wait belongs to has failed. */
void sg_shared_event_wait(const struct sg_shared_event *shared, uint64_t number,
                          const struct sg_context *context);
/** A task that takes the next number and puts it down; NULL: no memory. */
struct sg_task *sg_shared_event_record(struct sg_shared_event *shared);
/** A task that lasts until the number is done; NULL: no memory. */
struct sg_task *sg_shared_event_await(struct sg_shared_event *shared, uint64_t number);

#endif
