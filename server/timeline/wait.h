/*
 * wait.h - waiting for the GPU: first on the spot, for as long as giving the thread's roles away would take,
 * then by the driver while others' calls go on. The first is left out while it leads to nothing, and with
 * REMOTE_GPU_WAIT=block.
 */
#ifndef RG_SERVER_TIMELINE_WAIT_H
#define RG_SERVER_TIMELINE_WAIT_H

#include "server/core/worker.h"

/** A stream that is not the legacy one. */
CUresult rg_wait_stream(struct rg_request *request, CUstream stream);
/** The legacy stream of the client thread's context, and the streams that it waits for. */
CUresult rg_wait_legacy_stream(struct rg_request *request, CUstream stream);
/** All work of the context that is current on this thread; `context`: its state, or NULL. */
CUresult rg_wait_context(struct rg_request *request, struct rg_worker_context *context);
CUresult rg_wait_event(struct rg_request *request, CUevent event);

#endif
