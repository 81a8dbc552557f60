/*
 * receiver.h - takes messages of the worker and gives them to whom they concern.
 *
 * Whoever waits for a reply reads the connection itself (the reader role), so that an answer reaches its
 * caller without a change of threads; a reader that meets another caller's reply wakes that caller. When
 * nobody waits but something is still to come by itself (host calls, deferred reads), a background thread takes
 * the role.
 *
 * A program that copies to the host and then waits, again and again, reads its data while it waits; the
 * background thread would be woken for each copy in vain. When that has been so a few times, it only looks
 * once in a while (RG_RECEIVER_LOOK_MS) whether small copies are due and nobody reads; once that is so, it is
 * woken for each again.
 */
#ifndef RG_CLIENT_CORE_RECEIVER_H
#define RG_CLIENT_CORE_RECEIVER_H

#include "client/core/thread.h"
#include "common/base/status.h"

struct rg_session;

/** The receiving side of one session; used by receiver.c and receive_message.c alone. */
struct rg_receiver {
    pthread_mutex_t lock;
    pthread_cond_t background_wake;
    bool role_taken;
    bool background_started;
    int notices_due;
    uint64_t expected; /* small copies, ever */
    unsigned
        in_vain; /* times in a row that the background thread was woken, and somebody else waited by then */
    bool looks;  /* the background thread does not sleep for good */
    struct rg_waiter *waiting; /* first of the list */
    unsigned n_for_notices;    /* of these, those that are woken by each message */
};

/** Before the session's first message; starts no thread. */
void rg_receiver_init(struct rg_session *session);
/**
 * Gets `waiter` ready for the reply named by `token`, whose bulk data goes `into` memory of the caller's (NULL: is dropped); before the
 * record is sent.
 */
void rg_receiver_prepare(struct rg_session *session, struct rg_waiter *waiter, uint32_t token,
                         const struct rg_region *into);
/** Waits until the reply is there or the session has ended. */
void rg_receiver_wait(struct rg_session *session, struct rg_waiter *waiter);
/**
 * Waits until `over(argument)`, which a notice brings about, or the session has ended. What asks for the notice has been sent. `over` is
 * called with a lock held, and may take those of the timeline alone.
 */
void rg_receiver_wait_for_notice(struct rg_session *session, bool (*over)(const void *argument),
                                 const void *argument);
/** Handles what has come already, if no other thread is receiving. Sends nothing and does not wait. */
void rg_receiver_poll(struct rg_session *session);
/**
 * A send has failed, so the session is over: looks whether the worker has said why before it ended, and ends
 * the session with that. Any locks may be held: nothing else that has come is handled.
 */
void rg_receiver_last_words(struct rg_session *session);
/** Whether the reply is there, or whoever waited for it has found the session ended. */
bool rg_receiver_done(struct rg_session *session, struct rg_waiter *waiter);
/**
 * The worker will send notices that no call waits for: adds `change` to how many are due (host calls,
 * deferred reads).
 */
void rg_receiver_expect_notices(struct rg_session *session, int change);
/** The same for the data of one small copy, which the caller may well wait for soon. */
void rg_receiver_expect_copy(struct rg_session *session);
#define RG_RECEIVER_LOOK_MS      1 /* at first; up to RG_RECEIVER_LOOK_MOST_MS while nothing is found */
#define RG_RECEIVER_LOOK_MOST_MS 8
/** Wakes every waiter; the session has ended. */
void rg_receiver_wake_all(struct rg_session *session);

#endif
