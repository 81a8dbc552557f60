/*
 * internal.h - the inside of a resumable connection, and which file does what with it.
 *
 *   resumable.c          its state, making and destruction
 *   goaway.c             ends that are meant
 *   send.c               sending
 *   receive.c            receiving, acknowledgements
 *   retransmit_queue.c   messages that are not acknowledged
 *   lease.c              those whose bulk data stays where it is until then
 *   memory.c             memory that is registered, with each link anew, or advertised
 *   reconnector.c        the thread that looks after the link
 *
 * Everything is guarded by `lock`, which is never held across a system call that waits. A thread that goes
 * into the link takes the right to (`sending`, `receiving`), gives the lock up, and does not touch the link
 * after it has given the right back. Who wants to replace the link interrupts it and waits until both rights
 * are free.
 */
#ifndef RG_TRANSPORT_RESUMABLE_INTERNAL_H
#define RG_TRANSPORT_RESUMABLE_INTERNAL_H

#include "transport/operations.h"
#include "transport/resumable/resumable.h"
#include "transport/resumable/waker.h"

#include <pthread.h>

enum rg_resumable_state {
    RG_RESUMABLE_UP,
    RG_RESUMABLE_BROKEN,    /* no link, or one of no use: everybody waits */
    RG_RESUMABLE_REPLAYING, /* a new one: receiving goes on, the reconnector sends what is missing */
    RG_RESUMABLE_OVER,
};

/** Memory from the connection's store: the size classes keep some for the next message. */
struct rg_retransmit_block {
    struct rg_retransmit_block *next;
    unsigned class;
    _Alignas(16) unsigned char data[];
};
enum { RG_RESUMABLE_CLASSES = 14 };

/** Memory that links which can are to have registered. */
struct rg_registered {
    struct rg_registered *next;
    void *base;
    size_t size;
    uint64_t epoch; /* the link that it has been tried with */
    bool busy;      /* being registered: it stays */
};

/** A message that the peer has not acknowledged. */
struct rg_retransmit_entry {
    struct rg_retransmit_entry *next;
    uint64_t seq;    /* from 1 */
    size_t msg_size; /* of `data`: the header and the message */
    struct rg_send
        send; /* as the link has it; the parts of bulk data are the sender's while it is inside (busy), else
                          * `own`, or in `parts`. With a lease that memory stays: it is not copied */
    struct iovec own;
    struct rg_retransmit_block *copy;  /* where `own` points, if it is a copy */
    struct rg_retransmit_block *parts; /* of bulk data that stays where it is */
    size_t memory;                     /* memory that all this takes */
    bool busy;                         /* its sender is inside */
    bool acked;                        /* out of the list: freed by who is still at it */
    bool replaying;                    /* the reconnector is sending it */
    bool fault;                        /* zeros were sent for bulk data that cannot be read */
    uint64_t epoch;                    /* the link that has the message, if the bulk data follows */
    _Alignas(16) unsigned char data[];
};

struct rg_resumable {
    struct rg_conn head;
    struct rg_resumable_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned waiting; /* threads that sleep on `changed` */

    enum rg_resumable_state state;
    enum rg_status over; /* what calls return then */
    bool final, peer_says_goaway;
    bool says_goaway;     /* this side: its end, which comes soon, is meant … */
    bool turn_wanted;     /* … and this has still to be said: before what else is to be sent */
    bool stopping;        /* destroy: the reconnector ends */
    struct rg_conn *link; /* NULL: between two */
    struct rg_conn *control_conn;
    uint64_t control_ended_ns;   /* since when it has ended, beside a link that has not; 0: it has not */
    struct rg_conn *former_link; /* a former link that the message in use lies in */
    uint64_t epoch;              /* counts links */
    bool sending, receiving;
    /*
     * Where the reader of messages sleeps in its link, so that a signal handler may interrupt it and receive itself (rg_conn_rests):
     * from then on that link is only its own, and may be lost and replaced, until it comes out.
     */
    const struct rg_conn *volatile awaited;
    bool parked; /* such a handler has received; nobody else does */
    struct rg_conn *
        parked_link; /* the link that the reader is in, which is lost: it goes when the reader has come out */
    unsigned detached; /* threads that send bulk data by itself */
    unsigned visitors; /* that do something short in the link */
    bool hurries;      /* the failed link is not to be read to its end */
    bool dropping;     /* a former link is being destroyed */
    bool read_ahead;
    struct rg_conn_statistics former; /* of links that are gone */
    struct rg_resumable_loss loss;
    uint64_t renewed_ns; /* when there was the last new link */
    uint64_t settled;    /* the last link of which that was told */
    uint64_t carried;    /* messages both ways, when the last link was lost */

