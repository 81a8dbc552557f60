/*
 * upgrade_again.h - a session that had moved to RDMA, lost that and went on over TCP goes back to RDMA.
 *
 * A thread tries to, for as long as the session is on TCP: after a second, and twice as long after each attempt that fails or
 * does not last half a minute, up to a minute. Without an active port that leads to the server nothing is sent.
 * Otherwise it connects to the server beside the session's connection and makes an upgrade as at the session's
 * beginning (server/handshake/resume.h); nothing of the session waits for that. When the new connection stands, the
 * link is given up, and the reconnector goes on by that one (connect/reconnect.c).
 */
#ifndef RG_CLIENT_CONNECT_UPGRADE_AGAIN_H
#define RG_CLIENT_CONNECT_UPGRADE_AGAIN_H

#include <stdbool.h>

struct rg_session;
struct rg_conn;

/** The session, which had moved, goes on over TCP: tries to go back from now on. The reconnector's thread. */
void rg_upgrade_again_begin(struct rg_session *session);
/**
 * Takes the connection that the session is to go on by, and its control connection. False: there is none. The
 * reconnector's thread.
 */
bool rg_upgrade_again_take(struct rg_session *session, struct rg_conn **conn, struct rg_conn **control_conn);

#endif
