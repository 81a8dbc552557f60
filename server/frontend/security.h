/*
 * security.h - what is asked of who connects, before a byte of a message of ours is read: TLS, a certificate, or that the
 * kernel says whose process it is.
 *
 * Of other machines TLS is asked for, and a certificate that the monitor does not know to be revoked; of this machine's, over
 * loopback, nothing; of a unix socket, that it is the server's user or root. --allow-unauthenticated asks for nothing. Who
 * shows a certificate that is not good is refused everywhere. One thing can be had without a certificate, by TLS: joining.
 */
#ifndef RG_SERVER_FRONTEND_SECURITY_H
#define RG_SERVER_FRONTEND_SECURITY_H

#include "server/frontend/frontend.h"
#include "transport/tls/tls.h"

#include <sys/types.h>

/** What is known of who is at the other end of a connection. */
struct rg_secured {
    struct rg_monitor_peer peer; /* without its address */
    bool may_only_join;
    uint8_t exporter[RG_TLS_EXPORTER_SIZE]; /* of a connection by TLS */
    struct rg_tls_keys keys;                /* likewise; to be wiped when they are used */
    char why[RG_CONTROL_REASON];
};

/**
 * Finds out. `uid`: of a unix socket's other end. RG_OK: a connection can be made of the socket (with the keys, if
 * peer.encrypted), and messages read. RG_ERR_REFUSED: it can be made as well, but only to say `why`. Anything else: there is
 * nobody to talk to; `why` is for the log. A thread of its own, cut off by a shutdown of the socket.
 */
RG_MUST_CHECK enum rg_status rg_frontend_secure(struct rg_frontend *frontend, int fd,
                                                enum rg_listener_reach reach, uid_t uid, int timeout_ms,
                                                struct rg_secured *out);
/** Takes what TLS needs from a file of the monitor's. False: it was said why not; what was there before stays. Main thread. */
RG_MUST_CHECK bool rg_frontend_take_tls(struct rg_frontend *frontend, int file,
                                        const struct rg_monitor_tls *tls);

#endif
