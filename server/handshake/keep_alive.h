/*
 * keep_alive.h - a session is a living client's: one that says nothing for the time that it is given loses it. A client that is stopped
 * for ever, hangs or takes nothing would keep a place, a GPU's memory and the server's for as long as it likes.
 *
 * Clients say a word (RG_ANSWER_ALIVE) when they have nothing else to say. A thread of its own looks whether anything comes
 * (transport/liveness.h), also while everything else executes calls or waits for the GPU; and says that the server lives
 * when nobody here can answer a client that asks, which the reader does otherwise. It looks at the connections for bulk data as well,
 * which a client that lives may leave unread.
 */
#ifndef RG_SERVER_HANDSHAKE_KEEP_ALIVE_H
#define RG_SERVER_HANDSHAKE_KEEP_ALIVE_H

#include "server/core/worker.h"

/**
 * The seconds that a client may be silent: what this server gives (REMOTE_GPU_KEEP_ALIVE), unless the client `wanted`
 * something else (not 0), which it gets up to REMOTE_GPU_KEEP_ALIVE_MOST. 0: for ever.
 */
uint32_t rg_keep_alive_seconds(uint32_t wanted);

/** Begins. `seconds`: as above; time without a connection is no silence. Before the worker is started. */
RG_MUST_CHECK enum rg_status rg_keep_alive_start(struct rg_worker *worker, uint32_t seconds);

#endif
