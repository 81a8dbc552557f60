/* context.h - primary contexts that are ready before the client asks for them. */
#ifndef RG_SERVER_API_CONTEXT_H
#define RG_SERVER_API_CONTEXT_H

#include "server/core/worker.h"

/** Primary contexts of these devices, a bit each, are retained once for nobody yet. Before the start. */
void rg_primary_set_ready(struct rg_worker *worker, uint64_t devices);

#endif
