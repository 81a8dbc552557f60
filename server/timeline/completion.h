/*
 * completion.h - tells the client when what it asks about is done, so that it need not ask again.
 *
 * A subscription is an event of the driver and the number by which the client knows it. One thread polls what is
 * subscribed to, less and less often the longer it takes, and tells by RG_NOTICE_DONE. Besides, whatever else may
 * show the client how far the device is (replies, deferred reads, contents of shared memory) comes behind the
 * notices of all that is done by then: a client that has been told that later work is done knows it of
 * earlier work too.
 *
 * What kernels have printed, and what copies before the event have brought, is sent before the notice.
 *
 * Failures: what cannot be subscribed to is said to be so, by a notice with CUDA_ERROR_NOT_READY. Threads: any.
 */
#ifndef RG_SERVER_TIMELINE_COMPLETION_H
#define RG_SERVER_TIMELINE_COMPLETION_H

#include "server/core/worker.h"

/**
 * Before a message that is no reply: sends notices of all that is done. Costs one load while nothing is
 * subscribed to. No function of the driver's may be running this one (a host function).
 */
void rg_completion_before_notice(struct rg_worker *worker);
/** Whether anything is subscribed to, or done and about to be told. */
bool rg_completion_any(struct rg_worker *worker);

#endif
