/*
 * resume.h - a session goes on after its connection was lost (transport/resumable/resumable.h): the worker's
 * side.
 *
 * A client that has lost its connection comes to the daemon's port and names its session. The daemon hands
 * the connection, with the client's hello, to the session's worker (channels.h). The worker looks at the
 * token; what shows another than its own is refused and changes nothing. With the right one, the connection
 * replaces the session's, also if that seems to be well: its client knows better.
 *
 * How long a client is waited for: the grace time. But where its machine itself has ended the connection, its
 * process is gone, most likely, and a living one is back at once: then SHORT_GRACE_S is enough; unless there
 * is a tunnel between, which ends connections whatever its client does.
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
    uint64_t grace_ns;
    uint8_t token[RG_RESUME_TOKEN];
    bool tunnelled;
    struct rg_channels *channels;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_conn *come; /* a client that has shown the token */
    uint64_t come_received;
};

/** Decides whether the session can outlive its connection, and completes the server's hello. */
void rg_resume_offer(struct rg_resume *resume, uint64_t session, uint32_t grace_s,
                     const struct rg_client_hello *client, const struct rg_conn *conn,
                     struct rg_server_hello *hello);
/** Makes *conn a lasting connection, and *control_conn a part of it. False: no memory, both stay. */
bool rg_resume_begin(struct rg_resume *resume, struct rg_channels *channels, struct rg_conn **conn,
                     struct rg_conn **control_conn);
/** A client comes with such a hello by socket `fd`, which is taken, by TLS with `keys`; `conn` is the session's connection. */
void rg_resume_take(struct rg_resume *resume, const struct rg_client_hello *hello, int fd,
                    const struct rg_tls_keys *keys, struct rg_conn *conn);

#endif
