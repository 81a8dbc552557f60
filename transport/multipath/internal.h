/*
 * internal.h - what the parts of a multipath share: multipath.c (channels), send.c, receive.c; and of rails rails.c (they come and go),
 * send.c, receive.c, memory.c, striping.c (whether they are worth it), reconnect.c (opening them, again).
 *
 * Locks: memory_lock before lock before those of connections.
 */
#ifndef RG_TRANSPORT_MULTIPATH_INTERNAL_H
#define RG_TRANSPORT_MULTIPATH_INTERNAL_H

#include "transport/multipath/compression_policy.h"
#include "transport/multipath/multipath.h"
#include "transport/multipath/wire.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RG_MULTIPATH_ROWS = 520,       /* iovecs of a piece: those of a message's bulk data */
    RG_MULTIPATH_ADVERTS = 24,     /* pieces of memory advertised over a connection without a tag, at most */
    RG_MULTIPATH_ANY = UINT16_MAX, /* whichever channel */
};

/* The pieces of one message that is being sent. */
struct job {
    const struct iovec *bulk;
    int n_bulk;
    size_t size;
    uint64_t number, route;
    uint64_t tag, base;     /* rails: as in struct rg_send */
    unsigned channels_left; /* that have not sent theirs; the lock */
    uint32_t undelivered;   /* rails: pieces (bits) of channels that were dropped; the lock */
    uint8_t given_up;       /* rails: those by which sending some of it has failed; the lock */
    enum rg_status status;  /* the worst; the lock */
};

/* Rails: memory that was advertised without a tag over a connection; the lock. */
struct adverts {
    struct advert {
        unsigned char *memory;
        size_t size;
    } all[RG_MULTIPATH_ADVERTS];
    unsigned n;
};

struct channel {
    struct multipath *multipath;
    struct rg_conn *conn; /* rails: of one that has come back another, exchanged under both locks */
    /* sending; by whoever sends the channel's part of a job, one at a time */
    double rate; /* bytes a second; 0: not known; the lock, and with it the next three */
    double due;  /* seconds after the channel that is done first, as far as is known, that it will be done */
    uint64_t sent, ns;             /* of the measurement under way: bytes, and how long sending them took */
    unsigned char *plain, *packed; /* RG_PIECE bytes each; NULL: not needed yet */
    struct job *job;               /* the lock: given to the channel's thread */
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
    struct adverts adverts;
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
    unsigned owner;        /* the channel whose reader is at it, plus 1; 0: none */
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

/* How many channels are used, where that is to be found out. Only the sender whose turn it is uses it. */
struct channel_count {
    bool trying;        /* one more than before */
    bool fresh;         /* the window has just begun with one more: not measured yet */
    double before;      /* rate before, bytes a second */
    uint64_t bytes, ns; /* of the window */
    uint64_t rest;      /* bytes until the next try */
    uint64_t pause;     /* the last such */
};

/* Rails: whether they carry what this side sends, where that is to be found out. The lock. */
struct striping {
    atomic_bool on;
    bool trying, fresh; /* they are; and the window has just begun: not measured yet */
    double before;      /* rate without, bytes a second */
    uint64_t bytes, ns; /* of the window */
    uint64_t rest;      /* bytes until the next try */
    uint64_t pause;     /* the last such */
};

struct multipath {
    struct rg_conn head;
    struct rg_conn *first;
    struct rg_multipath_options options;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* channels, turns, jobs, interruption */
    struct channel channels[RG_MULTIPATH_CHANNELS];
    atomic_uint n_channels;   /* grows under the lock */
    bool interrupted, ending; /* the lock */

    /* opening; the lock */
    bool opening, gave_up;
    bool opener_started; /* there is a thread to be joined */
    pthread_t opener;
    bool opened;            /* rails: each has been tried */
    pthread_cond_t keep;    /* rails: one is gone, or all is over; the lock */
    unsigned wanted;        /* channels, by either side */
    uint64_t bulk_on_first; /* bulk bytes that have gone over the first connection */

    /* sending */
    uint64_t last_number;       /* by who has the right to send */
    uint64_t turn;              /* the number of the message whose pieces are sent next; the lock */
    enum rg_status send_failed; /* the lock */
    atomic_uint active;         /* channels in use; of rails all */
    uint64_t measured,
        measured_ns; /* bytes of all channels in the measurement of their rates, and how long it took; the lock */
    struct channel_count channel_count;
    struct striping striping;
    struct rg_compression_policy policy;
    _Atomic uint64_t pressed_from, pressed_to; /* bytes */

    /* receiving */
    uint64_t received_number;
    bool out_of_band; /* the current message's bulk data is */
    uint64_t route;
    size_t total, taken;
    enum rg_status recv_failed;
    struct inbox inbox;

