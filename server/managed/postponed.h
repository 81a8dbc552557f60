/*
 * postponed.h - contents of shared memory that were sent or asked for while the device gate was closed.
 *
 * The reader waits for no gate: a session that is suspended still answers signs of life, and sees that its client goes. What it cannot
 * do at once is put here with its bulk data, and done in its order by the thread that opens the gate again, before any record
 * (core/device_gate.h). From the first one on all others come here, too, until none is left: none overtakes another. The client may send
 * RG_MANAGED_POSTPONED_MAX bytes, and then the reader waits after all.
 */
#ifndef RG_SERVER_MANAGED_POSTPONED_H
#define RG_SERVER_MANAGED_POSTPONED_H

#include "server/core/worker.h"

/** One of them. Its bulk data, of `size` bytes, is behind it. */
struct rg_postponed_answer {
    struct rg_postponed_answer *next;
    struct rg_answer answer;
    uint64_t seq; /* of the message that it came with */
    size_t size;
    unsigned char data[];
};

/** All of a worker. */
struct rg_postponed {
    pthread_mutex_t lock;
    pthread_cond_t emptied; /* or the session is over */
    struct rg_postponed_answer *first, **last;
    size_t bytes;
    bool working; /* they are being done */
};

/** `postponed` is zeroed. */
void rg_postponed_init(struct rg_postponed *postponed);
/** Frees what was never done: the session is over. */
void rg_postponed_fini(struct rg_postponed *postponed);
/** The session is over: nobody waits any more. Any thread. */
void rg_postponed_wake(struct rg_postponed *postponed);

/** True: nothing is in the way, and the caller is inside the gate. The reader. */
RG_MUST_CHECK bool rg_postponed_enter(struct rg_postponed *postponed, struct rg_worker *worker);
/**
 * Receives the bulk data of an answer that could not enter. *out: it can by now, the caller is inside the gate and frees it; NULL: it
 * is postponed. False: there is no connection or memory any more, or the session is over. The reader.
 */
RG_MUST_CHECK bool rg_postponed_put(struct rg_postponed *postponed, struct rg_worker *worker,
                                    const struct rg_answer *answer, uint64_t seq, size_t bulk_size,
                                    struct rg_postponed_answer **out);
/** The next one to do, which the caller frees; NULL: none is left. The thread that opens the gate. */
struct rg_postponed_answer *rg_postponed_take(struct rg_postponed *postponed, struct rg_worker *worker);

#endif
