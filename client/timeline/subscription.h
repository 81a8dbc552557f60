/*
 * subscription.h - what the worker has been asked to tell when it is completed
 * (server/timeline/completion.h).
 *
 * The subscriber, a stream or an event, notes the epoch in which the worker said "not ready". A new epoch
 * begins when a host function has shown the program how far the device is: what was learnt before is then to
 * be asked again.
 *
 * Any thread. One lock, a leaf, held for a few instructions; a stream's timeline stays as long as it is held
 * (rg_timeline_end_stream).
 */
#ifndef RG_CLIENT_TIMELINE_SUBSCRIPTION_H
#define RG_CLIENT_TIMELINE_SUBSCRIPTION_H

#include "client/timeline/event_time_cache.h"
#include "client/timeline/positions.h"
#include "proto/wire.h"

struct rg_session;

struct rg_subscription {
    uint64_t id;      /* 0: free; the index and a number that is never used again */
    uint64_t event;   /* handle; 0: a stream */
    uint64_t context; /* with which it ends */
    struct rg_stream_timeline *stream;
    uint64_t named;    /* handle of that stream if it was created: as long as it is there, so is `stream` */
    uint64_t position; /* what is completed when the notice comes */
    struct rg_event_time_hint hint;
};

/** Around the functions whose names end in `_locked`. */
void rg_subscriptions_lock(void);
void rg_subscriptions_unlock(void);

/** The epoch of now; they are counted, and wrap. */
unsigned rg_subscription_epoch(void);
/**
 * Takes a place in the table, instead of the subscriber's old one. 0: there are too many, so it is asked for
 * each time.
 */
uint64_t rg_subscribe(const struct rg_session *session, struct rg_subscriber *by,
                      const struct rg_subscription *wanted);
uint64_t rg_subscribe_locked(const struct rg_session *session, struct rg_subscriber *by,
                             const struct rg_subscription *wanted);
/** Ends one; an id that is not in use any more, or 0, is fine. */
void rg_unsubscribe(const struct rg_session *session, uint64_t id);
/** Ends those of the event, the stream or the context, whichever is not 0, of all sessions. */
void rg_unsubscribe_all(uint64_t event, const struct rg_stream_timeline *stream, uint64_t context);
void rg_unsubscribe_all_locked(uint64_t event, const struct rg_stream_timeline *stream, uint64_t context);

/** Whether what it is for was not completed when the program last was shown anything. */
bool rg_subscription_pending(const struct rg_session *session, const struct rg_subscriber *by);
bool rg_subscription_pending_locked(const struct rg_session *session, const struct rg_subscriber *by);

/** Whether its notice is still to come, whatever the program has been shown. */
bool rg_subscription_due(const struct rg_session *session, const struct rg_subscriber *by);

/**
 * It is completed, or has failed: ends it, and calls `completed` unless it ended before; with the lock held.
 */
void rg_subscription_done(const struct rg_session *session, const struct rg_done *done,
                          void (*completed)(const struct rg_subscription *subscription,
                                            const struct rg_done *done));

#endif
