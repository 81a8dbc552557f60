/*
 * control_conn.h - a session over TCP that may outlive its connection has a control connection beside it, by which the
 * server knows whether this process lives (transport/resumable/resumable.h). It carries nothing.
 *
 * It is opened when the session's connection has been in use for a second, so that short programs need none, and anew for
 * each connection that the session goes on by; in the background, and where it cannot be had the session does without.
 */
#ifndef RG_CLIENT_CONNECT_CONTROL_CONN_H
#define RG_CLIENT_CONNECT_CONTROL_CONN_H

/** Opens it for a struct rg_session, on a thread of its own. */
void rg_control_conn_begin(void *session);

#endif
