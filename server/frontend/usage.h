/*
 * usage.h - answers to clients that ask what they have used, what they may use, and for a link to the status page. What is asked goes to the monitor, which knows
 * who they are; threads of handshakes.
 */
#ifndef RG_SERVER_FRONTEND_USAGE_H
#define RG_SERVER_FRONTEND_USAGE_H

#include "server/frontend/frontend.h"
#include "transport/transport.h"

/**
 * To RG_PURPOSE_USAGE and RG_PURPOSE_QUOTA. `question` names the peer. On anything but RG_OK `refusal` is what the client is to be
 * told.
 */
RG_MUST_CHECK enum rg_status rg_answer_accounts(struct rg_frontend *frontend, struct rg_conn *conn,
                                                const struct rg_client_hello *hello,
                                                struct rg_monitor_question *question,
                                                struct rg_control *refusal);

/** To RG_PURPOSE_PAGE, likewise. */
RG_MUST_CHECK enum rg_status rg_answer_page(struct rg_frontend *frontend, struct rg_conn *conn,
                                            const struct rg_client_hello *hello,
                                            struct rg_monitor_question *question, struct rg_control *refusal);

#endif
