/*
 * inside.h - what the parts of a bundle share: bundle.c (lanes), send.c, receive.c; and of rails rails.c (they come and go),
 * rails_send.c, rails_receive.c, rails_memory.c, stripe.c (whether they are worth it), keep.c (opening them, again).
 *
 * Locks: memory_lock before lock before those of connections.
 */
#ifndef RG_TRANSPORT_BUNDLE_INSIDE_H
#define RG_TRANSPORT_BUNDLE_INSIDE_H

#include "transport/bundle/bundle.h"
#include "transport/bundle/press.h"
#include "transport/bundle/wire.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RG_BUNDLE_ROWS = 520,       /* iovecs of a piece: those of a message's bulk data */
    RG_BUNDLE_LOANS = 24,       /* pieces of memory lent over a connection without a tag, at most */
    RG_BUNDLE_ANY = UINT16_MAX, /* whichever lane */
};

/* The pieces of one message that is being sent. */
struct job {
    const struct iovec *bulk;
    int n_bulk;
    size_t size;
    uint64_t number, route;
    uint64_t tag, base;    /* rails: as rg_conn_send_to */
    unsigned lanes_left;   /* that have not sent theirs; the lock */
    uint32_t undelivered;  /* rails: pieces (bits) of lanes that were dropped; the lock */
    uint8_t given_up;      /* rails: those by which sending some of it has failed; the lock */
    enum rg_status status; /* the worst; the lock */
};

/* Rails: memory that was lent without a tag over a connection; the lock. */
struct loans {
    struct loan {
        unsigned char *memory;
        size_t size;
    } all[RG_BUNDLE_LOANS];
    unsigned n;
};

struct lane {
    struct bundle *bundle;
    struct rg_conn *conn; /* rails: of one that has come back another, exchanged under both locks */
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
    bool dropped; /* it is not there, or has failed: nothing more goes by it */
    bool closed;  /* and its device writes nowhere any more; what has arrived can still be received */
    bool reader_runs, reader_ended;
    pthread_t reader;
    unsigned users; /* threads that use the connection: it is not to be exchanged */
    struct loans loans;
    uint64_t since_ns, pause_ns,
        retry_ns;         /* when it came; the last pause before opening it again; when that is */
    struct {              /* its loss, which is still to be told; the lock */
        uint64_t tell_ns; /* 0: there is none */
        enum rg_status status;
        const char *doing;
        char peer[160];
    } loss;
};

/* Rails: a run of pieces of the message being received; the lock. */
struct run {
    unsigned pieces;       /* 0: it has not come yet */
    size_t done;           /* bytes of the message up to which it has been put in place */
    unsigned owner;        /* the lane whose reader is at it, plus 1; 0: none */
    unsigned former;       /* the last such */
    bool contested;        /* it has come by another rail: the owner is to leave */
    bool taking;           /* the receiver is inside the owner's connection, and the owner must stay */
    bool aside;            /* the owner is taking the rest into the stash, or passes over what is there */
    enum rg_status failed; /* of the owner's connection, for the receiver: the owner is to leave */
    unsigned char *stash;  /* not NULL: the rest of it waits here … */
    size_t stash_from;     /* … from this byte of the message on */
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

/* Rails: whether they carry what this side sends, where that is to be found out. The lock. */
struct stripe {
    atomic_bool on;
    bool trying, fresh; /* they are; and the window has just begun: not measured yet */
    double before;      /* rate without, bytes a second */
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
    bool opened;         /* rails: each has been tried */
    pthread_cond_t keep; /* rails: one is gone, or all is over; the lock */
    unsigned wanted;     /* lanes, by either side */
    uint64_t unlaned;    /* bulk bytes that have gone over the first connection */

