/*
 * daemon.h - the server's life: listen, serve until told to stop, let sessions finish, end.
 */
#ifndef RG_SERVER_DAEMON_DAEMON_H
#define RG_SERVER_DAEMON_DAEMON_H

#include "server/daemon/settings/settings.h"

/** Runs the server. Returns the exit status: 0 stopped by a signal, 75 to be started again, 125 could not start, and it was said why. */
int rg_daemon_run(const struct rg_daemon_settings *settings);

#endif
