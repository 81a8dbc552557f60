/*
 * rails.h - the addresses that sessions are told of for connections by other links than the one that they came by (--rails).
 *
 * By itself the server tells the addresses of those of its interfaces that have a link and that it listens on, as they are when a worker
 * is started: the worker has no network of its own to look at (server/sandbox/).
 *
 * Happy path: rg_daemon_rails_begin once; rg_daemon_rails_list for each worker, rg_daemon_rails_describe for people. Main thread.
 */
#ifndef RG_SERVER_DAEMON_SETTINGS_RAILS_H
#define RG_SERVER_DAEMON_SETTINGS_RAILS_H

#include "common/base/status.h"
#include "server/daemon/shared/monitor_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_listeners;

/** Zeroed: nothing is told. */
struct rg_daemon_rails {
    const char *told; /* by the operator; NULL: what there is */
    uint32_t n_listeners;
    struct rg_daemon_rails_listener {
        char host[64];
        uint16_t port;
    } listeners[RG_LISTENERS_MAX];
};

enum { RG_DAEMON_RAILS_TEXT = 1024 };

/** Whether `text` is as --rails takes it. RG_ERR_INVALID with a phrase in `why`. */
RG_MUST_CHECK enum rg_status rg_daemon_rails_check(const char *text, char *why, size_t why_size);
/** `setting` stays. */
void rg_daemon_rails_begin(struct rg_daemon_rails *rails, const char *setting,
                           const struct rg_listeners *listeners);
/** What a worker is given (server/handshake/rails.h). False: nothing. */
bool rg_daemon_rails_list(const struct rg_daemon_rails *rails, char *out, size_t size);
/** The same for people: "10.0.0.1 (eth0, 25 Gb/s), 10.0.1.1 (eth1, 25 Gb/s)"; "" where there is but one link. */
void rg_daemon_rails_describe(const struct rg_daemon_rails *rails, char *out, size_t size);

#endif
