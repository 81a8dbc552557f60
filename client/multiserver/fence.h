/*
 * fence.h - what streams, events and copies of different servers have to do with each other. The workers know nothing
 * of each other; this client carries data and order between them.
 *
 *   order   a point (transfer.h) in the stream of one server holds until a point in the stream of another is reached
 *   copies  the destination pulls; what it asks for is fetched from the source into memory of this client, in parts, a
 *           few of them ahead
 *   proxies a copy between the host and memory of one server, in the stream of another, goes by a stream of the memory's
 *           server that has its place in the order of the other
 *
 * None of it holds up the calling thread unless the call is one that waits.
 */
#ifndef RG_CLIENT_MULTISERVER_FENCE_H
#define RG_CLIENT_MULTISERVER_FENCE_H

#include "client/core/home.h"

#include <cuda.h>

struct rg_copy;

/** Puts a copy between servers, the homes of its ends, into its stream; returns at once, unless it is synchronous. */
CUresult rg_peer_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_home);

/** A call that is made in another context than the current one, or on another server than its stream's in that stream's order. */
struct rg_proxy {
    CUstream stream; /* what to use in between */
    CUstream of;
    uint64_t context, of_context;
    struct rg_helper_stream *helper;
    bool synchronous, on;
    bool straight; /* memory and stream are of one server: no more than the stream's context was entered */
};

/**
 * Where `owner` (of memory) is of another server than `stream`: makes its context current and gives the stream to use;
 * else the stream is the one given, and its context current. So the current session is the one that the copy goes to, and
 * what the worker keeps for it is of the stream's context. A synchronous call finds the work before it done.
 */
CUresult rg_proxy_begin(struct rg_proxy *proxy, uint64_t owner, CUstream stream, bool synchronous);
/** Undoes that; what comes next in the stream waits for what was put into the proxy's. Returns `status` or an error. */
CUresult rg_proxy_end(struct rg_proxy *proxy, CUresult status);

/** The context of an owner: itself, or for a server the last that was used there; 0: none. */
uint64_t rg_home_context(uint64_t owner);
/** Makes a context the calling thread's current one; where that succeeds, rg_context_leave undoes it. */
CUresult rg_context_enter(uint64_t context);
void rg_context_leave(void);
/** The same with the context of a stream that was created, where that is not the current one: then *entered. */
CUresult rg_context_enter_stream(CUstream stream, bool *entered);
CUresult rg_fence_synchronize(uint64_t context, CUstream stream);

/** A stream of a context that nothing else uses until it has been given back as often as it was taken. */
struct rg_helper_stream {
    struct rg_helper_stream *next;
    uint64_t context, of_context;
    CUstream stream, of;
    unsigned users;
    bool gone;
};
/**
 * `of`, if not NULL: the stream in whose order the work comes. What comes in the order of one stream takes the same helper
 * stream, so that few streams hold however many copies wait: each that holds keeps a thread of the driver.
 */
CUresult rg_helper_stream_take(uint64_t context, CUstream of, struct rg_helper_stream **out);
void rg_helper_stream_give(struct rg_helper_stream *helper);
/** Helper streams of a context are gone with what it held. */
void rg_fence_context_ended(uint64_t context);

#endif
