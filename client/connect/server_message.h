/* server_message.h - lines of a server's for the program's standard error, which begin with its name. */
#ifndef RG_CLIENT_CONNECT_SERVER_MESSAGE_H
#define RG_CLIENT_CONNECT_SERVER_MESSAGE_H

#include "client/core/hooks.h"

/** RG_NOTICE_SAY. What could steer a terminal is not shown, nor more lines than a server has reason to say. */
bool rg_server_message_notice(struct rg_session *session, const struct rg_notice *notice,
                              struct rg_reader *in, size_t bulk_size);

#endif