    /* sending */
    uint64_t sent;    /* messages */
    uint64_t on_wire; /* the last one that the link was given */
    unsigned words;   /* said since the link was last seen to take one */
    struct rg_retransmit_entry *queue, **queue_last;
    size_t queued_bytes;                        /* of memory of ours */
    size_t leased_bytes;                        /* of others' */
    size_t drain_at;                            /* of both: when acknowledgements are looked for */
    uint64_t bulk_kept;                         /* bytes that were ever copied to be kept */
    const struct rg_retransmit_entry *replayed; /* what the reconnector is sending */
    unsigned waits_missed, waits_skipped;       /* lease.c */
    uint64_t forgotten; /* messages up to here are not kept though they were not acknowledged; 0: none */
    struct rg_retransmit_block *store[RG_RESUMABLE_CLASSES];
    unsigned n_store[RG_RESUMABLE_CLASSES];

    /* receiving */
    uint64_t received;           /* messages that have arrived as a whole */
    uint64_t acknowledged;       /* of these, those that the peer has been told of */
    size_t unacknowledged_bytes; /* received since */
    bool ack_wanted;             /* for the reconnector, or the next sender */
    bool asked;                  /* a word has come, which is answered with one */
    struct rg_message ready;     /* received by a sender that looked for acknowledgements */
    bool has_ready;
    bool in_use;          /* the message last returned lies in a link's memory */
    uint64_t in_use_from; /* its epoch */
    bool in_bulk;
    uint64_t bulk_epoch; /* the link that the rest of the bulk data comes by */
    size_t msg_size, bulk_size, bulk_taken;
    size_t copy_size;
    unsigned char *copy; /* small messages, and those of links that must not outlive their use, are copied */
    bool copy_all;
    void *last_words; /* a control message that came before a send failed; handed out once all is over */
    size_t last_words_size;

    struct rg_registered *registered;
    uint64_t registered_epoch; /* the last link that has all of it */
    uint64_t adverts_epoch;    /* the link that the owner of adverts without a tag knows of */

    pthread_t reconnector;
    struct rg_waker waker;
    bool polling;        /* the reconnector sleeps in poll */
    uint64_t hung_up;    /* the link of this epoch has ended, says poll … */
    uint64_t hung_up_ns; /* … since then */
};

/* --- resumable.c; under the lock, but for the first --- */

/** NULL: it is none. */
struct rg_resumable *rg_resumable_of(struct rg_conn *conn);

/** Sleeps until something changes, or `until_ns` (UINT64_MAX: whenever). */
void rg_resumable_sleep(struct rg_resumable *c, uint64_t until_ns);
void rg_resumable_changed(struct rg_resumable *c);
/** The same of what is no matter of the reconnector's. */
static inline void rg_resumable_wake(struct rg_resumable *c)
{
    if (c->waiting)
        pthread_cond_broadcast(&c->changed);
}
/** The link of `epoch` has failed. */
void rg_resumable_break(struct rg_resumable *c, uint64_t epoch, enum rg_status status);
void rg_resumable_end(struct rg_resumable *c, enum rg_status status);
/** Whether somebody receives, or is about to: nobody else may. */
static inline bool rg_resumable_is_read(const struct rg_resumable *c)
{
    return c->receiving || c->parked;
}
/** Whether a link's descriptor shows its end; if not, the control connection's does. */
static inline bool rg_resumable_shows_end(const struct rg_conn *link)
{
    return rg_conn_fd(link) >= 0;
}
/**
 * Sends an acknowledgement (or another word without content); the right to send is free, the state not
 * broken.
 */
void rg_resumable_say(struct rg_resumable *c, enum rg_resumable_kind kind);
/** The header of the next message, which acknowledges what has been received. */
struct rg_resumable_header rg_resumable_header_of(struct rg_resumable *c, enum rg_resumable_kind kind);
/** Whether a word of ours would be taken at once. */
bool rg_resumable_is_writable(const struct rg_conn *link);

/** Lets go of a control connection as who lives does; without the lock. NULL is fine. */
void rg_resumable_discard_control(struct rg_conn *control_conn);
/**
 * Goes into the link for something short, if there is one that is well; gives up the lock until rg_resumable_leave.
 * NULL: there is none, and the lock is still held.
 */
struct rg_conn *rg_resumable_visit(struct rg_resumable *c);
/** The same for what must hold when it has been done: a link that has failed is gone then. */
struct rg_conn *rg_resumable_visit_last(struct rg_resumable *c);
void rg_resumable_leave(struct rg_resumable *c);

/* --- memory.c: operations, without the lock; and under it --- */

