/*
 * times.h - how long the records of a session take, for `remote-gpu run --record`; see proto/times.h.
 *
 * Host times are read around a record. What the device does is timed by an event behind the work, taken from
 * a pool and looked at later: nothing waits for it. The device's clock is laid over the host's by an event
 * that is recorded before the first work of a context; since work never ends before the host began to ask for
 * it, the offset is corrected whenever it would.
 *
 * A session whose client did not ask measures nothing. The events of a context end with it.
 */
#ifndef RG_SERVER_TIMELINE_TIMES_H
#define RG_SERVER_TIMELINE_TIMES_H

#include "server/core/worker.h"

/** Starts to measure. Before the worker starts. */
void rg_times_start(struct rg_worker *worker);

#endif
