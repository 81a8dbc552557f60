/*
 * handshake_internal.h - what the files of handshakes share; see handshake.h.
 *
 * Life of a handshake: the main thread (handshakes.c) creates it and puts it into `running`; its thread (handshake.c) receives one
 * message and answers, or has the monitor start or continue a session (session_request.c) or make a certificate (certificates.c), then
 * moves it to `done` and writes the eventfd; the main thread joins the thread and destroys it. Only the main thread changes `running`
 * and the deadline; cutting a handshake off wakes its thread wherever it waits for the client.
 */
#ifndef RG_SERVER_FRONTEND_HANDSHAKE_INTERNAL_H
#define RG_SERVER_FRONTEND_HANDSHAKE_INTERNAL_H

#include "server/frontend/handshake.h"
#include "server/frontend/security.h"

#include <sys/types.h>

/* Questions that are being answered at once, of one address: the others are for others. */
#define RG_QUESTIONS_PER_ADDRESS (RG_QUESTIONS_MAX / 4 * 3)

/* Where a client comes from, as far as it is counted: an IPv4 address, an IPv6 network, a user of this machine. */
struct rg_origin {
    uint32_t family;
    uint8_t bytes[8];
};

struct rg_handshake {
    struct rg_handshake *next, *next_done;
    struct rg_handshakes *owner;
    pthread_t thread;
    enum rg_listener_reach reach;
    struct rg_origin origin;
    uid_t uid; /* RG_REACH_UNIX: whose process it is */
    uint64_t deadline_ns;
    int fd;               /* until there is a connection */
    struct rg_conn *conn; /* owner->lock; it has the descriptor */
    bool cut;             /* main thread: interrupted already */
    bool asking;          /* owner->lock: counted as a question */
    bool waiting;         /* owner->lock: it waits for the pool, or holds a lease: there is no deadline */
    bool handed;          /* owner->lock: somebody else may have the connection, which is left alone */
    struct rg_secured secured;
    struct rg_control hello;
};

/* handshakes.c */
bool rg_origin_is(const struct rg_origin *a, const struct rg_origin *b);
/** Counts one that is to take its time as a client of the pool. Else why that cannot be. Its own thread. */
const char *rg_handshake_begin_waiting(struct rg_handshake *handshake);

/* handshake.c */
/** The thread of one. */
void *rg_handshake_main(void *handshake);
/**
 * Sends a refusal, then waits for the client to close first: data that it has sent and that nobody read would make the kernel reset the
 * connection, and the refusal would be lost with it.
 */
void rg_handshake_refuse(const struct rg_handshake *handshake, const struct rg_control *refusal);

/* session_request.c */
/** Fills in who the client is, and what its hello asks the monitor for. */
void rg_handshake_describe(const struct rg_handshake *handshake, struct rg_monitor_question *question);
/** The client asks for a session: has the monitor give it to a worker, once there is room, or says why not. */
void rg_handshake_begin_session(struct rg_handshake *handshake);
/** The client brings a connection for a session that there is. */
void rg_handshake_join_session(struct rg_handshake *handshake);

/* certificates.c */
void rg_handshake_give_certificate(struct rg_handshake *handshake);
/** The session that the client names lasts as long as the certificate that it has shown. */
void rg_handshake_let_stay(struct rg_handshake *handshake);

#endif