enum rg_status rg_resumable_register(struct rg_conn *conn, void *base, size_t size);
void rg_resumable_unregister(struct rg_conn *conn, void *base);
enum rg_status rg_resumable_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                      size_t size);
void rg_resumable_withdraw(struct rg_conn *conn, uint64_t tag, void *memory);
bool rg_resumable_has_advertised(struct rg_conn *conn, size_t size);
bool rg_resumable_adverts_ended(struct rg_conn *conn);
/** Whether a new link may lack what earlier ones had registered; the link is there, then. */
bool rg_registered_is_missing(const struct rg_resumable *c);
/** Registers one piece of that with it; the lock is given up meanwhile. */
void rg_registered_renew_one(struct rg_resumable *c);
void rg_registered_fini(struct rg_resumable *c);

/* --- goaway.c; under the lock --- */

/**
 * Whether the peer's machine has been heard of lately: then it ended the connection, and its process may be
 * gone.
 */
bool rg_resumable_heard_lately(const struct rg_conn *conn);
/** Whether a message is nothing but a header, of that kind. */
bool rg_resumable_is_word(const struct rg_message *message, enum rg_resumable_kind kind);
/** Reads what the failed link still holds for the peer's last words: that it leaves, or why it ends. */
void rg_resumable_look_for_last_words(struct rg_resumable *c);

/* --- send.c: operations, without the lock --- */

enum rg_status rg_resumable_send(struct rg_conn *conn, struct rg_send *send);
enum rg_status rg_resumable_send_detached(struct rg_conn *conn, struct rg_send *send);

/* --- receive.c: operations, without the lock; and under it --- */

enum {
    RG_RESUMABLE_COPIED_MAX = 4096
}; /* messages up to this are copied, so that they lie in nobody's way */

/* these as transport/operations.h says */
enum rg_status rg_resumable_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
bool rg_resumable_rests(const struct rg_conn *conn);
enum rg_status rg_resumable_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
enum rg_status rg_resumable_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size);
/**
 * Takes acknowledgements that are there, or come by `timeout_ms`, if nobody receives; a message waits in
 * `ready`.
 */
void rg_resumable_drain(struct rg_resumable *c, int timeout_ms);
/** Acknowledges what has been received, now or soon; the peer does so in return, if it has received much. */
void rg_resumable_acknowledge(struct rg_resumable *c);

/* --- retransmit_queue.c; under the lock, but that they may give it up where `keep` says so --- */

/** Keeps a message that is about to be sent, busy; gives up the lock while it copies much. NULL: no memory. */
struct rg_retransmit_entry *rg_retransmit_create(struct rg_resumable *c, const struct rg_send *send);
void rg_retransmit_append(struct rg_resumable *c, struct rg_retransmit_entry *entry);
/** The peer has messages up to `received`. False: it cannot. */
bool rg_retransmit_acknowledge(struct rg_resumable *c, uint64_t received);
/**
 * Copies the bulk data of a message in the queue, which is busy. False: no memory; nothing is kept any more.
 * Gives up the lock meanwhile.
 */
bool rg_retransmit_copy(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                        struct rg_retransmit_block **out);
/** From now on a message in the queue has its bulk data from there. The reconnector is not sending it. */
void rg_retransmit_place(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                         struct rg_retransmit_block *copy);
/** Memory from the store, which goes back with the message; under the lock. NULL: none. */
struct rg_retransmit_block *rg_retransmit_take(struct rg_resumable *c, struct rg_retransmit_entry *entry,
                                               size_t size);
/**
 * The sender of a message comes out: what of its memory may still be needed is copied. Gives up the lock
 * meanwhile.
 */
void rg_retransmit_settle(struct rg_resumable *c, struct rg_retransmit_entry *entry);
/** Lets go of a message that nobody is at and that is acknowledged. */
void rg_retransmit_release(struct rg_resumable *c, struct rg_retransmit_entry *entry);
/** Forgets all, for good: nothing can be sent again until the peer has caught up. */
void rg_retransmit_forget(struct rg_resumable *c);
void rg_retransmit_fini(struct rg_resumable *c);

/* --- lease.c --- */

/**
 * The sender of a message comes out, whose memory stays as it is. False: it cannot be leased. Under the lock.
 */
bool rg_resumable_lease(struct rg_resumable *c, struct rg_retransmit_entry *entry);
/** Copies what is held so and not acknowledged; the lock is given up meanwhile. */
void rg_resumable_end_all(struct rg_resumable *c, const struct rg_lease *lease);
/* operations, without the lock */
void rg_resumable_end_lease(struct rg_conn *conn, struct rg_lease *lease);
bool rg_resumable_lease_ended(struct rg_conn *conn, const struct rg_lease *lease);

/* --- reconnector.c --- */

/** The connection's thread, until `stopping`: restores the link, registers anew, acknowledges, notices that a link is silent. */
void *rg_resumable_reconnect_main(void *connection);

#endif
