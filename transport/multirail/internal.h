/*
 * internal.h - the inside of a multirail, and which file does what.
 *
 *   multirail.c   its operations, making and ending
 *   rail.c        rails come, are lost, and come back
 *   reconnect.c   the thread that opens them, and gives back those that are gone
 *   send.c        runs of pieces out, and again by others
 *   rail_reader.c the threads that receive, one for each rail
 *   receive.c     who takes what they bring
 *   memory.c      memory that is registered or advertised with all connections
 *   striping.c    whether rails are worth it
 *
 * What it has in common with multipath is in multipath/fanout.h. Locks: memory_lock, then the fanout's
 * `lock`, then those of connections.
 */
#ifndef RG_TRANSPORT_MULTIRAIL_INTERNAL_H
#define RG_TRANSPORT_MULTIRAIL_INTERNAL_H

#include "common/sync/adaptive.h"
#include "transport/multipath/fanout.h"
#include "transport/multirail/multirail.h"

enum { RG_MULTIRAIL_ADVERTS = 24 }; /* pieces of memory advertised over a connection without a tag, at most */

/* Memory that was advertised without a tag over a connection; the lock. */
struct adverts {
    struct advert {
        unsigned char *memory;
        size_t size;
    } all[RG_MULTIRAIL_ADVERTS];
    unsigned n;
};

struct rail {
    struct rg_channel
        base; /* its connection is exchanged for another, under both locks, when it has come back */
    /* the lock */
    bool closed; /* dropped, and its device writes nowhere any more; what has arrived can still be received */
    bool reader_runs, reader_ended;
    pthread_t reader;
    uint64_t waits_for; /* the number of the message whose turn the reader has waited for last */
    unsigned users;     /* threads that use the connection: it is not to be exchanged */
    struct adverts adverts;
    uint64_t since_ns;        /* when it came */
    struct rg_adaptive pause; /* ns before opening it again */
    uint64_t retry_ns;        /* when that is */
    struct {                  /* its loss, which is still to be reported */
        uint64_t report_ns;   /* 0: there is none */
        enum rg_status status;
        const char *doing;
        char peer[160];
    } loss;
};

/* A run of pieces of the message being received; the lock. */
struct run {
    unsigned pieces;       /* 0: it has not come yet */
    size_t done;           /* bytes of the message up to which it has been put in place */
    unsigned owner;        /* the rail whose reader is at it, plus 1; 0: none */
    unsigned former;       /* the last such */
    bool contested;        /* it has come by another rail: the owner is to leave */
    bool taking;           /* the receiver is inside the owner's connection, and the owner must stay */
    bool aside;            /* the owner is taking the rest into the stash, or passes over what is there */
    enum rg_status failed; /* of the owner's connection, for the receiver: the owner is to leave */
    unsigned char *stash;  /* not NULL: the rest of it waits here … */
    size_t stash_from;     /* … from this byte of the message on */
};

/* What the receiver wants, and how far that has come; the lock. */
struct inbox {
    bool wanted;
    unsigned char *to; /* NULL: nowhere */
    size_t from, until, got;
    bool fault;
    unsigned busy; /* readers that write to `to` */
    bool violated;
    struct run runs[RG_PIECES_MAX]; /* by their first piece */
};

struct multirail {
    struct rg_fanout f;
    struct rg_multirail_options options;
    struct rail rails[RG_FANOUT_CHANNELS];
    /* memory that is registered with all connections */
    pthread_mutex_t memory_lock;
    struct rg_multirail_memory {
        void *base;
        size_t size;
        bool device; /* a GPU's */
        int fd;      /* its dma-buf, ours; -1: by its address */
        uint64_t offset;
    } * memory;
    unsigned n_memory, memory_capacity;
    /* the lock */
    bool opener_started; /* the thread that opens rails; it is to be joined */
    pthread_t opener;
    bool opening, opened; /* it runs; each has been tried */
    struct adverts first_adverts,
        unplaced_adverts; /* unplaced: advertised over rails that are gone, and nowhere else yet */
    struct inbox inbox;
    bool peer_stripes;              /* the last large message came by rails */
    bool came;                      /* there was a rail */
    uint64_t lost, returned;        /* rails */
    struct rg_conn_statistics past; /* of connections that were exchanged */
    atomic_bool striping;           /* rails carry what this side sends */
    struct rg_trial rails_trial;    /* whether that is faster */
};

