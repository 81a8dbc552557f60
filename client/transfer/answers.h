/*
 * answers.h - what the sender thread has to answer the worker: parts of what a rendezvous is about, and that
 * a fence is released. So the reader, which is told what is asked for, never sends.
 *
 * Guarded by the registry's lock, which the callers of all functions but rg_answers_send_next hold.
 */
#ifndef RG_CLIENT_TRANSFER_ANSWERS_H
#define RG_CLIENT_TRANSFER_ANSWERS_H

#include "client/core/region.h"

#include <stdbool.h>
#include <stdint.h>

struct rg_session;
struct rg_lazy_source;

/** Allocated by who adds it; freed when it has been sent. */
struct rg_answer_part {
    struct rg_answer_part *next;
    struct rg_session *session;
    uint64_t id, offset, size;     /* of the transfer; of its packed bytes */
    struct rg_region memory;       /* all of the transfer's */
    struct rg_lazy_source *source; /* that the memory is of, and goes with; NULL: it is the application's */
    bool last;                     /* nothing more is asked for of the source */
    bool revoked;                  /* zeros are sent in place of the memory */
    bool release;                  /* of a fence */
};

/** Takes the part over. The sender thread is then to be woken (rg_queue_wake_sender). */
void rg_answers_add(struct rg_answer_part *part);
/** Whether memory in [start, start + size) is about to be sent. */
bool rg_answers_meet(uint64_t start, uint64_t size);
/**
 * Waits until nothing is about to be sent of one transfer, also where that has been forgotten, as the worker has asked for its last part. Gives
 * the lock up meanwhile. Not by a sender thread.
 */
void rg_answers_wait_transfer(uint64_t id);
/** The same of memory in [start, start + size), of any transfer. */
void rg_answers_wait_memory(uint64_t start, uint64_t size);

/**
 * Sends a piece of the session's next answer; false: there is none. The sender thread calls it, without the
 * lock.
 */
bool rg_answers_send_next(struct rg_session *session);

#endif
