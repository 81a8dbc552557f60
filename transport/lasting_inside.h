/*
 * lasting_inside.h - the inside of a lasting connection, and which file does what with it.
 *
 *   lasting.c          its state, making and destruction
 *   lasting_end.c      ends that are meant
 *   lasting_send.c     sending
 *   lasting_receive.c  receiving, acknowledgements
 *   lasting_kept.c     messages that are not acknowledged
 *   lasting_hold.c     those whose bulk data stays where it is until then
 *   lasting_mender.c   the thread that looks after the carrier
 *
 * Everything is guarded by `lock`, which is never held across a system call that waits. A thread that goes into the
 * carrier takes the right to (`sending`, `receiving`), gives the lock up, and does not touch the carrier after it has
 * given the right back. Who wants to replace the carrier interrupts it and waits until both rights are free.
 */
#ifndef RG_TRANSPORT_LASTING_INSIDE_H
#define RG_TRANSPORT_LASTING_INSIDE_H

#include "transport/lasting.h"
#include "transport/operations.h"
#include "transport/waker.h"

#include <pthread.h>

enum rg_lasting_state {
    RG_LASTING_UP,
    RG_LASTING_BROKEN,    /* no carrier, or one of no use: everybody waits */
    RG_LASTING_REPLAYING, /* a new one: receiving goes on, the mender sends what is missing */
    RG_LASTING_OVER,
};

/** Memory from the connection's store: the size classes keep some for the next message. */
struct rg_lasting_block {
    struct rg_lasting_block *next;
    unsigned class;
    _Alignas(16) unsigned char data[];
};
enum { RG_LASTING_CLASSES = 14 };

/** A message that the peer has not acknowledged. */
struct rg_lasting_kept {
    struct rg_lasting_kept *next;
    uint64_t seq;    /* from 1 */
    size_t msg_size; /* of `data`: the header and the message */
    size_t bulk_size;
    const struct iovec *bulk; /* the sender's while it is inside (busy), else `own`, or in `parts` */
    int n_bulk;
    struct rg_hold *hold; /* the memory of the bulk data stays: it is not copied; NULL: it does not */
    struct iovec own;
    struct rg_lasting_block *copy;  /* where `own` points, if it is a copy */
    struct rg_lasting_block *parts; /* of bulk data that stays where it is */
    size_t room;                    /* memory that all this takes */
    bool busy;                      /* its sender is inside */
    bool acked;                     /* out of the list: freed by who is still at it */
    bool replaying;                 /* the mender is sending it */
    bool fault;                     /* zeros were sent for bulk data that cannot be read */
    bool promised;                  /* the bulk data is still to be named (send_tail) */
    bool holds;                     /* and its sender keeps the right to send until then */
    uint64_t epoch;                 /* the carrier that has the head, if it was sent apart */
    struct rg_bulk_ticket ticket;   /* of that carrier */
    _Alignas(16) unsigned char data[];
};

struct rg_lasting {
    struct rg_conn head;
    struct rg_lasting_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned waiting; /* threads that sleep on `changed` */

    enum rg_lasting_state state;
    enum rg_status over; /* what calls return then */
    bool final, peer_leaves;
    bool leaves;             /* this side: its end, which comes soon, is meant … */
    bool turn_wanted;        /* … and this has still to be said: before what else is to be sent */
    bool stopping;           /* destroy: the mender ends */
    struct rg_conn *carrier; /* NULL: between two */
    struct rg_conn *tether;
    struct rg_conn *retired; /* a former carrier that the message in use lies in */
    uint64_t epoch;          /* counts carriers */
    bool sending, receiving;
    unsigned tails;    /* threads that send bulk data by itself */
    unsigned visitors; /* that do something short in the carrier */
    bool hurries;      /* the failed carrier is not to be read to its end */
    bool dropping;     /* a former carrier is being destroyed */
    bool sends_apart;  /* some carrier did */
    bool read_ahead;
    struct rg_conn_statistics former; /* of carriers that are gone */
    struct rg_lasting_loss loss;
    uint64_t renewed_ns; /* when there was the last new carrier */
    uint64_t carried;    /* messages both ways, when the last carrier was lost */

    /* sending */
    uint64_t sent;    /* messages */
    uint64_t on_wire; /* the last one that the carrier was given */
    struct rg_lasting_kept *kept, **kept_last;
    size_t kept_bytes;                      /* of memory of ours */
    size_t held_bytes;                      /* of others' */
    uint64_t bulk_kept;                     /* bytes that were ever copied to be kept */
    const struct rg_lasting_kept *replayed; /* what the mender is sending */
    unsigned waits_missed, waits_skipped;   /* lasting_hold.c */
    uint64_t forgotten; /* messages up to here are not kept though they were not acknowledged; 0: none */
    struct rg_lasting_block *store[RG_LASTING_CLASSES];
    unsigned n_store[RG_LASTING_CLASSES];

    /* receiving */
    uint64_t received;       /* messages that have arrived as a whole */
    uint64_t told;           /* what the peer knows of that */
    size_t untold_bytes;     /* received since */
    bool ack_wanted;         /* for the mender, or the next sender */
    struct rg_message ready; /* received by a sender that looked for acknowledgements */
    bool has_ready;
    bool in_use;          /* the message last returned lies in a carrier's memory */
    uint64_t in_use_from; /* its epoch */
    bool in_bulk;
    uint64_t bulk_epoch; /* the carrier that the rest of the bulk data comes by */
    size_t msg_size, bulk_size, bulk_taken;
    unsigned char
        *copy; /* small messages, and those of carriers that must not outlive their use, are copied */
    bool copy_all;
    void *last_words; /* a control message that came before a send failed; handed out once all is over */
    size_t last_words_size;

