/*
 * streams.h - the streams that a session has given a device's work to, and whether they are done.
 *
 * Asked by cuStreamQuery. A stream that ends before its work is done leaves an event. No lock of its own: its device's (gate.c).
 */
#ifndef RG_SERVER_SHARES_GATE_STREAMS_H
#define RG_SERVER_SHARES_GATE_STREAMS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_worker_context;
struct rg_worker_stream;

struct rg_busy_streams {
    struct rg_busy_stream {
        CUcontext context;
        CUstream stream; /* NULL: the legacy stream */
        CUevent event;   /* in the place of a stream that has ended; NULL: the stream itself */
    } * at;
    uint32_t n, capacity;
};

/** Work was given to a stream. False: no memory to remember it. */
bool rg_busy_streams_add(struct rg_busy_streams *streams, CUcontext context, CUstream stream);
/** Forgets those that are done; true: none is left. May change the thread's current context. */
bool rg_busy_streams_done(struct rg_busy_streams *streams);
/** A stream is about to end. May change the thread's current context to the stream's. */
void rg_busy_streams_drop_stream(struct rg_busy_streams *streams, CUstream stream);
/** A context is about to end, with all that is in it. */
void rg_busy_streams_drop_context(struct rg_busy_streams *streams, CUcontext context);
void rg_busy_streams_fini(struct rg_busy_streams *streams);

#endif
