/*
 * frontend.h - what the parts of the frontend share: the link to the monitor, the board, the settings.
 *
 * The frontend is the process that talks to whoever connects, until it is known who that is and what for. It has no rights of
 * its own: what it cannot do from what it was given when it started, the monitor does for it, or refuses.
 */
#ifndef RG_SERVER_FRONTEND_FRONTEND_H
#define RG_SERVER_FRONTEND_FRONTEND_H

#include "server/daemon/shared/board.h"
#include "server/frontend/management.h"
#include "server/frontend/monitor_link.h"

struct rg_tls_server; /* transport/tls/tls.h */

struct rg_frontend {
    struct rg_monitor_link link;
    const struct rg_board *board;
    struct rg_monitor_settings settings;
    int listeners[RG_LISTENERS_MAX];
    pthread_mutex_t tls_lock;
    struct rg_tls_server *tls; /* tls_lock; NULL: there is no TLS */
    struct rg_management management;
    /* one look at the devices at a time, whoever wants it */
    pthread_mutex_t look_lock;
    pthread_cond_t looked;
    bool looking; /* look_lock */
};

/** Serves until the monitor has gone. Returns the process's exit status. */
int rg_frontend_run(int socket);

#endif
