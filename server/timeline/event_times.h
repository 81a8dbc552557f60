/*
 * event_times.h - the time since another event, told together with the news that an event has come.
 *
 * Programs that measure wait for an event and then ask for the time between it and an earlier one. A client
 * that has seen them do so names the earlier one when it waits (rgEventWait) or watches (rgEventWatchTimed).
 * The earlier one may end meanwhile, which is no fault of the program's: so it is known here until then, and
 * the driver is never asked about an event that is gone.
 */
#ifndef RG_SERVER_TIMELINE_EVENT_TIMES_H
#define RG_SERVER_TIMELINE_EVENT_TIMES_H

#include "server/core/worker.h"

#define RG_INTERVAL_UNKNOWN (-1.0f)

/** The wish to know a time. Its memory is whoever's it is; it must not move until rg_event_times_end. */
struct rg_event_interval {
    struct rg_event_interval *next, **link; /* link NULL: nothing is wished */
    CUevent since;                          /* NULL: it has ended */
    unsigned version;                       /* of cuEventElapsedTime: 1 or 2 */
};

/** `since`: the client's handle of an event; of any other nothing will be known. The dispatcher. */
void rg_event_times_begin(struct rg_worker *worker, struct rg_event_interval *interval, uint64_t since,
                          unsigned version);
/**
 * Milliseconds from `since` to `event`, which has come, or RG_INTERVAL_UNKNOWN; event NULL: nobody wants to
 * know any more.
 */
float rg_event_times_end(struct rg_worker *worker, struct rg_event_interval *interval, CUevent event);
/** An event will end. */
void rg_event_times_forget(struct rg_worker *worker, CUevent event);

#endif
