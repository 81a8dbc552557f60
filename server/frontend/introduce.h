/*
 * introduce.h - RG_PURPOSE_INTRODUCE: a client's session here is connected to one that it has on another server.
 *
 * The monitor opens the socket (server/daemon/sessions/introduction.h). By TLS, where the client came by it, the other server shows the
 * certificate that the client expects of it; then it is shown the secret of the invitation, and once it has said that this is
 * good, the connection goes to the session's worker with the client's other secret. Two sessions of this server are connected by a pair of
 * sockets. Threads of handshakes.
 */
#ifndef RG_SERVER_FRONTEND_INTRODUCE_H
#define RG_SERVER_FRONTEND_INTRODUCE_H

#include "server/frontend/frontend.h"

/**
 * Does all of that within timeout_ms. `client`: its connection, by which the monitor knows it; `question`: with `peer` filled
 * in. Anything but RG_OK: `refusal` says why, with the address that was tried.
 */
RG_MUST_CHECK enum rg_status rg_introduce(struct rg_frontend *frontend, int client,
                                          struct rg_monitor_question *question,
                                          const struct rg_client_hello *hello, int timeout_ms,
                                          struct rg_control *refusal);

#endif
