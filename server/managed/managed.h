/*
 * managed.h - memory that the client's host addresses as well: managed memory, and host memory of the client that is
 * mapped into the device.
 *
 * Managed memory is device memory of the driver here. Host memory is memory of this process at the client's own
 * address, page-locked and mapped into the device, so that a kernel finds it where the client's program has it.
 *
 * Contents travel outside the sequence of records, by answers that the reader handles at once (proto/wire.h,
 * RG_ANSWER_MANAGED_IN and _OUT): the client's host can then read and write such memory while kernels run, and while the
 * dispatcher waits for one. The data goes through a stream and a buffer that each context has for it. A request says up
 * to which record it comes after; the reply says whether the device may still have been at work.
 */
#ifndef RG_SERVER_MANAGED_MANAGED_H
#define RG_SERVER_MANAGED_MANAGED_H

#include "proto/wire.h"
#include "transport/transport.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_worker;
struct rg_managed_context;
struct rg_host_mapping;

/** The worker's part of it; guarded by `lock` but for `open`. */
struct rg_managed {
    pthread_mutex_t lock;
    struct rg_managed_context *contexts;
    struct rg_host_mapping *hosts;
    struct {
        uint64_t context;
        CUstream stream;
    } * streams; /* of all contexts, to ask whether they work */
    size_t n_streams, capacity;
    atomic_bool open; /* some context shares memory */
};

void rg_managed_init(struct rg_worker *worker);
/** After the last context has gone. */
void rg_managed_fini(struct rg_worker *worker);
/** A stream has been made, or is about to be destroyed. The dispatcher. */
void rg_managed_add_stream(struct rg_worker *worker, uint64_t context, CUstream stream);
void rg_managed_remove_stream(struct rg_worker *worker, CUstream stream);
/** A context, which is current and idle, is about to end. */
void rg_managed_drop_context(struct rg_worker *worker, uint64_t context);
/** Handles RG_ANSWER_MANAGED_IN and RG_ANSWER_MANAGED_OUT; false: they break the protocol. The reader. */
bool rg_managed_answer(struct rg_worker *worker, const struct rg_message_header *header,
                       const struct rg_answer *answer, size_t bulk_size);

#endif
