/*
 * startup.h - how the parts of a server are put together, in their order.
 *
 * Happy path: rg_startup_check (mistakes first: they should not have to wait for a driver), rg_startup_find_driver, and
 * rg_startup_serve, after which clients are served. What fails was said; the monitor is to be ended in any case. Main thread.
 */
#ifndef RG_SERVER_DAEMON_STARTUP_H
#define RG_SERVER_DAEMON_STARTUP_H

#include "server/daemon/monitor/monitor.h"
#include "server/daemon/settings/listeners.h"
#include "server/daemon/settings/settings.h"

#include <limits.h>

/** Zeroed but for `settings` and `monitor`, which is zeroed. */
struct rg_startup {
    const struct rg_daemon_settings *settings;
    struct rg_monitor *monitor;
    struct rg_listeners listeners;   /* the caller's to close */
    struct rg_monitor_settings told; /* to the frontend, for as long as there is one */
    const char *worker;              /* the program */
    char worker_path[PATH_MAX];
};

/** Checks all that needs no driver, and takes sockets that were handed over. */
RG_MUST_CHECK bool rg_startup_check(struct rg_startup *startup);
/** Chooses the driver, and then opens the server's identity: one that will not serve with that driver makes no certificates. */
RG_MUST_CHECK bool rg_startup_find_driver(struct rg_startup *startup);
/** Opens the listeners, starts the processes around the monitor, and waits until the frontend serves. */
RG_MUST_CHECK bool rg_startup_serve(struct rg_startup *startup);

#endif
