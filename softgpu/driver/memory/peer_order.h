/* peer_order.h - what synchronous copies between two contexts wait for, and what waits for them. */
#ifndef SG_DRIVER_MEMORY_PEER_ORDER_H
#define SG_DRIVER_MEMORY_PEER_ORDER_H

#include "softgpu/driver/driver.h"

/**
 * Around a copy in the default stream of the current context, which is to be serialised with all asynchronous work that is pending on
 * the devices of both contexts, and with what comes later (API reference, cudaMemcpyPeer). Before it: what comes next in that stream waits
 * for all streams of both contexts. After it: what comes next in their default streams, and in the streams that synchronise with those,
 * waits for the copy; streams that do not (CU_STREAM_NON_BLOCKING) are not held up. The host is not, either. NULL handles name no context.
 */
CUresult sg_peer_order_before(CUcontext to, CUcontext from);
CUresult sg_peer_order_after(CUcontext to, CUcontext from);

#endif
