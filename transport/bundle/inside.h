/* inside.h - what the parts of a bundle share: bundle.c (lanes), send.c, receive.c, rails.c. */
#ifndef RG_TRANSPORT_BUNDLE_INSIDE_H
#define RG_TRANSPORT_BUNDLE_INSIDE_H

#include "transport/bundle/bundle.h"
#include "transport/bundle/press.h"
#include "transport/bundle/wire.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdatomic.h>

/* The pieces of one message that is being sent. */
struct job {
    const struct iovec *bulk;
    int n_bulk;
    size_t size;
    uint64_t number, route;
    unsigned lanes_left;   /* that have not sent theirs; the lock */
    uint32_t undelivered;  /* rails: pieces (bits) of lanes that were dropped; the lock */
    enum rg_status status; /* the worst; the lock */
};

struct lane {
    struct bundle *bundle;
    struct rg_conn *conn;
    /* sending; by whoever sends the lane's part of a job, one at a time */
    double rate; /* bytes a second; 0: not known; the lock, and with it the next three */
    double due;  /* seconds after the lane that is done first, as far as is known, that it will be done */
    uint64_t sent, ns;             /* of the measurement under way: bytes, and how long sending them took */
    unsigned char *plain, *packed; /* RG_PIECE bytes each; NULL: not needed yet */
    struct job *job;               /* the lock: given to the lane's thread */
    pthread_cond_t wake;
    pthread_t thread;
    bool thread_runs; /* by the sender alone */
    /* receiving; the receiver's */
    unsigned char *unpacked, *arrived; /* RG_PIECE bytes each; NULL: not needed yet */
    bool is_unpacked;                  /* the current piece was compressed, and is in `unpacked` */
    /* rails; the lock */
    bool dropped; /* it has failed: nothing more goes by it */
    bool closed;  /* and its device writes nowhere any more; what has arrived can still be received */
    bool reader_runs, reader_ended;
    pthread_t reader;
};

/* Rails: a run of pieces of the message being received; the lock. */
struct run {
    unsigned pieces; /* 0: it has not come yet */
    size_t done;     /* bytes of the message up to which it has been put in place */
    unsigned owner;  /* the lane whose reader is at it, plus 1; 0: none */
    unsigned former; /* the last such */
    bool contested;  /* it has come by another rail: the owner is to leave */
    unsigned char *stash; /* not NULL: the rest of it waits here … */
    size_t stash_from;    /* … from this byte of the message on */
};

/* Rails: what the receiver wants, and how far that has come; the lock. */
struct inbox {
    bool wanted;
    unsigned char *to; /* NULL: nowhere */
    size_t from, until, got;
    bool fault;
    unsigned busy; /* readers that write to `to` */
    bool violated;
    struct run runs[RG_PIECES_MAX]; /* by their first piece */
};

/* How many lanes are used, where that is to be found out. Only the sender whose turn it is uses it. */
struct growth {
    bool trying;        /* one more than before */
    bool fresh;         /* the window has just begun with one more: not measured yet */
    double before;      /* rate before, bytes a second */
    uint64_t bytes, ns; /* of the window */
    uint64_t rest;      /* bytes until the next try */
    uint64_t pause;     /* the last such */
};

struct bundle {
    struct rg_conn head;
    struct rg_conn *first;
    struct rg_bundle_options options;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* lanes, turns, jobs, interruption */
    struct lane lanes[RG_BUNDLE_LANES];
    atomic_uint n_lanes;      /* grows under the lock */
    bool interrupted, ending; /* the lock */

    /* opening; the lock */
    bool opening, gave_up;
    bool opener_started; /* there is a thread to be joined */
    pthread_t opener;
    unsigned wanted;  /* lanes, by either side */
    uint64_t unlaned; /* bulk bytes that have gone over the first connection */

    /* sending */
    uint64_t last_number;       /* by who has the right to send */
    uint64_t turn;              /* the number of the message whose pieces are sent next; the lock */
    enum rg_status send_failed; /* the lock */
    atomic_uint active;         /* lanes in use */
    uint64_t measured,
        measured_ns; /* bytes of all lanes in the measurement of their rates, and how long it took; the lock */
    struct growth growth;
    struct rg_press press;
    _Atomic uint64_t pressed_from, pressed_to; /* bytes */

    /* receiving */
    uint64_t received_number;
    bool apart; /* the current message's bulk data is */
    uint64_t route;
    size_t total, taken;
    enum rg_status recv_failed;
    struct inbox inbox;

    /* rails: memory that is registered with all connections */
    pthread_mutex_t memory_lock; /* before the lock */
    struct rg_bundle_memory {
        void *base;
        size_t size;
    } *memory;
    unsigned n_memory, memory_room;
};

/* bundle.c: more bulk data goes over the first connection, or the peer wants lanes: opens some if this side does that. */
void rg_bundle_want(struct bundle *b, unsigned lanes, uint64_t unlaned);
/* The lane when it has been added; NULL: the bundle ends before, or it does not come. */
struct lane *rg_bundle_lane(struct bundle *b, unsigned index);
/* Ends everything: a lane has failed. */
void rg_bundle_break(struct bundle *b, const struct lane *lane, enum rg_status status, const char *doing);

/* Ends everything, without a word. */
void rg_bundle_interrupt(struct bundle *b);

/* rails.c */
/* Adds a rail: registers memory with it and starts its reader. */
enum rg_status rg_rails_add(struct bundle *b, struct rg_conn *conn);
/* Sending by a rail has failed: it is not used for that any more. What has arrived by it is still received. */
void rg_rails_drop(struct lane *lane, enum rg_status status, const char *doing);
/* How many are left; the lock is held. */
unsigned rg_rails_living(const struct bundle *b);
/* A message of `total` bytes begins; the lock is held. */
void rg_rails_begin(struct bundle *b);
/* Takes the next `size` bytes of bulk data. */
enum rg_status rg_rails_take(struct bundle *b, unsigned char *to, size_t size);
enum rg_status rg_rails_register(struct bundle *b, void *base, size_t size);
void rg_rails_unregister(struct bundle *b, void *base);
/* Ends all readers. */
void rg_rails_end(struct bundle *b);

/* send.c */
bool rg_bundle_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size);
enum rg_status rg_bundle_send(struct rg_conn *conn, const struct rg_outgoing *message);
enum rg_status rg_bundle_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                   struct rg_bulk_ticket *out);
enum rg_status rg_bundle_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                   const struct iovec *bulk, int n_bulk);
void rg_bundle_end_threads(struct bundle *b);

/* receive.c */
enum rg_status rg_bundle_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_bundle_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);

#endif
