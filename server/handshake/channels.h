/*
 * channels.h - the worker's part of connections for bulk data: what is agreed on at hello, and taking in
 * those that the client opens while the session runs (transport/multipath/).
 */
#ifndef RG_SERVER_HANDSHAKE_CHANNELS_H
#define RG_SERVER_HANDSHAKE_CHANNELS_H

#include "proto/control/control.h"
#include "transport/multipath/multipath.h"

#include <pthread.h>

/** What hello has agreed on. */
struct rg_channels {
    struct rg_multipath_options options; /* channels 0: bulk data comes by the session's own connection */
    bool rails; /* they may come by several links, so that a dead one is worth noticing soon */
    uint8_t token[RG_BULK_TOKEN];
    pthread_mutex_t lock;
    struct rg_conn *multipath; /* that takes channels; NULL: none; the lock */
};

struct rg_resume;
struct rg_worker;

/** Decides on what the client asks for and completes the hello that will be sent. */
void rg_channels_agree(const struct rg_client_hello *client, struct rg_server_hello *server,
                       struct rg_channels *out);
/** Wraps the session's connection in a multipath one, if that was agreed on. False: no memory, *conn stays. */
bool rg_channels_wrap(struct rg_channels *channels, struct rg_conn **conn);
/** The multipath connection will end: it takes no channels any more. */
void rg_channels_forget(struct rg_channels *channels);
/**
 * Takes what the daemon hands over by `hand_fd` (rg_sessions_hand_over) on a thread that lives as long as the
 * process: channels, connections by which the session's client comes back, and those to other servers of the
 * client, which are the worker's (server/peers/). All objects must stay. False: no memory.
 */
bool rg_channels_start(struct rg_channels *channels, struct rg_resume *resume, int hand_fd, uint64_t session,
                       struct rg_worker *worker);

#endif
