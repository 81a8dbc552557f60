/*
 * resume.h - a session goes on after its connection was lost (transport/resumable/resumable.h): the worker's
 * side.
 *
 * A client that has lost its connection comes to the daemon's port and names its session. The daemon hands
 * the connection, with the client's hello, to the session's worker (channels.h). The worker looks at the
 * token; what shows another than its own is refused and changes nothing. With the right one, the connection
 * replaces the session's, also if that seems to be well: its client knows better.
 *
 * A session that had moved to RDMA and goes on over TCP goes back when its client has found that RDMA works again: the
 * client offers the transport in its RESUME, an upgrade is made as at the session's beginning (transport/upgrade/), on a
 * thread of its own and beside the session's connection, and only then the client resumes by what came of it.
 *
 * Without a setting (auto) that is so where it is worth it: over TCP, with or without TLS, to another machine. Not over a connection
 * within this machine, which is not lost (what comes through a tunnel that ends here looks like one, and a client that was killed
 * could not be told from one that was cut off there); and not where the session may move to RDMA, for the GPU's memory is not used
 * directly then.
 *
 * How long a client is waited for: the grace time. But where its process has gone, which a control connection tells
 * (transport/resumable/resumable.h), for GONE_GRACE_S: if it was something between that closed both connections, the client
 * is back at once. A client of more than a second has such a connection; so a younger one is waited for no longer. Of an older
 * one that has none nothing is known but that its machine has ended the connection, or something that speaks for it:
 * SHORT_GRACE_S. Where a tunnel is between, its end is
 * no client's: there it is always the grace time.
 */
#ifndef RG_SERVER_HANDSHAKE_RESUME_H
#define RG_SERVER_HANDSHAKE_RESUME_H

#include "proto/control/control.h"
#include "transport/transport.h"

#include <pthread.h>

struct rg_channels;

struct rg_resume {
    bool offered; /* both sides can; else nothing below is used */
    uint64_t session;
    uint64_t grace_ns, began_ns;
    uint8_t token[RG_RESUME_TOKEN];
    bool tunnelled;
    struct rg_channels *channels;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_conn *come; /* a client that has shown the token */
    struct rg_conn *come_control;
    uint64_t come_received;
    bool upgrades;                        /* the session may be upgraded again */
    bool upgrading;                       /* a client is at it; the lock */
    struct rg_conn *resumable;            /* the session's connection */
    const struct rg_device_info *devices; /* the session's */
    uint32_t n_devices;
};

/** Whether that is so without a setting. `may_move`: the session may move to RDMA. */
bool rg_resume_is_worth_it(const struct rg_conn *conn, bool may_move);
/** Decides whether the session can outlive its connection, and completes the server's hello. */
void rg_resume_offer(struct rg_resume *resume, uint64_t session, uint32_t grace_s,
                     const struct rg_client_hello *client, const struct rg_conn *conn,
                     struct rg_server_hello *hello);
/**
 * After rg_resume_offer: the session may move to another transport, also again; it has those devices, which stay.
 */
void rg_resume_offer_upgrade(struct rg_resume *resume, struct rg_server_hello *hello);
/** Makes *conn a resumable connection, and *control_conn a part of it. False: no memory, both stay. */
bool rg_resume_begin(struct rg_resume *resume, struct rg_channels *channels, struct rg_conn **conn,
                     struct rg_conn **control_conn);
/** A client comes with such a hello by socket `fd`, which is taken, by TLS with `keys`. */
void rg_resume_take(struct rg_resume *resume, const struct rg_client_hello *hello, int fd,
                    const struct rg_tls_keys *keys);

#endif
