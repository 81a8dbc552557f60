/*
 * cross_fence.h - a stream of one server waits for a stream of another.
 *
 * Where the workers are connected (peer_link.h), a record on each side makes them see to it: the one stream signals, the other waits
 * for that. Else the workers know nothing of each other: a fence (client/transfer/transfer.h) in the stream that waits holds until
 * one in the other stream has been reached.
 *
 * Nothing here holds up the calling thread.
 */
#ifndef RG_CLIENT_MULTISERVER_CROSS_FENCE_H
#define RG_CLIENT_MULTISERVER_CROSS_FENCE_H

#include <cuda.h>
#include <stdint.h>

struct rg_helper_stream;

/**
 * What comes next in stream `to` waits for what is in stream `from`. `helper`, if not NULL, is given back
 * when `from` has got there, also if this fails.
 */
CUresult rg_cross_fence_put(uint64_t from_context, CUstream from, uint64_t to_context, CUstream to,
                            struct rg_helper_stream *helper);
/** What comes next in `stream` waits for an event of another server. */
CUresult rg_cross_fence_wait_event(CUstream stream, CUevent event, unsigned flags);

#endif
