/*
 * fanout.h - bulk data of one connection over several: what the wrappers multipath (connections of one
 * network) and multirail (several adapters) share.
 *
 * A message whose bulk data goes out of band is sent in three steps: its head on the first connection, with
 * the route that says which channel carries which piece (rg_fanout_send_head, serialised by the caller); the
 * message's turn, since pieces go out in the order of messages (rg_fanout_begin); and the pieces, by the
 * calling thread and, where several channels take part, by a thread of each of the others
 * (rg_fanout_send_pieces, rg_fanout_end). How a channel sends its part is the wrapper's (struct
 * rg_fanout_kind). The receiver gets the head by rg_fanout_recv, and the pieces as the wrapper does.
 *
 * A failure of the first connection, or one that the wrapper does not get over, ends everything
 * (rg_fanout_break).
 *
 * Locks: a wrapper's own, then `lock`, then those of the connections.
 */
#ifndef RG_TRANSPORT_MULTIPATH_FANOUT_H
#define RG_TRANSPORT_MULTIPATH_FANOUT_H

#include "transport/multipath/wire.h"
#include "transport/operations.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RG_FANOUT_CHANNELS = 8,         /* at most */
    RG_FANOUT_ROWS = 520,           /* iovecs of a piece: those of a message's bulk data */
    RG_FANOUT_BULK_MIN = 128 << 10, /* bulk data that counts as such */
    RG_FANOUT_BULK_ON_FIRST =
        1 << 20, /* so much of it over the first connection, and channels are worth it */
};

/** The pieces of one message that is being sent. */
struct rg_sending {
    const struct rg_send *send;
    uint64_t tag;           /* multirail: where the bulk data goes */
    unsigned channels_left; /* that have not sent their part; the lock, and with it the next three */
    uint32_t undelivered;   /* multirail: pieces (bits) of rails that were dropped */
    uint8_t given_up;       /* multirail: those by which sending some of it has failed */
    enum rg_status status;  /* the worst */
};

struct rg_channel {
    struct rg_fanout *fanout;
    unsigned index;
    struct rg_conn *conn;
    bool dropped; /* it is not there, or has failed: nothing more goes by it; the lock */
    double rate;  /* bytes a second; 0: not known; the lock, and with it the next two */
    double due;   /* seconds after the channel that is done first, as far as is known, that it will be done */
    uint64_t sent, ns;          /* of the measurement under way: bytes, and how long sending them took */
    struct rg_sending *sending; /* the lock: given to the channel's thread */
    pthread_cond_t wake;
    pthread_t thread;
    bool thread_runs; /* by the sender alone */
};

struct rg_fanout_kind {
    size_t least; /* bulk data of less than this goes with its message */
    /**
     * Sends what of a message belongs to a channel; counts the bytes. RG_ERR_FAULT: zeros were sent for some
     * of it.
     */
    enum rg_status (*send_part)(struct rg_channel *channel, struct rg_sending *sending, size_t *bytes);
    /** Changes a route, which the scheduler has chosen piece by piece; NULL: it stays. */
    uint64_t (*arrange)(uint64_t route, uint64_t number, size_t size);
    /** A message whose bulk data comes out of band begins; the lock is held. NULL: nothing is to be done. */
    void (*begin)(struct rg_fanout *f);
    /** Everything ends, as this channel has failed. NULL: nothing is to be done. */
    void (*lost)(struct rg_fanout *f, const struct rg_channel *channel);
};

struct rg_fanout {
    struct rg_conn head;
    const struct rg_fanout_kind *kind;
    struct rg_conn *first;
    unsigned most; /* channels */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* channels, turns, parts that were sent, interruption */
    pthread_cond_t upkeep;  /* something to do for who opens channels; or all is over */
    struct rg_channel *channels[RG_FANOUT_CHANNELS];
    atomic_uint n_channels;   /* grows under the lock */
    atomic_uint active;       /* those that are used */
    bool interrupted, ending; /* the lock */
    unsigned wanted;          /* channels, by either side; the lock */
    uint64_t bulk_on_first;   /* bulk bytes that have gone over the first connection; the lock */

    /* sending */
    uint64_t last_number;       /* by who has the right to send */
    uint64_t turn;              /* the number of the message whose pieces are sent next; the lock */
    enum rg_status send_failed; /* the lock */
    uint64_t measured,
        measured_ns; /* bytes of all channels in the measurement of rates, and its time; the lock */

