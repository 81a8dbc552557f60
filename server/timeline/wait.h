/*
 * wait.h - waiting for the GPU: first on the spot, for as long as giving the thread's roles away would take, then by
 * the driver while others' calls go on. The first is left out while it leads to nothing, and with REMOTE_GPU_WAIT=block.
 */
#ifndef RG_SERVER_TIMELINE_WAIT_H
#define RG_SERVER_TIMELINE_WAIT_H

#include "server/core/worker.h"

/** A stream that is not the legacy one. */
CUresult rg_wait_stream(struct rg_request *request, CUstream stream);
/** The legacy stream of the client thread's context, and the streams that it waits for (context.c). */
CUresult rg_wait_legacy_stream(struct rg_request *request, CUstream stream);
/** Polls for that long: false if the stream still has work, or cannot be asked. */
bool rg_stream_done_soon(struct rg_worker *worker, CUstream stream);
CUresult rg_wait_event(struct rg_request *request, CUevent event);

#endif
