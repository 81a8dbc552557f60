/*
 * listeners.h - the addresses that the server can be reached at: those that a service manager hands over, and its own.
 *
 * Happy path, at the start: rg_listeners_adopt, rg_listeners_check of what is still to be opened, rg_listeners_open, and
 * rg_listeners_announce once clients are served; rg_listeners_close at the end. What fails was said. Main thread.
 */
#ifndef RG_SERVER_DAEMON_SETTINGS_LISTENERS_H
#define RG_SERVER_DAEMON_SETTINGS_LISTENERS_H

#include "server/daemon/settings/settings.h"
#include "server/daemon/shared/monitor_protocol.h"
#include "transport/transport.h"

/** Zeroed: there are none. */
struct rg_listeners {
    uint32_t n;
    struct rg_listener *items[RG_LISTENERS_MAX];
    enum rg_listener_reach reach[RG_LISTENERS_MAX];
    bool inherited[RG_LISTENERS_MAX]; /* the service manager has it as well */
    bool open;                        /* other machines can reach the server, or will */
};

/** Takes the sockets that a service manager has opened. */
RG_MUST_CHECK bool rg_listeners_adopt(struct rg_listeners *listeners,
                                      const struct rg_daemon_settings *settings);
/** Whether the addresses that are wanted besides are ones to listen on; then `open` is known. */
RG_MUST_CHECK bool rg_listeners_check(struct rg_listeners *listeners,
                                      const struct rg_daemon_settings *settings);
/** Opens those that are wanted; where none are, and none were handed over, loopback's. */
RG_MUST_CHECK bool rg_listeners_open(struct rg_listeners *listeners,
                                     const struct rg_daemon_settings *settings);
/** Tells whoever waits for the server its addresses, by --ready-fd and --ready-file. */
RG_MUST_CHECK bool rg_listeners_announce(const struct rg_listeners *listeners,
                                         const struct rg_daemon_settings *settings);
void rg_listeners_close(struct rg_listeners *listeners);

#endif
