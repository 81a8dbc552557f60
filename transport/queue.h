/*
 * queue.h - a bounded queue of whole messages between one writer and one reader, with a time from which each
 * may be read. The in-process transport is two of them; filters that hold messages back use them too.
 */
#ifndef RG_TRANSPORT_QUEUE_H
#define RG_TRANSPORT_QUEUE_H

#include "transport/operations.h"

#include <pthread.h>

enum { RG_PARCEL_PIECES = 16 };

/** A message on its way: a copy, in one piece of memory. */
struct rg_parcel {
    struct rg_parcel *next;
    uint64_t due_ns; /* not to be read before */
    size_t msg_size;
    size_t bulk_size;
    size_t bulk_taken; /* the reader's */
    unsigned char *bulk;
    /* transport mem: where bulk data was placed (mem/advertised.h) */
    unsigned n_pieces, piece; /* the one at hand */
    struct rg_parcel_piece {
        unsigned char *memory;
        size_t size;
        int advert;
    } pieces[RG_PARCEL_PIECES];
    _Alignas(16) unsigned char data[];
};

/** Memory for a message of these sizes; NULL if there is none. Freed by free(). */
struct rg_parcel *rg_parcel_create(size_t msg_size, size_t bulk_size);
/** A copy of `message`; *fault tells that bulk data could not be read and is zeros. */
struct rg_parcel *rg_parcel_pack(const struct rg_send *message, bool *fault);
/** Takes the next `size` bytes of bulk (as rg_conn_recv_bulk). */
enum rg_status rg_parcel_take_bulk(struct rg_parcel *parcel, void *buffer, size_t size);

struct rg_parcel_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rg_parcel *head, **tail;
    size_t bytes, limit;
    bool precise; /* the reader sleeps precisely (common/base/thread.h); set before there is one */
    enum rg_status writer_end; /* not RG_OK: no more will come; what a reader gets after the last message */
    enum rg_status reader_end; /* not RG_OK: no one reads any more; what a writer gets */
    enum rg_status writer_now; /* not RG_OK: what the writer gets, whatever the reader does (its interrupt) */
    enum rg_status
        reader_now; /* not RG_OK: what the reader gets, though messages may be there (its interrupt) */
};

/** `limit`: bytes that may lie in the queue; one message always fits. */
void rg_queue_init(struct rg_parcel_queue *queue, size_t limit);
/** Frees what is left. No thread may be inside. */
void rg_queue_fini(struct rg_parcel_queue *queue);
/** Appends, waiting for room; takes the parcel in any case. */
RG_MUST_CHECK enum rg_status rg_queue_push(struct rg_parcel_queue *queue, struct rg_parcel *parcel);
/** Waits until `until_ns`, or until either side has ended or was interrupted. The writer. */
void rg_queue_pause(struct rg_parcel_queue *queue, uint64_t until_ns);
/** Takes the first parcel when it is due; timeouts as rg_conn_recv. */
RG_MUST_CHECK enum rg_status rg_queue_pop(struct rg_parcel_queue *queue, int timeout_ms,
                                          struct rg_parcel **out);
/** The writer is done: the reader gets what is queued, then `status`. The first call counts. */
void rg_queue_end(struct rg_parcel_queue *queue, enum rg_status status);
/** The reader is gone: writers get `status`. The first call counts. */
void rg_queue_stop(struct rg_parcel_queue *queue, enum rg_status status);
/** Makes every present and later push (pop) return RG_ERR_CLOSED. */
void rg_queue_interrupt_push(struct rg_parcel_queue *queue);
void rg_queue_interrupt_pop(struct rg_parcel_queue *queue);

#endif
