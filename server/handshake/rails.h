/*
 * rails.h - which addresses a session's client is told of, for connections by other links than the one it came by (docs/transports.md).
 *
 * Nothing is told over a connection that is not encrypted, and nothing where there is but the one link.
 */
#ifndef RG_SERVER_HANDSHAKE_RAILS_H
#define RG_SERVER_HANDSHAKE_RAILS_H

#include "proto/control/control.h"
#include "transport/transport.h"

/**
 * Completes the hello that will be sent over `conn`. `rails` is what the daemon knows (server/daemon/settings/rails.h): PORT/LINK/NUMBER, joined
 * by commas: an address, which link of this machine has it, and the port at which it is listened on, 0 for that of any session. NULL:
 * there is none. Returns whether some are told.
 */
bool rg_rails_tell(const char *rails, const struct rg_conn *conn, struct rg_server_hello *hello);

#endif
