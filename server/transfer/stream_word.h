/*
 * stream_word.h - numbers that streams wait for.
 *
 * A stream that has to wait for something outside of the device (the client, another server) must not do so in a host function:
 * drivers run the host functions of all streams on one thread, so that one which waits holds up those of the others, and two
 * servers that wait for each other would wait for ever (CUDA Driver API, cuLaunchHostFunc: "may be serialized"). So the stream
 * itself waits, for a word in host memory to become large enough (cuStreamWaitValue32), and whoever has what it waits for sets it.
 *
 * The happy path: rg_stream_word_take; rg_stream_word_await as often as the stream is to wait; rg_stream_word_set, by any thread,
 * with how many of these waits may be over; when the stream is past all of them rg_stream_word_give, or, where nobody is told of
 * that, rg_stream_word_return behind the last one.
 *
 * Failures: where the driver cannot do that (memory that cannot be page-locked, virtual GPUs), host functions wait after all. If the
 * context fails nothing waits any more; the word is freed with the worker. The memory is the worker's until its end, so that setting
 * a word whose context has ended does no harm. The program's kernels can reach it, and would harm their own session alone.
 *
 * Threads: taking and putting into streams is the dispatcher's; any thread sets and gives.
 */
#ifndef RG_SERVER_TRANSFER_STREAM_WORD_H
#define RG_SERVER_TRANSFER_STREAM_WORD_H

#include "server/core/worker.h"

struct rg_stream_cell;

struct rg_stream_word {
    struct rg_stream_cell *cell; /* NULL: there is none */
    CUdeviceptr address;         /* as the device sees it; 0: it does not, and host functions wait */
};

/** Every wait is over, and those to come. */
#define RG_STREAM_WORD_OPEN ((uint32_t)INT32_MAX)

/** A word of `context`, which is current; it is 0. */
CUresult rg_stream_word_take(struct rg_worker *worker, struct rg_worker_context *context,
                             struct rg_stream_word *out);
/** Lets the stream wait until the word is at least `count`: 1 the first time, then 2, and so on. */
CUresult rg_stream_word_await(const struct rg_stream_word *word, uint32_t count, CUstream stream);
/** Lets `count` waits be over, if that is more than before. A word that was not taken is fine. */
void rg_stream_word_set(const struct rg_stream_word *word, uint32_t count);
/** The stream is past all of its waits, or none was put into it. A word that was not taken is fine. */
void rg_stream_word_give(struct rg_stream_word *word);
/** The same once the stream gets there. */
CUresult rg_stream_word_return(const struct rg_stream_word *word, CUstream stream);

#endif
