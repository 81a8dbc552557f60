/*
 * helper_stream.h - streams for work that is added on a server for the sake of another: nothing else uses
 * them until that work is done, but for work in the order of the same stream, so that nothing ever waits for
 * what merely came first.
 *
 * They are kept by context. Any thread; one lock, a leaf.
 */
#ifndef RG_CLIENT_MULTISERVER_HELPER_STREAM_H
#define RG_CLIENT_MULTISERVER_HELPER_STREAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/** A stream of a context that nothing else uses until it has been given back as often as it was taken. */
struct rg_helper_stream {
    struct rg_helper_stream *next;
    uint64_t context, of_context;
    CUstream stream, of;
    unsigned users;
    bool gone;
};
/**
 * `of`, if not NULL: the stream in whose order the work comes. What comes in the order of one stream takes
 * the same helper stream, so that few streams hold however many copies wait: each that holds keeps a thread
 * of the driver.
 */
CUresult rg_helper_stream_take(uint64_t context, CUstream of, struct rg_helper_stream **out);
void rg_helper_stream_give(struct rg_helper_stream *helper);
/** Gives it back when what has been put into it is done; at once if that cannot be told. */
CUresult rg_helper_stream_give_behind(struct rg_helper_stream *helper);
/** Those of a context are gone with what it held. */
void rg_helper_streams_context_ended(uint64_t context);

#endif
