/*
 * upgrade.h - a connection between two workers goes on over RDMA (transport/upgrade/), where both have it.
 *
 * The client offers it (ClientHello.transports of INTRODUCE), its server passes that on to the other one (of PEER), whose worker
 * answers RG_PEER_RDMA if it may. The worker that connects hears of that by its server, and begins: it asks on the connection, the
 * other one listens and tells addresses and a token, as it does for a client. What RDMA cannot reach stays on TCP.
 *
 * Failures: of RDMA none, it is not used then. A peer that says something else, or nothing, is the end of the connection.
 * Threads: the connection's reader, before anybody else uses it.
 */
#ifndef RG_SERVER_PEERS_UPGRADE_H
#define RG_SERVER_PEERS_UPGRADE_H

#include "proto/control/control.h"
#include "transport/transport.h"

#include <stdbool.h>

/** Whether the worker of a connection that was offered this could take it up. `allowed`: by the operator. */
bool rg_peer_upgrade_may(bool allowed, const struct rg_transport_list *offered);
/**
 * Moves the connection if both can: *conn is the new one then, and *control_conn the first, which is to be destroyed behind it; else
 * NULL. `connects`: this side has opened the connection, and `allowed` is its operator's word; the other side has given its own before.
 */
RG_MUST_CHECK enum rg_status rg_peer_upgrade(bool connects, bool allowed, struct rg_conn **conn,
                                             struct rg_conn **control_conn);

#endif
