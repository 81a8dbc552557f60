/*
 * future.h - answers that are asked for ahead: the record is sent, the caller goes on, and whoever needs the answer waits
 * for it then, if it has not come by itself.
 *
 *     struct rg_future *future = rg_future_begin(RG_OP_rgLibraryLoad, arrived);
 *     status = rg_future_end(future, rg_op_rgLibraryLoad(…, &reply));     nothing is in `reply`
 *     …
 *     status = rg_future_wait(future, &reader);                           now the outputs are in `reader`
 *     rg_future_release(future);
 *
 * Only operations with `reply=raw` can be asked ahead. Any number of threads may wait for one answer. Answers that nobody
 * waits for are taken from the connection by the receiver's background thread, so that the worker is never held up.
 */
#ifndef RG_CLIENT_CORE_FUTURE_H
#define RG_CLIENT_CORE_FUTURE_H

#include "client/core/thread.h"
#include "generated/proto/ops.h"
#include "proto/codec.h"

struct rg_call;

/** One answer: what `arrived` needs. Its life is future.c's alone: whoever has it took a reference and releases it. */
struct rg_future {
    struct rg_session *session;
    enum rg_op op;
    /* by the reader, which it must not hold up, when the answer is there; NULL: nothing is to be done then */
    void (*arrived)(struct rg_future *future, CUresult result, struct rg_reader reply);
    uint64_t user[2];
};

/** The calling thread's next call of `op` does not wait. NULL: no memory, or too many are under way; it waits. */
struct rg_future *rg_future_begin(enum rg_op op, void (*arrived)(struct rg_future *future, CUresult result,
                                                                 struct rg_reader reply));
/**
 * After the call, with its result. If it was not sent, the error is returned and the answer released (so is NULL, whose
 * call has waited: what it returned comes back).
 */
CUresult rg_future_end(struct rg_future *future, CUresult status);
/**
 * The call's result. `reply` (may be NULL): the outputs, which live until the release. When the session ends first, its
 * error.
 */
CUresult rg_future_wait(struct rg_future *future, struct rg_reader *reply);
/** One more user of the answer. */
void rg_future_keep(struct rg_future *future);
/** The answer is not needed any more; NULL is fine. */
void rg_future_release(struct rg_future *future);

/* --- for queue.c and receiver.c --- */

/** Whether the thread's next answer is asked ahead, for a record of `op`; if so it is the caller's to post. */
struct rg_future *rg_future_takes(struct rg_thread *thread, uint16_t op);
/** Gets it ready for a record of `session`; returns the record's token. Under the lock of the command stream. */
uint32_t rg_future_prepare(struct rg_future *future, struct rg_session *session);
/** The waiter of the answer of this session with this token, or NULL. The reader of the session. */
struct rg_waiter *rg_future_of_token(const struct rg_session *session, uint32_t token);
/** The waiter's reply is complete. */
void rg_future_arrived(struct rg_session *session, struct rg_waiter *waiter);

#endif
