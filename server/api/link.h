/* link.h - what the worker keeps for linker states. */
#ifndef RG_SERVER_API_LINK_H
#define RG_SERVER_API_LINK_H

#include "server/core/worker.h"

struct rg_linker;

/** A user of what goes with a state is done with it, or the state's entry has ended. NULL is fine. Any thread. */
void rg_linker_release(struct rg_linker *extra);
/**
 * A context is about to end (0: the session, as to what has none), and its linker states with it; no record uses them
 * (rg_out_of_order_settle). The dispatcher.
 */
void rg_link_drop_context(struct rg_worker *worker, uint64_t context);

#endif
