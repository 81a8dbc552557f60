/*
 * pool.h - clients that ask something of the pool: what they ask goes to the pool's agent, by the monitor, which knows who they are;
 * what that answers goes to them until it closes, or they do. Threads of handshakes.
 */
#ifndef RG_SERVER_FRONTEND_POOL_H
#define RG_SERVER_FRONTEND_POOL_H

#include "server/frontend/frontend.h"
#include "transport/transport.h"

/** To RG_PURPOSE_POOL. `question` names the peer. On anything but RG_OK `refusal` is what the client is to be told. */
RG_MUST_CHECK enum rg_status rg_answer_pool(struct rg_frontend *frontend, struct rg_conn *conn,
                                            const struct rg_client_hello *hello,
                                            struct rg_monitor_question *question, struct rg_control *refusal);

#endif
