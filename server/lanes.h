/*
 * lanes.h - the worker's part of connections for bulk data: what is agreed on at hello, and taking in those that the
 * client opens while the session runs (transport/bundle/).
 */
#ifndef RG_SERVER_LANES_H
#define RG_SERVER_LANES_H

#include "proto/control.h"
#include "transport/bundle/bundle.h"

/** What hello has agreed on. */
struct rg_lanes {
    struct rg_bundle_options options; /* lanes 0: bulk data comes by the session's own connection */
    uint8_t token[RG_BULK_TOKEN];
};

/** Decides on what the client asks for and completes the hello that will be sent. */
void rg_lanes_agree(const struct rg_client_hello *client, struct rg_server_hello *server,
                    struct rg_lanes *out);
/**
 * Makes a bundle of the session's connection, if that was agreed on, and takes connections from `hand_fd` (the daemon's
 * rg_sessions_hand_over) on a thread that lives as long as the process. `lanes` must stay. False: no memory.
 */
bool rg_lanes_start(const struct rg_lanes *lanes, int hand_fd, uint64_t session, struct rg_conn **conn);

#endif
