/*
 * activation.h - sockets that a service manager has opened for the server (sd_listen_fds(3)'s protocol, without its library).
 */
#ifndef RG_SERVER_DAEMON_SETTINGS_ACTIVATION_H
#define RG_SERVER_DAEMON_SETTINGS_ACTIVATION_H

#include <stdbool.h>

/**
 * How many sockets were handed over: descriptors *first and those behind it, closed in what is executed from now on. Takes the
 * variables out of the environment, so that no process of the server's takes them as its own. False: they make no sense; it was
 * said.
 */
bool rg_activation_take(int *first, unsigned *n);

#endif
