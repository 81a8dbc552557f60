/*
 * join.h - how a further connection becomes one of a session: by the session's number and its token.
 *
 * The client connects to the server as for a session, says a ClientHello of purpose BULK with both, and the
 * session's worker, to whom the server gives the connection, answers with a Move of transport "bulk" if the
 * token is right. The client says the same; then each side adds the connection to its multipath.
 *
 * Threads: one at a time a session.
 */
#ifndef RG_TRANSPORT_MULTIPATH_JOIN_H
#define RG_TRANSPORT_MULTIPATH_JOIN_H

#include "proto/control/control.h"
#include "transport/transport.h"

/**
 * The client: connects to `address` for the session of `hello`, as the session has (`tls`; NULL: plain). On failure the
 * reason is in `why`.
 */
RG_MUST_CHECK enum rg_status rg_multipath_join(const char *address, const struct rg_tls_client *tls,
                                               const struct rg_server_hello *hello, struct rg_conn **out,
                                               char *why, size_t why_size);
/**
 * The worker: answers a hello that came by `conn`. RG_OK: it can be added to the multipath. Otherwise the
 * caller closes it: RG_ERR_REFUSED: the token is not the session's. RG_ERR_LIMIT: it is, but the multipath is
 * full.
 */
RG_MUST_CHECK enum rg_status rg_multipath_admit(struct rg_conn *conn, const struct rg_client_hello *hello,
                                                const uint8_t token[RG_BULK_TOKEN], bool full);

#endif
