/*
 * times.h - how long the records of a session take, for `remote-gpu run --record`; see proto/times.h.
 *
 * Host times are read around a record. What the device does is timed by an event behind the work, taken from a pool and
 * looked at later: nothing waits for it. The device's clock is laid over the host's by an event that is recorded before
 * the first work of a context; since work never ends before the host began to ask for it, the offset is corrected
 * whenever it would.
 *
 * All functions do nothing in a session whose client did not ask. The events of a context end with it.
 */
#ifndef RG_SERVER_TIMELINE_TIMES_H
#define RG_SERVER_TIMELINE_TIMES_H

#include "server/core/leader_followers.h"

struct rg_times;

/** Starts to measure; false: out of memory. Before the worker starts. */
bool rg_times_start(struct rg_worker *worker);
void rg_times_destroy(struct rg_times *times);

/* What dispatch.c and request.c call. */
void rg_times_begin(struct rg_executor *executor);
void rg_times_detached(struct rg_executor *executor);
void rg_times_executed(struct rg_executor *executor);
void rg_times_finish(struct rg_executor *executor, uint64_t replied);

/** The context is about to end and has no work left. */
void rg_times_drop_context(struct rg_worker *worker, uint64_t context);
/** Handles RG_ANSWER_TIMES; false: it breaks the protocol. The reader. */
bool rg_times_answer(struct rg_worker *worker, const struct rg_answer *answer, size_t bulk_size);

#endif
