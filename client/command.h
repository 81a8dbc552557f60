/*
 * command.h - the command stream: calls of all threads as one sequence of records, sent in batches.
 *
 * A thread that makes a call appends its record to the current batch under `lock`, which is never held across a
 * system call. Batches leave in order under the send lock: by the thread whose call waits for an answer, at once, or
 * else by the sender thread. The sender is woken when it sleeps, so an idle wire sends at once; while it is inside
 * send, records collect, so a busy wire carries large batches. No timer is involved.
 */
#ifndef RG_CLIENT_COMMAND_H
#define RG_CLIENT_COMMAND_H

#include "client/call.h"
#include "common/status.h"

#include <stdbool.h>

/** Allocates the batches and starts the sender thread. */
RG_MUST_CHECK enum rg_status rg_command_start(void);
/** Sends everything appended so far. Any thread, without the lock. */
void rg_command_flush(void);
/** There is a part of a pull to send (transfer.h): lets the sender thread do it. */
void rg_command_wake_sender(void);
/** Sends an RG_MESSAGE_ANSWER; returns when the bulk memory may be reused. */
struct rg_answer;
void rg_command_answer(const struct rg_answer *answer, const struct iovec *bulk, int n_bulk);

/** Starts a thread that runs until the process ends. */
RG_MUST_CHECK enum rg_status rg_thread_start(const char *name, void *(*main)(void *));

#endif
