/*
 * proxy.h - a copy between the host and memory of one server, in the order of a stream of another: it goes by
 * a stream of the memory's server that has its place in the order of the other.
 */
#ifndef RG_CLIENT_MULTISERVER_PROXY_H
#define RG_CLIENT_MULTISERVER_PROXY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * A call that is made in another context than the current one, or on another server than its stream's in that
 * stream's order.
 */
struct rg_proxy {
    CUstream stream; /* what to use in between */
    CUstream of;
    uint64_t context, of_context;
    struct rg_helper_stream *helper;
    bool synchronous, on;
    bool straight; /* memory and stream are of one server: no more than the stream's context was entered */
};

/**
 * Where `home` (of memory) is of another server than `stream`: makes its context current and gives the stream
 * to use; else the stream is the one given, and its context current. So the current session is the one that
 * the copy goes to, and what the worker keeps for it is of the stream's context. A synchronous call finds the
 * work before it done.
 */
CUresult rg_proxy_begin(struct rg_proxy *proxy, uint64_t home, CUstream stream, bool synchronous);
/**
 * Undoes that; what comes next in the stream waits for what was put into the proxy's. Returns `status` or an
 * error.
 */
CUresult rg_proxy_end(struct rg_proxy *proxy, CUresult status);

#endif
