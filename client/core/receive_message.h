/* receive_message.h - what the thread that has the reader role does with what it reads (receiver.h). */
#ifndef RG_CLIENT_CORE_RECEIVE_MESSAGE_H
#define RG_CLIENT_CORE_RECEIVE_MESSAGE_H

#include "transport/transport.h"

struct rg_session;

/**
 * Receives and handles one message, up to `timeout_ms` from now (-1: for ever); the caller holds the role.
 * False: none came, or the session is over.
 */
bool rg_message_receive(struct rg_session *session, int timeout_ms);
/** Handles a control message: the server ends the session. The caller holds the role; any locks may be held. */
void rg_message_control(struct rg_session *session, const struct rg_message *message);

#endif
