/*
 * handshake.h - what happens between accepting a connection and knowing what it is for.
 *
 * Each handshake has a thread of its own, so that a client that is slow, silent or hostile keeps nobody
 * waiting; the main thread cuts it off at its deadline. The thread answers questions (inventory, status) and
 * refuses what is not a hello; a session that is asked for is left to the main thread, which alone starts
 * workers.
 */
#ifndef RG_SERVER_DAEMON_HANDSHAKE_H
#define RG_SERVER_DAEMON_HANDSHAKE_H

#include "common/base/limits.h"
#include "common/base/log_limit.h"
#include "server/daemon/driver.h"
#include "server/daemon/management.h"
#include "server/daemon/sessions.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdbool.h>

/* Unfinished handshakes at once; the oldest gives way to a new connection. */

struct rg_handshakes {
    pthread_mutex_t lock;
    struct rg_handshake *running, *done; /* lists; `done` belongs to the lock */
    uint32_t n;
    int wake; /* eventfd: something is in `done` */
    struct rg_driver *driver;
    struct rg_sessions *sessions;
    bool allow_unauthenticated;
    struct rg_management management;
    struct rg_log_limit refusals; /* whoever reaches the port can cause them */
};

RG_MUST_CHECK enum rg_status rg_handshakes_init(struct rg_handshakes *handshakes, struct rg_driver *driver,
                                                struct rg_sessions *sessions, bool allow_unauthenticated);
/** Cuts off all that run, and waits for their threads. */
void rg_handshakes_fini(struct rg_handshakes *handshakes);

/* All of these: main thread. */

/** Starts one; takes the connection over, also if it fails. */
void rg_handshakes_start(struct rg_handshakes *handshakes, struct rg_conn *conn);
/** Finishes those whose threads are done: starts the sessions asked for, or refuses them. */
void rg_handshakes_finish(struct rg_handshakes *handshakes, bool stopping);
/** Cuts off those past their deadline. Returns milliseconds until the next one, or -1. */
int rg_handshakes_expire(struct rg_handshakes *handshakes);

#endif
