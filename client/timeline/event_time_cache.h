/*
 * event_time_cache.h - the time between two events, without a round trip of its own where a program measures
 * again and again.
 *
 * That a program asks for the time since `start` when `end` has come is learnt from its doing so. From then
 * on the wait for `end`, or the subscription to it, asks for that time as well
 * (server/timeline/event_times.h), and the answer is kept with the positions of both records: as long as
 * neither event has been recorded again, it is the time.
 *
 * Any thread. What is learnt and kept has a lock, which is a leaf.
 */
#ifndef RG_CLIENT_TIMELINE_EVENT_TIME_CACHE_H
#define RG_CLIENT_TIMELINE_EVENT_TIME_CACHE_H

#include "client/timeline/positions.h"

/** What is to be told with the news that an event has come. */
struct rg_event_time_hint {
    uint64_t since;    /* handle of the start; 0: nothing */
    unsigned version;  /* of cuEventElapsedTime: 1 or 2 */
    uint64_t from, to; /* positions of the two records */
};

/**
 * The start of what the program asks for when `end` has come; `from` and `to` are the caller's to fill in.
 */
struct rg_event_time_hint rg_event_time_wanted(struct rg_event_timeline *end);
/** The answer to a hint; less than 0: it is not known. */
void rg_event_time_arrived(struct rg_event_timeline *end, const struct rg_event_time_hint *hint, float ms);
/** Whether the time is known that the hint describes. */
bool rg_event_time_find(struct rg_event_timeline *end, const struct rg_event_time_hint *hint, float *ms);
/** It has been asked for and was known: it will be again. */
void rg_event_time_learn(struct rg_event_timeline *end, uint64_t since, unsigned version);

#endif