    /* rails: memory that is registered with all connections */
    pthread_mutex_t memory_lock;
    struct rg_multipath_memory {
        void *base;
        size_t size;
        bool device; /* a GPU's */
        int fd;      /* its dma-buf, ours; -1: by its address */
        uint64_t offset;
    } * memory;
    unsigned n_memory, memory_capacity;
    /* rails; the lock */
    struct adverts first_adverts,
        unplaced_adverts; /* unplaced_adverts: what was advertised over rails that are gone, and finds no room */
    bool peer_stripes;    /* the last large message came by rails */
    bool came;            /* there was one */
    uint64_t lost, returned;        /* rails */
    struct rg_conn_statistics past; /* of connections that were exchanged */
};

/* multipath.c: more bulk data goes over the first connection, or the peer wants channels: opens some if this side does that. */
void rg_multipath_want(struct multipath *b, unsigned channels, uint64_t bulk_on_first);
/* The channel when it has been added; NULL: the multipath ends before, or it does not come. */
struct channel *rg_multipath_channel(struct multipath *b, unsigned index);
/* Ends everything: a channel has failed. */
void rg_multipath_break(struct multipath *b, const struct channel *channel, enum rg_status status,
                        const char *doing);

/* Rails: starts the thread that keeps them, unless it runs. */
void rg_multipath_keep(struct multipath *b);
/* Ends everything, without a word. */
void rg_multipath_interrupt(struct multipath *b);

/* rails.c */
/* Adds a rail, or one again that is gone, as number `index` (RG_MULTIPATH_ANY: the first that was never there). */
enum rg_status rg_multirail_add(struct multipath *b, struct rg_conn *conn, unsigned index);
/* It has failed, and is not used for sending any more. What has arrived by it is still received. */
void rg_multirail_drop(struct channel *channel, enum rg_status status, const char *doing);
/* Tells people of a loss, if that is still to be done; the lock is held, and given up for that. */
void rg_multirail_tell(struct channel *channel);
/* Gives back the connection of a channel that is gone, if nobody is inside it. */
void rg_multirail_retire(struct channel *channel);
/* Whether nobody is inside a channel's connection, or will be; the lock is held. */
bool rg_multirail_vacant(const struct channel *channel);
/* How many are left; the lock is held. */
unsigned rg_multirail_living(const struct multipath *b);
/* Ends all readers. */
void rg_multirail_end(struct multipath *b);

/* reconnect.c: opens rails, and again those that were lost, and gives back what those have; a thread of its own. */
void *rg_multirail_keep(void *multipath);
/* When to open a rail again that has just gone or could not be opened; the lock is held. */
void rg_multirail_schedule(struct channel *channel);

/* receive.c */
void *rg_multirail_read(void *channel);
/* A message of `total` bytes begins; the lock is held. */
void rg_multirail_begin(struct multipath *b);
/* Takes the next `size` bytes of bulk data. */
enum rg_status rg_multirail_take(struct multipath *b, unsigned char *to, size_t size);
/* As rg_conn_take_advertised and rg_conn_writes_directly, of a message whose bulk data comes by rails. */
enum rg_status rg_multirail_take_advertised(struct multipath *b, size_t most, void **memory, size_t *size);
bool rg_multirail_writes_directly(struct multipath *b, const unsigned char *memory, size_t size);

/* memory.c */
/* Registers all memory with a connection that is to be a rail; memory_lock is held. */
enum rg_status rg_multirail_prepare(struct multipath *b, struct rg_conn *conn);
enum rg_status rg_multirail_register(struct multipath *b, void *base, size_t size);
void rg_multirail_unregister(struct multipath *b, void *base);
unsigned rg_multirail_device_paths(struct multipath *b);
enum rg_status rg_multirail_register_device(struct multipath *b, void *base, size_t size, int fd,
                                            uint64_t offset);
enum rg_status rg_multirail_advertise(struct multipath *b, uint64_t tag, uint64_t base, void *memory,
                                      size_t size);
void rg_multirail_withdraw(struct multipath *b, uint64_t tag, void *memory);
/* Memory that was advertised over a connection is the caller's again; the lock is held. */
void rg_multirail_advertised_is_back(struct adverts *adverts, const void *memory);
/* Advertises what was advertised over rails that are gone by others, if there is room; the lock is held. */
void rg_multirail_readvertise(struct multipath *b);
void rg_multirail_memory_end(struct multipath *b);

/* send.c */
/* Where the bulk data of a job goes: `tag` if the caller named one; else whether all of it finds room that is advertised. */
uint64_t rg_multirail_tag(struct multipath *b, const struct job *job, uint64_t tag);
/* Sends those pieces of `mask` that `channel` is to carry, `again` or not; returns the pieces that it has not delivered. */
uint32_t rg_multirail_send(struct channel *channel, const struct job *job, uint32_t mask, bool again,
                           uint8_t given_up, size_t *bytes, bool *fault);
/* What dropped channels have not delivered goes by others, the fastest first. */
void rg_multirail_send_again(struct multipath *b, struct job *job);

/* striping.c */
/* Rails have come or gone; the lock is held. */
void rg_striping_reset(struct multipath *b);
/* A large message has been sent, by rails or by the first connection alone. */
void rg_striping_sent(struct multipath *b, size_t size, uint64_t ns, bool striped);

/* send.c */
enum rg_status rg_multipath_send(struct rg_conn *conn, struct rg_send *send);
enum rg_status rg_multipath_send_detached(struct rg_conn *conn, struct rg_send *send);
void rg_multipath_end_threads(struct multipath *b);
unsigned rg_multipath_channel_of(uint64_t route, unsigned index);
/* Bytes of piece `index` of a message's bulk data. */
size_t rg_multipath_piece_size(size_t total, unsigned index);
/* The parts of [offset, offset + size) of a job's bulk data; returns how many: RG_MULTIPATH_ROWS at most. */
int rg_multipath_slice(const struct job *job, size_t offset, size_t size, struct iovec *out);

/* receive.c */
enum rg_status rg_multipath_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_multipath_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);

#endif