    /* receiving */
    uint64_t received_number;
    bool out_of_band; /* the current message's bulk data is */
    uint64_t route;
    size_t total, taken;
    enum rg_status recv_failed;
};

/* --- fanout.c --- */

/** `most` channels, each of which is then given its place by rg_fanout_add_channel. */
void rg_fanout_init(struct rg_fanout *f, const struct rg_fanout_kind *kind, struct rg_conn *first,
                    unsigned most);
void rg_fanout_add_channel(struct rg_fanout *f, struct rg_channel *channel, unsigned index);
/** Ends the threads of the channels, and says so to all others. */
void rg_fanout_end_threads(struct rg_fanout *f);
void rg_fanout_fini(struct rg_fanout *f);
/** Ends everything, without a word. */
void rg_fanout_interrupt(struct rg_fanout *f);
/** Ends everything: the channel (NULL: the first connection) has failed. */
void rg_fanout_break(struct rg_fanout *f, const struct rg_channel *channel, enum rg_status status,
                     const char *doing);
/** Adds what a connection tells of copies. */
void rg_fanout_add_statistics(struct rg_conn_statistics *sum, const struct rg_conn *conn);
/** Protected is what all connections are. */
void rg_fanout_add_security(struct rg_conn_security *all, const struct rg_conn *conn);
/* operations that go to the first connection, or to all */
void rg_fanout_op_interrupt(struct rg_conn *conn);
void rg_fanout_op_set_read_ahead(struct rg_conn *conn);
enum rg_status rg_fanout_op_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys);
enum rg_status rg_fanout_op_tls_exporter(const struct rg_conn *conn, uint8_t out[32]);
bool rg_fanout_op_has_credit(struct rg_conn *conn);
void rg_fanout_op_set_control(struct rg_conn *conn, const struct rg_conn *control_conn);
int rg_fanout_op_fd(const struct rg_conn *conn);
void rg_fanout_op_abandon(struct rg_conn *conn);

/* --- schedule.c --- */

/**
 * Which channel carries which piece, so that all are done at the same time, as far as is known; the lock is
 * held. One is left.
 */
uint64_t rg_fanout_schedule(struct rg_fanout *f, uint64_t number, size_t size);
/** What the channels can do, from what they did with this message and with those before; the lock is held. */
void rg_fanout_rate(struct rg_fanout *f, size_t size, uint64_t ns);

/* --- fanout_send.c --- */

/** Whether a message's bulk data is so much, and its parts so few, that it can go out of band. */
bool rg_fanout_fits(const struct rg_fanout *f, const struct rg_send *send);
RG_MUST_CHECK enum rg_status rg_fanout_send_head(struct rg_fanout *f, struct rg_send *send);
/** Waits for the message's turn; where it comes, rg_fanout_end must follow. */
RG_MUST_CHECK enum rg_status rg_fanout_begin(struct rg_fanout *f, const struct rg_send *send);
/** All pieces, each by its channel. */
void rg_fanout_send_pieces(struct rg_fanout *f, struct rg_sending *sending);
/** All pieces took `ns`: the next message has its turn. Returns what became of this one. */
enum rg_status rg_fanout_end(struct rg_fanout *f, const struct rg_sending *sending, uint64_t ns);
static inline unsigned rg_fanout_channel_of(uint64_t route, unsigned index)
{
    return (unsigned)(route >> (4 * index)) & 15;
}
/** Bytes of piece `index` of a message's bulk data. */
static inline size_t rg_fanout_piece_size(size_t total, unsigned index)
{
    const size_t offset = (size_t)index * RG_PIECE;
    return total - offset < RG_PIECE ? total - offset : RG_PIECE;
}
/** The parts of [offset, offset + size) of the bulk data; returns how many: RG_FANOUT_ROWS at most. */
int rg_fanout_slice(const struct rg_send *send, size_t offset, size_t size, struct iovec *out);

/* --- fanout_receive.c --- */

/** A message, as rg_conn_recv. *wanted: channels that the peer would like to have. */
RG_MUST_CHECK enum rg_status rg_fanout_recv(struct rg_fanout *f, int timeout_ms, struct rg_message *out,
                                            unsigned *wanted);
/* Ends everything, as what was to be received cannot be; return the status that receivers get. */
enum rg_status rg_fanout_fail(struct rg_fanout *f, const struct rg_channel *channel, enum rg_status status);
enum rg_status rg_fanout_violation(struct rg_fanout *f, const struct rg_channel *channel, const char *what);

#endif
