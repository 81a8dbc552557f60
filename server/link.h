/* link.h - what the worker keeps for linker states. */
#ifndef RG_SERVER_LINK_H
#define RG_SERVER_LINK_H

#include "server/worker.h"

struct rg_link_extra;

/** A user of what goes with a state is done with it, or the state's entry has ended. NULL is fine. Any thread. */
void rg_link_let_go(struct rg_link_extra *extra);
/**
 * A context is about to end (0: the session, as to what has none), and its linker states with it; no record uses them
 * (rg_aside_settle). The dispatcher.
 */
void rg_link_drop_context(struct rg_worker *worker, uint64_t context);

#endif
