/*
 * contained.h - whether a client of a unix socket is in a container: then its root is none of this machine's.
 *
 * The kernel names the user of a connection, and root of a container that has no user namespace of its own is user 0 as well. What such a
 * container has of its own is a PID namespace. Any thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_CONTAINED_H
#define RG_SERVER_DAEMON_GRANT_CONTAINED_H

#include <stdbool.h>

/** Whether the process that has connected is in another PID namespace than this one, or has ended, or nothing of it can be known. */
bool rg_is_contained(int connection);

#endif