static inline struct multirail *rg_multirail_of(const struct rail *rail)
{
    return (struct multirail *)rail->base.fanout;
}

extern const struct rg_fanout_kind rg_multirail_kind; /* send.c; its `begin` is of receive.c */

/* --- rail.c --- */

/* It has failed, and is not used for sending any more. What has arrived by it is still received. */
void rg_rail_drop(struct rail *rail, enum rg_status status, const char *doing);
/* One of which the peer takes nothing is dropped, unless it is the last. False: it is not. */
bool rg_rail_give_up(struct multirail *m, unsigned place);
/* Reports a loss to people, if that is still to be done; the lock is held, and given up for that. */
void rg_rail_report(struct rail *rail);
/* Gives back the connection of a rail that is gone, if nobody is inside it. */
void rg_rail_retire(struct rail *rail);
/* Whether nobody is inside a rail's connection, or will be; the lock is held. */
bool rg_rail_vacant(const struct rail *rail);
/* How many are left; the lock is held. */
unsigned rg_rails_living(const struct multirail *m);
/* Ends all readers. */
void rg_rails_end(struct multirail *m);

/* --- reconnect.c --- */

/* Starts the thread that opens rails, unless it runs. */
void rg_rails_reconnect(struct multirail *m);
/*
 * More bulk data goes over the first connection, or the peer wants rails: opens them if this side does that.
 */
void rg_rails_want(struct multirail *m, unsigned rails, uint64_t bulk_on_first);
/* When to open a rail again that has just gone or could not be opened; the lock is held. */
void rg_rail_schedule(struct rail *rail);

/* --- rail_reader.c --- */

enum { RG_RAIL_PATIENCE_MS = 500 }; /* of a reader whose run is not what the receiver waits for */

/* A thread's main function: receives by that rail until it breaks or the connection ends, then drops it. */
void *rg_rail_read(void *rail);
/* A time on the monotonic clock, for pthread_cond_timedwait. */
struct timespec rg_multirail_in_ms(unsigned ms);
/* How long a reader is patient: less when a rail is gone. The lock is held. */
unsigned rg_multirail_patience_ms(const struct multirail *m);

/* --- receive.c --- */

/* A message whose bulk data comes by rails begins; the lock is held. */
void rg_multirail_begin(struct rg_fanout *f);
/* operations */
enum rg_status rg_multirail_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_multirail_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
enum rg_status rg_multirail_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size);
bool rg_multirail_writes_directly(struct rg_conn *conn, const void *memory, size_t size);

/* --- memory.c --- */

/* Registers all memory with a connection that is to be a rail; memory_lock is held. */
enum rg_status rg_multirail_prepare(struct multirail *m, struct rg_conn *conn);
/* Memory that was advertised over a connection is the caller's again; the lock is held. */
void rg_multirail_advertised_is_back(struct adverts *adverts, const void *memory);
/* Advertises by others what was over rails that are gone, if they take it; the lock is held. */
void rg_multirail_readvertise(struct multirail *m);
void rg_multirail_memory_end(struct multirail *m);
/* operations */
enum rg_status rg_multirail_register(struct rg_conn *conn, void *base, size_t size);
void rg_multirail_unregister(struct rg_conn *conn, void *base);
unsigned rg_multirail_device_paths(struct rg_conn *conn);
enum rg_status rg_multirail_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                            uint64_t offset);
enum rg_status rg_multirail_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                      size_t size);
void rg_multirail_withdraw(struct rg_conn *conn, uint64_t tag, void *memory);

/* --- striping.c --- */

/* Rails have come or gone; the lock is held. */
void rg_striping_reset(struct multirail *m);
/* A large message has been sent, by rails or by the first connection alone. */
void rg_striping_sent(struct multirail *m, size_t size, uint64_t ns, bool striped);

/* --- send.c: operations --- */

enum rg_status rg_multirail_send(struct rg_conn *conn, struct rg_send *send);
enum rg_status rg_multirail_send_detached(struct rg_conn *conn, struct rg_send *send);

#endif
