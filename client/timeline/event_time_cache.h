/*
 * event_time_cache.h - the time between two events, without a round trip of its own where a program measures again and again.
 *
 * That a program asks for the time since `start` when `end` has come is learnt from its doing so. From then on the wait for
 * `end`, or the watch of it, asks for that time as well (server/timeline/event_times.h), and the answer is kept with the positions of
 * both records (client/timeline/timeline.h): as long as neither event has been recorded again, it is the time.
 *
 * Any thread. What is learnt and kept has a lock, which is a leaf.
 */
#ifndef RG_CLIENT_TIMELINE_EVENT_TIME_CACHE_H
#define RG_CLIENT_TIMELINE_EVENT_TIME_CACHE_H

#include "client/core/handle.h"

/** What is wished to be known with the news that an event has come. */
struct rg_event_time_hint {
    uint64_t since;    /* handle of the start; 0: nothing is wished */
    unsigned version;  /* of cuEventElapsedTime: 1 or 2 */
    uint64_t from, to; /* positions of the two records */
};

/** What to wish for with the record of `end` at position `to`. */
struct rg_event_time_hint rg_event_time_hint(CUevent end, uint64_t to);
/** The answer to a wish; less than 0: it is not known. */
void rg_event_time_arrived(CUevent end, const struct rg_event_time_hint *wish, float ms);

#endif
