/*
 * future.h - answers that are asked for ahead: the record is sent, the caller goes on, and whoever needs the
 * answer waits for it then, if it has not come by itself.
 *
 *     struct rg_future *future = rg_future_begin(arrived);
 *     status = rg_future_end(future, rg_op_rgLibraryLoad(…, future, &reply));     nothing is in `reply`
 *     …
 *     status = rg_future_wait(future, &reader);     now the outputs are in `reader`
 *     rg_future_release(future);
 *
 * Operations that can be asked ahead say so in the specification (`future`); without a future (NULL) they
 * wait. Any number of threads may wait for one answer. Answers that nobody waits for are taken from the
 * connection by the receiver's background thread, so that the worker is never held up.
 */
#ifndef RG_CLIENT_CORE_FUTURE_H
#define RG_CLIENT_CORE_FUTURE_H

#include "client/core/thread.h"
#include "generated/proto/ops.h"
#include "proto/codec.h"

struct rg_future;

/** The answer is there: by the reader, which it must not hold up. */
typedef void rg_future_arrived_fn(struct rg_future *future, CUresult result, struct rg_reader reply);

/**
 * One answer: what `arrived` needs. Its life is future.c's alone: whoever has it took a reference and
 * releases it.
 */
struct rg_future {
    struct rg_session *session;
    enum rg_op op;
    rg_future_arrived_fn *arrived; /* NULL: nothing is to be done then */
    uint64_t user[3];
};

/** For a call that is not to wait. NULL: no memory, or too many are under way; then it waits. */
struct rg_future *rg_future_begin(rg_future_arrived_fn *arrived);
/**
 * After the call, with its result. If it was not sent, the error is returned and the answer released (so is
 * NULL, whose call has waited: what it returned comes back).
 */
CUresult rg_future_end(struct rg_future *future, CUresult status);
/**
 * The call's result. `reply` (may be NULL): the outputs, which live until the release. When the session ends
 * first, its error.
 */
CUresult rg_future_wait(struct rg_future *future, struct rg_reader *reply);
/** What code that was loaded took, by an answer that is there: a level (proto/memory_level.h). */
unsigned rg_future_memory_taken(struct rg_future *future);
/** One more user of the answer. */
void rg_future_keep(struct rg_future *future);
/** The answer is not needed any more; NULL is fine. */
void rg_future_release(struct rg_future *future);

/* --- for call.c and receiver.c --- */

/**
 * Gets it ready for a record of `session`; returns the record's token. Under the lock of the command stream.
 */
uint32_t rg_future_prepare(struct rg_future *future, struct rg_session *session, enum rg_op op);
/** The waiter of the answer of this session with this token, or NULL. The reader of the session. */
struct rg_waiter *rg_future_of_token(const struct rg_session *session, uint32_t token);
/** The waiter's reply is complete. */
void rg_future_arrived(struct rg_session *session, struct rg_waiter *waiter);

#endif
