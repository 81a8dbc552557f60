/* build_trace.h - makes traces for tests, in memory: client/profile/trace_format.h. */
#ifndef RG_TESTS_CLIENT_PREDICT_BUILD_TRACE_H
#define RG_TESTS_CLIENT_PREDICT_BUILD_TRACE_H

#include "client/profile/trace_format.h"

#include <stddef.h>
#include <stdint.h>

struct built {
    unsigned char *data;
    size_t size, capacity;
    size_t payload; /* where the open block's begins */
};

/* Operations of the traces made here, by their numbers. */
enum {
    OP_NONE,
    OP_LAUNCH,
    OP_SYNC,
    OP_COPY_IN,
    OP_INFO,
    OP_EVENT_QUERY,
    OP_EVENT_RECORD,
    OP_NCCL,
    OP_PEER_RECEIVE,
    OP_PEER_SEND,
    OP_PEER_SIGNAL,
    OP_PEER_WAIT
};
/* Optimisations. */
enum { OPT_ASYNC, OPT_BATCH, OPT_SHADOW, OPT_DELTA };

void put_bytes(struct built *built, const void *data, size_t size);
void put_number(struct built *built, uint64_t number);
void put_signed(struct built *built, int64_t number);
void put_text(struct built *built, const char *text);
void begin_block(struct built *built, enum rg_trace_type type);
void end_block(struct built *built);
/** Sets all checksums right again. */
void mend_checksums(struct built *built);
/** The head, names, the program and so many servers. */
void begin_trace(struct built *built, unsigned servers);
void end_trace(struct built *built, uint64_t events, uint64_t times, uint64_t elapsed, uint64_t round_trips);

/**
 * A program of one thread: `steps` times `launches` kernels of `kernel_ns`, `bulk` bytes to the device if not
 * 0, and a wait for all. Posts are 1 us apart; ways take 5 us, the dispatcher 1 us a record. Each step also
 * saves a round trip (OPT_SHADOW).
 */
void build_steps(struct built *built, unsigned steps, unsigned launches, uint64_t kernel_ns, uint64_t bulk);
void free_built(struct built *built);

/** What two servers do in each step of build_servers. */
enum between { A_SUM, A_SUM_WITH_ANOTHER_PROCESS, A_COPY, A_FENCE };
#define BETWEEN_NS 50000 /* that a sum or a copy took, when both streams had got there */
/**
 * A program of one thread and two servers (one, where the other is another process's): `steps` times a kernel of `kernel_ns` on the first
 * and one of twice that on the second, then what is said, of `bytes` each way, which the first waits for, and a kernel on it; and a wait
 * for all of both.
 */
void build_servers(struct built *built, unsigned steps, enum between between, uint64_t kernel_ns,
                   uint64_t bytes);

#endif
