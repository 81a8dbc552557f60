/* context.h - primary contexts: those that are ready before the client asks for them, and that of a device. */
#ifndef RG_SERVER_API_CONTEXT_H
#define RG_SERVER_API_CONTEXT_H

#include "server/core/worker.h"

/** Primary contexts of these devices, a bit each, are retained once for nobody yet. Before the start. */
void rg_primary_set_ready(struct rg_worker *worker, uint64_t devices);

/** The primary context of a device that the client has retained, or NULL. */
struct rg_worker_context *rg_primary_of(struct rg_worker *worker, CUdevice device);

#endif
