/*
 * multipath.h - connections of a session that carry bulk data alone, and its compression: what the user asked
 * for (REMOTE_GPU_CONNECTIONS, REMOTE_GPU_COMPRESS), what hello agrees on, opening them.
 */
#ifndef RG_CLIENT_CONNECT_MULTIPATH_H
#define RG_CLIENT_CONNECT_MULTIPATH_H

#include "proto/control/control.h"

#include <stdbool.h>

struct rg_session;
struct rg_conn;

/** Fills in what the user asked for; `local`: the server is on this machine (a unix socket). */
void rg_multipath_ask(bool local, struct rg_client_hello *hello);
/**
 * After the server's hello, of a session that has not moved: wraps *conn in a multipath connection, if both sides want
 * that. False: no memory. Further connections are opened once there is bulk data to carry.
 */
bool rg_multipath_begin(struct rg_session *session, struct rg_conn **conn);

#endif
