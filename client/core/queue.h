/*
 * queue.h - the command stream: calls of all threads as one sequence of records, sent in batches.
 *
 * A thread that makes a call appends its record to the current batch under `lock`, which is never held across
 * a system call. Batches leave in order under the send lock. An idle wire sends at once: by the thread whose
 * call waits for an answer, by the thread that posts where nothing has been sent just before, or else by the
 * sender thread, which is woken. While somebody is inside send, records collect, so a busy wire carries large
 * batches; who waits for an answer leaves them to that one and the sender, and reads. Far from the server the sender rests between two
 * messages of a burst, a tenth of a millisecond at most; who waits for a record, or polls, sends it then.
 */
#ifndef RG_CLIENT_CORE_QUEUE_H
#define RG_CLIENT_CORE_QUEUE_H

#include "common/base/status.h"
#include "proto/delta.h"
#include "proto/wire.h"
#include "transport/resumable/resumable.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

struct rg_session;
struct rg_thread;
struct rg_delta;

#define RG_BATCH_SIZE (RG_MESSAGE_MAX - RG_RESUMABLE_HEADER - RG_DELTA_GROWTH)

/**
 * How the bulk data of a batch leaves; of the thread whose call it belongs to, which waits until the batch
 * has left.
 */
struct rg_bulk_send {
    struct rg_send send; /* where it is detached, this thread sends the rest, after the batch */
    enum rg_status status;
};

struct rg_batch {
    unsigned char *data; /* a message header, then records */
    size_t used;
    uint32_t count;
    uint64_t first_seq;
    struct rg_bulk_send *bulk; /* of the last record; closes the batch */
};

/** The stream of one session: queue.c's, but that who has its lock, by rg_queue_lock_for, looks at the current batch (call.c). */
struct rg_queue {
    pthread_mutex_t send_lock, lock;
    pthread_cond_t sender_wake;
    bool sender_sleeping, sender_has_pieces;
    atomic_bool sender_rests; /* it has just sent; set under `lock` */
    struct rg_batch batches[2];
    struct rg_batch *current;
    uint64_t next_seq;
    atomic_uint waiters;          /* threads that wait for replies */
    _Atomic uint64_t next_inline; /* when a thread that posts may send by itself again */
    /*
     * of who sends: the records that the worker has, and a message that refers to them; NULL: none has been
     * sent yet
     */
    struct rg_delta *delta;
    unsigned char *encoded;
};

/** Allocates the batches and starts the sender thread. */
RG_MUST_CHECK enum rg_status rg_queue_start(struct rg_session *session);
/** Takes the lock, with room in the current batch for `size` bytes of records. */
void rg_queue_lock_for(struct rg_session *session, size_t size);
/** Appends a record's header; with the lock, and room for it. */
unsigned char *rg_queue_append(struct rg_queue *queue, const struct rg_thread *thread, uint16_t number,
                               uint32_t size);
/** Releases the lock behind a record that nobody waits for, and sees to it that the record is sent. */
void rg_queue_leave(struct rg_session *session, struct rg_thread *thread);
/**
 * Releases the lock behind a record whose reply the caller is about to wait for, and sees to it that it leaves: by this thread if nobody
 * sends, by who sends just now if it was taken along, else by the sender. To wait for the right to send would be to wait for a worker that
 * may be waiting itself, until somebody reads what it sends: and who waits for a reply is the one to read. Only where the record closes
 * its batch, with bulk data of the caller's, this thread sends it. rg_queue_answered: the wait is over.
 */
void rg_queue_leave_awaited(struct rg_session *session);
void rg_queue_answered(struct rg_session *session);
/** Who polls for what records bring: sends those that collect while the sender rests, unless somebody sends just now. Costs little where it does not rest. */
void rg_queue_send_polled(struct rg_session *session);
/**
 * Releases the lock, and sends the batch, which the bulk data of its last record has closed, and that data:
 * where the connection can, behind it and without any lock.
 */
enum rg_status rg_queue_send_bulk(struct rg_session *session, struct rg_bulk_send *bulk);
/** Sends everything appended so far. Any thread, without the lock. */
void rg_queue_flush(struct rg_session *session);
/** There is a piece of bulk data to send (struct rg_hooks, sender_piece): lets the sender thread do it. */
void rg_queue_wake_sender(struct rg_session *session);
/**
 * Says that this program lives; `asks`: and wants to hear the same of the server. Not while others are sending, which
 * says it as well.
 */
void rg_queue_say_alive(struct rg_session *session, bool asks);
struct rg_answer;
/**
 * Sends an RG_MESSAGE_ANSWER; returns when the bulk memory may be reused. RG_ERR_FAULT: it could not be read,
 * and was sent as zeros. Other errors end the session. `lease`: of its memory, or NULL.
 */
enum rg_status rg_queue_answer(struct rg_session *session, const struct rg_answer *answer,
                               const struct iovec *bulk, int n_bulk, struct rg_lease *lease);

#endif
