/*
 * deferred.h - what happens when a stream gets there, with the client's part in it.
 *
 *   host call  the stream waits until the client has run its function: NOTICE_HOST_CALL, ANSWER_HOST_DONE
 *   rendezvous       a copy to the device that reads the client's memory in stream order: NOTICE_PULL, ANSWER_DATA
 *   deferred read    a copy to the client's memory that has left before the stream goes on: NOTICE_LANDING
 *
 * Each is a number of host functions put between the copies of the stream. They run on a thread of the driver, send
 * notices, and wait for what they need: an answer, or a buffer that has been sent. The buffers belong to the stream and
 * are used by one transfer after another, which the stream's own order makes safe. When the session ends all of them
 * return at once.
 *
 * Failures: an answer that fits nothing ends the session. If the context fails, the driver does not call host
 * functions any more; what waits for them here is freed with the worker, and touches no buffer any more once the context
 * ends.
 */
#ifndef RG_SERVER_TRANSFER_DEFERRED_H
#define RG_SERVER_TRANSFER_DEFERRED_H

#include "server/core/worker.h"

/* Bytes that a session's host calls and transfers take here until their streams have done them, but for the driver's. */
#define RG_LATE_MAX (256u << 20)

/** Rows on the device, or a box that has been checked, and which of the client's transfers they belong to. */
struct rg_deferred_area {
    uint64_t transfer;
    CUdeviceptr device;
    size_t pitch, width, total;
    const CUDA_MEMCPY3D *box; /* NULL: rows */
    bool bad;                 /* the box is not there: the client is told that the transfer is over */
};

CUresult rg_deferred_host_call(struct rg_request *request, CUstream stream, uint64_t id, bool callback);
CUresult rg_deferred_rendezvous(struct rg_request *request, const struct rg_deferred_area *area,
                                CUstream stream);
CUresult rg_deferred_read(struct rg_request *request, const struct rg_deferred_area *area, CUstream stream);

/**
 * The context is about to end, with the buffers of its streams. Its work is done, or will not be any more: what of its
 * transfers is still under way goes nowhere from now on. Waits for what the client may write into a buffer by itself. The
 * dispatcher.
 */
void rg_deferred_drop_context(struct rg_worker *worker, const struct rg_worker_context *context);

/** Handles an ANSWER of the client. The reader. */
void rg_deferred_answer(struct rg_worker *worker, const struct rg_message *message);

void rg_deferred_init(struct rg_worker *worker);
/** The session is over: releases every host function that waits. */
void rg_deferred_wake(struct rg_worker *worker);
/** After no host function can run any more. */
void rg_deferred_fini(struct rg_worker *worker);

#endif