    pthread_t mender;
    struct rg_waker waker;
    bool polling;        /* the mender sleeps in poll */
    uint64_t hung_up;    /* the carrier of this epoch has ended, says poll … */
    uint64_t hung_up_ns; /* … since then */
};

/* --- lasting.c; under the lock, but for the first --- */

/** NULL: it is none. */
struct rg_lasting *rg_lasting_of(struct rg_conn *conn);

/** Sleeps until something changes, or `until_ns` (UINT64_MAX: whenever). */
void rg_lasting_sleep(struct rg_lasting *c, uint64_t until_ns);
void rg_lasting_changed(struct rg_lasting *c);
/** The carrier of `epoch` has failed. */
void rg_lasting_break(struct rg_lasting *c, uint64_t epoch, enum rg_status status);
void rg_lasting_end(struct rg_lasting *c, enum rg_status status);
/** Whether a carrier's descriptor shows its end; if not, the tether's does. */
static inline bool rg_lasting_shows_end(const struct rg_conn *carrier)
{
    return rg_conn_fd(carrier) >= 0;
}
/** Sends an acknowledgement (or another word without content); the right to send is free, the state not broken. */
void rg_lasting_say(struct rg_lasting *c, enum rg_lasting_kind kind);
/** The header of the next message, which acknowledges what has been received. */
struct rg_lasting_header rg_lasting_header_of(struct rg_lasting *c, enum rg_lasting_kind kind);
/** Whether a word of ours would be taken at once. */
bool rg_lasting_has_room(const struct rg_conn *carrier);

/* --- lasting_end.c; under the lock --- */

/** Whether the peer's machine has been heard of lately: then it ended the connection, and its process may be gone. */
bool rg_lasting_heard_lately(const struct rg_conn *conn);
/** Whether a message is nothing but a header, of that kind. */
bool rg_lasting_is_word(const struct rg_message *message, enum rg_lasting_kind kind);
/** Reads what the failed carrier still holds for the peer's last words: that it leaves, or why it ends. */
void rg_lasting_look_for_last_words(struct rg_lasting *c);

/* --- lasting_send.c: operations, without the lock --- */

enum rg_status rg_lasting_send(struct rg_conn *conn, const struct rg_outgoing *message);
bool rg_lasting_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size);
enum rg_status rg_lasting_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                    struct rg_bulk_ticket *out);
enum rg_status rg_lasting_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                    const struct iovec *bulk, int n_bulk);

/* --- lasting_receive.c: operations, without the lock; and under it --- */

enum { RG_LASTING_COPIED_MAX = 4096 }; /* messages up to this are copied, so that they lie in nobody's way */

enum rg_status rg_lasting_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_lasting_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
enum rg_status rg_lasting_take_lent(struct rg_conn *conn, size_t most, void **memory, size_t *size);
/** Takes acknowledgements that are there, or come by `timeout_ms`, if nobody receives; a message waits in `ready`. */
void rg_lasting_drain(struct rg_lasting *c, int timeout_ms);

/* --- lasting_kept.c; under the lock, but that they may give it up where `keep` says so --- */

/** Keeps a message that is about to be sent, busy; the lock is not held. NULL: no memory. */
struct rg_lasting_kept *rg_lasting_keep(struct rg_lasting *c, const struct rg_outgoing *message);
void rg_lasting_append(struct rg_lasting *c, struct rg_lasting_kept *kept);
/** The peer has messages up to `received`. False: it cannot. */
bool rg_lasting_acknowledge(struct rg_lasting *c, uint64_t received);
/** Copies the bulk data of a kept message, which is busy. False: no memory; nothing is kept any more. Gives up the lock meanwhile. */
bool rg_lasting_copy(struct rg_lasting *c, struct rg_lasting_kept *kept, struct rg_lasting_block **out);
/** From now on a kept message has its bulk data from there. The mender is not sending it. */
void rg_lasting_place(struct rg_lasting *c, struct rg_lasting_kept *kept, struct rg_lasting_block *copy);
/** Memory from the store, which goes back with the message; under the lock. NULL: none. */
struct rg_lasting_block *rg_lasting_take(struct rg_lasting *c, struct rg_lasting_kept *kept, size_t size);
/** The sender of a kept message leaves: what of its memory may still be needed is copied. Gives up the lock meanwhile. */
void rg_lasting_settle(struct rg_lasting *c, struct rg_lasting_kept *kept);
/** Lets go of a message that nobody is at and that is acknowledged. */
void rg_lasting_release(struct rg_lasting *c, struct rg_lasting_kept *kept);
/** Forgets all, for good: nothing can be sent again until the peer has caught up. */
void rg_lasting_forget(struct rg_lasting *c);
void rg_lasting_kept_fini(struct rg_lasting *c);

/* --- lasting_hold.c --- */

/** The sender of a kept message leaves, whose memory stays as it is. False: it cannot be held. Under the lock. */
bool rg_lasting_hold(struct rg_lasting *c, struct rg_lasting_kept *kept);
/** Copies what is held so and not acknowledged; the lock is given up meanwhile. */
void rg_lasting_end_all(struct rg_lasting *c, const struct rg_hold *hold);
/* operations, without the lock */
void rg_lasting_end_hold(struct rg_conn *conn, struct rg_hold *hold);
bool rg_lasting_hold_ended(struct rg_conn *conn, const struct rg_hold *hold);

/* --- lasting_mender.c --- */

void *rg_lasting_mend_main(void *connection);

#endif
