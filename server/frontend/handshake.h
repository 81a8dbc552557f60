/*
 * handshake.h - what happens between accepting a connection and knowing what it is for.
 *
 * Each handshake has a thread of its own, so that a client that is slow, silent or hostile keeps nobody
 * waiting; the main thread cuts it off at its deadline. The thread answers questions (questions.h), refuses
 * what is not a hello, and asks the monitor for sessions.
 *
 * Who makes many connections gets no more room by it: of one address RG_HANDSHAKES_PER_ADDRESS at most are unfinished, and
 * where there are RG_HANDSHAKES_MAX in all, the address with most of them loses its oldest. Questions are counted by
 * themselves (RG_QUESTIONS_MAX, of one address three quarters of them), so that those who wait for a driver's answer keep no
 * session waiting; who asks meanwhile waits for its turn until shortly before its deadline.
 */
#ifndef RG_SERVER_FRONTEND_HANDSHAKE_H
#define RG_SERVER_FRONTEND_HANDSHAKE_H

#include "common/base/limits.h"
#include "common/base/log_limit.h"
#include "server/frontend/frontend.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdbool.h>

struct rg_handshakes {
    pthread_mutex_t lock;
    struct rg_handshake *running,
        *done;           /* lists; lock: `done`, and `running` but for the main thread's own reading */
    uint32_t n;          /* in `running` */
    uint32_t n_asking;   /* lock: of these, those that ask a question */
    uint32_t n_waiting;  /* lock: those that wait for the pool, or hold a lease of it */
    pthread_cond_t room; /* for another question, or one who waits is cut off */
    int wake;            /* eventfd: something is in `done` */
    struct rg_frontend *frontend;
    struct rg_log_limit refusals; /* whoever reaches the port can cause them */
};

/** RG_ERR_NO_MEMORY: no eventfd, which has been logged. */
RG_MUST_CHECK enum rg_status rg_handshakes_init(struct rg_handshakes *handshakes,
                                                struct rg_frontend *frontend);

/* All of these: main thread. */

/** Starts one; takes the socket over, also if it fails. */
void rg_handshakes_start(struct rg_handshakes *handshakes, int fd, enum rg_listener_reach reach);
/** Whether there are too many to accept another connection. */
bool rg_handshakes_full(struct rg_handshakes *handshakes);
/** Ends those whose threads are done. */
void rg_handshakes_finish(struct rg_handshakes *handshakes);
/** Cuts off those past their deadline. Returns milliseconds until the next one, or -1. */
int rg_handshakes_expire(struct rg_handshakes *handshakes);

#endif
