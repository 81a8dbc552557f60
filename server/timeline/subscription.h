/*
 * subscription.h - internal to completions: what the operations (watch.c) do with the list of what is watched
 * (completion.c).
 */
#ifndef RG_SERVER_TIMELINE_SUBSCRIPTION_H
#define RG_SERVER_TIMELINE_SUBSCRIPTION_H

#include "server/core/worker.h"
#include "server/timeline/event_times.h"

struct rg_subscription {
    struct rg_subscription *next;
    uint64_t id;
    CUevent event;
    CUevent passed;   /* of the client's event's context (rg_context_passed) */
    uint64_t context; /* of an event that was made for this alone; 0: the client's event */
    struct rg_event_interval interval;
};

/**
 * Adds a subscription to an event, or renews the one that the client's has. `wanted`: all but its place in the list. `since`: of whose
 * time is to be told; 0: none. False: it cannot be watched.
 */
bool rg_completion_add(struct rg_worker *worker, const struct rg_subscription *wanted, uint64_t since,
                       unsigned version);
/** A client that waits for a notice which will not come is told to ask. */
void rg_completion_refuse(struct rg_worker *worker, uint64_t id);
/** The client's event ends: nobody is told of it any more. */
void rg_completion_forget(struct rg_worker *worker, CUevent event);

#endif