    /* sending */
    uint64_t last_number;       /* by who has the right to send */
    uint64_t turn;              /* the number of the message whose pieces are sent next; the lock */
    enum rg_status send_failed; /* the lock */
    atomic_uint active;         /* lanes in use; of rails all */
    uint64_t measured,
        measured_ns; /* bytes of all lanes in the measurement of their rates, and how long it took; the lock */
    struct growth growth;
    struct stripe stripe;
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
    pthread_mutex_t memory_lock;
    struct rg_bundle_memory {
        void *base;
        size_t size;
        bool device; /* a GPU's */
        int fd;      /* its dma-buf, ours; -1: by its address */
        uint64_t offset;
    } * memory;
    unsigned n_memory, memory_room;
    /* rails; the lock */
    struct loans first_loans,
        homeless;                   /* homeless: what was lent over rails that are gone, and finds no room */
    bool peer_stripes;              /* the last large message came by rails */
    bool came;                      /* there was one */
    uint64_t lost, returned;        /* rails */
    struct rg_conn_statistics past; /* of connections that were exchanged */
};

/* bundle.c: more bulk data goes over the first connection, or the peer wants lanes: opens some if this side does that. */
void rg_bundle_want(struct bundle *b, unsigned lanes, uint64_t unlaned);
/* The lane when it has been added; NULL: the bundle ends before, or it does not come. */
struct lane *rg_bundle_lane(struct bundle *b, unsigned index);
/* Ends everything: a lane has failed. */
void rg_bundle_break(struct bundle *b, const struct lane *lane, enum rg_status status, const char *doing);

/* Rails: starts the thread that keeps them, unless it runs. */
void rg_bundle_keep(struct bundle *b);
/* Ends everything, without a word. */
void rg_bundle_interrupt(struct bundle *b);

/* rails.c */
/* Adds a rail, or one again that is gone, as number `index` (RG_BUNDLE_ANY: the first that was never there). */
enum rg_status rg_rails_add(struct bundle *b, struct rg_conn *conn, unsigned index);
/* It has failed, and is not used for sending any more. What has arrived by it is still received. */
void rg_rails_drop(struct lane *lane, enum rg_status status, const char *doing);
/* Tells people of a loss, if that is still to be done; the lock is held, and given up for that. */
void rg_rails_tell(struct lane *lane);
/* Gives back the connection of a lane that is gone, if nobody is inside it. */
void rg_rails_retire(struct lane *lane);
/* Whether nobody is inside a lane's connection, or will be; the lock is held. */
bool rg_rails_vacant(const struct lane *lane);
/* How many are left; the lock is held. */
unsigned rg_rails_living(const struct bundle *b);
/* Ends all readers. */
void rg_rails_end(struct bundle *b);

/* keep.c: opens rails, and again those that were lost, and gives back what those have; a thread of its own. */
void *rg_rails_keep(void *bundle);
/* When to open a rail again that has just gone or could not be opened; the lock is held. */
void rg_rails_schedule(struct lane *lane);

/* rails_receive.c */
void *rg_rails_read(void *lane);
/* A message of `total` bytes begins; the lock is held. */
void rg_rails_begin(struct bundle *b);
/* Takes the next `size` bytes of bulk data. */
enum rg_status rg_rails_take(struct bundle *b, unsigned char *to, size_t size);
/* As rg_conn_take_lent and rg_conn_places, of a message whose bulk data comes by rails. */
enum rg_status rg_rails_take_lent(struct bundle *b, size_t most, void **memory, size_t *size);
bool rg_rails_places(struct bundle *b, const unsigned char *memory, size_t size);

/* rails_memory.c */
/* Registers all memory with a connection that is to be a rail; memory_lock is held. */
enum rg_status rg_rails_prepare(struct bundle *b, struct rg_conn *conn);
enum rg_status rg_rails_register(struct bundle *b, void *base, size_t size);
void rg_rails_unregister(struct bundle *b, void *base);
unsigned rg_rails_device_paths(struct bundle *b);
enum rg_status rg_rails_register_device(struct bundle *b, void *base, size_t size, int fd, uint64_t offset);
enum rg_status rg_rails_lend(struct bundle *b, uint64_t tag, uint64_t base, void *memory, size_t size);
void rg_rails_unlend(struct bundle *b, uint64_t tag, void *memory);
/* Memory that was lent over a connection is the caller's again; the lock is held. */
void rg_rails_lent_is_back(struct loans *loans, const void *memory);
/* Lends what was lent over rails that are gone by others, if there is room; the lock is held. */
void rg_rails_lend_again(struct bundle *b);
void rg_rails_memory_end(struct bundle *b);

/* rails_send.c */
/* Where the bulk data of a job goes: `tag` if the caller named one; else whether all of it finds room that is lent. */
uint64_t rg_rails_tag(struct bundle *b, const struct job *job, uint64_t tag);
/* Sends those pieces of `mask` that `lane` is to carry, `again` or not; returns the pieces that it has not delivered. */
uint32_t rg_rails_send(struct lane *lane, const struct job *job, uint32_t mask, bool again, uint8_t given_up,
                       size_t *bytes, bool *fault);
/* What dropped lanes have not delivered goes by others, the fastest first. */
void rg_rails_send_again(struct bundle *b, struct job *job);

/* stripe.c */
/* Rails have come or gone; the lock is held. */
void rg_stripe_look(struct bundle *b);
/* A large message has been sent, by rails or by the first connection alone. */
void rg_stripe_sent(struct bundle *b, size_t size, uint64_t ns, bool striped);

/* send.c */
bool rg_bundle_is_apart(const struct rg_conn *conn, size_t msg_size, size_t bulk_size);
enum rg_status rg_bundle_send(struct rg_conn *conn, const struct rg_outgoing *message);
enum rg_status rg_bundle_send_head(struct rg_conn *conn, const struct rg_outgoing *message,
                                   struct rg_bulk_ticket *out);
enum rg_status rg_bundle_send_tail(struct rg_conn *conn, const struct rg_bulk_ticket *ticket,
                                   const struct iovec *bulk, int n_bulk);
void rg_bundle_end_threads(struct bundle *b);
unsigned rg_bundle_lane_of(uint64_t route, unsigned index);
/* Bytes of piece `index` of a message's bulk data. */
size_t rg_bundle_piece_size(size_t total, unsigned index);
/* The parts of [offset, offset + size) of a job's bulk data; returns how many: RG_BUNDLE_ROWS at most. */
int rg_bundle_slice(const struct job *job, size_t offset, size_t size, struct iovec *out);

/* receive.c */
enum rg_status rg_bundle_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_bundle_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);

#endif
