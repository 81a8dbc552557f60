/*
 * internal.h - the inside of transport rdma: a connection, and which file does what with it.
 *
 *   rdma.c        the operations, ending
 *   endpoint.c    rdma_cm: queue pairs, what ends tell each other
 *   connect.c     rdma_cm: connecting
 *   listen.c      rdma_cm: listening
 *   check.c       the self-test: does this pair of devices do one-sided writes, do completion events come?
 *   progress.c    posting, completions, credits
 *   wait.c        waiting; is the peer still there?
 *   stream.c      messages as fragments
 *   write.c       bulk data written straight into the receiver's memory
 *   advertised.c  memory that is advertised to the peer ahead, so that it need not ask where bulk data belongs
 *   region.c      registered memory
 *   device.c      registered memory of GPUs
 *
 * Threads: one sender and one receiver may be inside, and anyone may interrupt. `lock` guards all of the
 * connection but what is marked as the sender's or the receiver's own. Whoever waits makes progress for both:
 * completions are polled under the lock and wake the other side if it sleeps. Nothing waits under the lock;
 * the system calls made there are those of posting, registering, ending the connection and waking the other
 * side.
 */
#ifndef RG_TRANSPORT_RDMA_INTERNAL_H
#define RG_TRANSPORT_RDMA_INTERNAL_H

#include "transport/operations.h"
#include "transport/rdma/wire.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

enum {
    RG_RDMA_WRITES = 32,           /* one-sided writes under way */
    RG_RDMA_CONTROLS = 16,         /* fragments other than DATA under way */
    RG_RDMA_CONTROL_SIZE = 128,    /* bytes of one of those */
    RG_RDMA_BOUNCE = 262144,       /* bytes of a bounce buffer */
    RG_RDMA_BOUNCES = 2,           /* of each direction */
    RG_RDMA_WRITE_MAX = 1 << 20,   /* bytes of one write */
    RG_RDMA_REGION_MAX = 64 << 20, /* bytes of one registration; larger regions are made of several */
    RG_RDMA_WRITTEN_MIN = 8192,    /* bulk data of registered memory is placed from here */
};

enum rg_rdma_side { RG_RDMA_SENDER, RG_RDMA_RECEIVER, RG_RDMA_SIDES };

/** A piece of memory that the device may use; list of the connection. */
struct rg_rdma_region {
    struct rg_rdma_region *next;
    unsigned char *base;
    size_t size;
    int uses; /* transfers under way */
    bool temporary;
    bool device; /* a GPU's memory: not for the CPU to touch */
    int n;
    struct ibv_mr *mrs[]; /* of RG_RDMA_REGION_MAX bytes each but the last */
};

/** A DATA fragment that was received and not used up. */
struct rg_rdma_received {
    uint16_t slot;
    uint32_t offset, length; /* of the payload that is left, within the slot */
};

/** Memory of this side's that the peer may place bulk data into. */
struct rg_rdma_advertised {
    enum rg_rdma_advertised_state {
        RG_RDMA_AT_HOME,
        RG_RDMA_AWAY,   /* the peer has it */
        RG_RDMA_FILLED, /* without a tag: the peer has used it */
        RG_RDMA_LEAVES, /* is to be advertised again by itself */
    } state;
    uint64_t tag, base;
    unsigned char *memory;
    size_t size;
    struct rg_rdma_region *region; /* in use by it; NULL without a tag */
};

/** Memory of the peer's that this side may place bulk data into. */
struct rg_rdma_advert {
    bool here;
    uint64_t tag, base, size;
    uint32_t n;
    struct rg_rdma_segment segments[RG_RDMA_SEGMENTS];
};

struct rg_rdma_conn {
    struct rg_conn head;
    /* fixed once connected */
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool two_sided; /* nothing but SEND and RECV works, or is wanted */
    bool polled;    /* completion events do not come */
    bool asks;      /* nothing is advertised ahead, by the user's wish */
    bool delivers;  /* a send waits until it has arrived (RG_CAP_DELIVERS) */
    uint32_t inline_max;
    size_t
        register_min; /* unregistered bulk data of this size is registered for the transfer; else it is bounced */
    unsigned char *memory; /* slots to receive, slots to send, controls: not for the peer to write */
    size_t memory_size;
    struct ibv_mr *memory_mr;
    unsigned char
        *check_memory; /* a page: what the peer writes in the self-test, and the pattern written there */
    struct ibv_mr *check_mr;

    pthread_mutex_t lock;                         /* rg_rdma_lock */
    atomic_int wanted;                            /* so many wait for the lock */
    struct rg_adaptive_wait waits[RG_RDMA_SIDES]; /* the side's own */
    pthread_cond_t idle_region;                   /* a region's uses went down */
    atomic_bool interrupted;
    enum rg_status broken; /* RG_OK: the queue pair works */
    bool checking;         /* the self-test is under way */
    bool peer_bye, bye_sent;
    bool heard;        /* something has completed since `heard_ns` */
    uint64_t heard_ns; /* when something completed last, or a sign of life was asked for */
    unsigned signs;    /* of life asked for by empty fragments since something was received */
    const struct rg_conn *control_conn; /* rg_conn_set_control */
    uint64_t looked_ns;                 /* when it was looked at last */
    uint64_t ended_ns;                  /* when its end was seen; 0: it has none */
    uint64_t version;                   /* counts whatever a waiting side may wait for */
    bool asleep[RG_RDMA_SIDES];
    int kick[RG_RDMA_SIDES]; /* eventfd */
    unsigned events_unacked;
    bool events_proven; /* one has ended a sleep */

    /* sending */
    bool send_busy; /* in the middle of a message */
    enum rg_status send_failed;
    unsigned credits;
    uint32_t data_posted, data_done, control_posted, control_done, writes_posted, writes_done;
    bool ready_wanted, ready_here;
    struct rg_rdma_ready_to_receive ready;
    struct ibv_mr *bounce_mr[RG_RDMA_SIDES];
    unsigned char *bounce[RG_RDMA_SIDES]; /* made when first needed; the side's own */

    struct rg_rdma_advert adverts[RG_RDMA_ADVERTS];
    unsigned next_advert; /* of those without a tag: where to look first */
    uint32_t advertisements_posted, advertisements_acked;

    /* receiving */
    enum rg_status recv_failed;
    struct rg_rdma_advertised advertised[RG_RDMA_ADVERTS];
    uint32_t advertisements_seen;
    bool advertisements_wait; /* some leave */
    struct rg_rdma_received received[RG_RDMA_SLOTS];
    uint32_t received_head, received_tail;
    unsigned credits_due; /* receives posted again that the peer does not know of */
    bool placing, placed;
    uint32_t check_area_seen, check_written, check_verdict; /* 0: not yet; 1: no; 2: yes */
    struct rg_rdma_segment check_area;
    /* the receiver's own */
    unsigned char *assembly;         /* a message of several fragments; made when first needed */
    struct rg_rdma_message incoming; /* head of the message being received */
    bool has_head;
    uint32_t assembled;         /* bytes of it in the assembly buffer */
    bool held;                  /* the slot at received_head holds the message last returned */
    uint32_t bulk_mode;         /* enum rg_rdma_bulk_mode, of the bulk data that is left */
    struct rg_rdma_piece piece; /* ADVERTISED: what is left of the piece at hand, in the host's byte order */

    struct rg_rdma_region *regions;
    unsigned n_device_regions;
    atomic_uint_fast64_t bytes_copied[RG_RDMA_SIDES], bytes_placed[RG_RDMA_SIDES];
};

/* --- connect.c, listen.c, endpoint.c --- */

enum rg_status rg_rdma_connect(const struct rg_address *address, const struct rg_transport_options *options,
                               char *why, size_t why_size, struct rg_conn **out);
enum rg_status rg_rdma_listen(const struct rg_address *address, const struct rg_transport_options *options,
                              char *why, size_t why_size, struct rg_listener **out);
enum rg_status rg_rdma_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out);
void rg_rdma_listener_interrupt(struct rg_listener *listener);
void rg_rdma_listener_destroy(struct rg_listener *listener);
int rg_rdma_listener_fd(const struct rg_listener *listener);
/** Gives back all that a connection has; half-built ones are fine. */
void rg_rdma_conn_free(struct rg_rdma_conn *c);

/* --- check.c --- */

/**
 * Runs the self-test; the peer runs it too. RG_ERR_UNSUPPORTED: one-sided writes do not work between the two.
 */
enum rg_status rg_rdma_check(struct rg_rdma_conn *c);

/* --- progress.c; under the lock --- */

/** The slot of a receive. */
unsigned char *rg_rdma_receive_slot(struct rg_rdma_conn *c, uint32_t slot);
unsigned char *rg_rdma_send_slot(struct rg_rdma_conn *c, uint32_t number);
/** Posts all receives; once, before the connection is made. */
enum rg_status rg_rdma_post_receives(struct rg_rdma_conn *c);
/** Gives the slot at received_head back to the device. */
enum rg_status rg_rdma_release(struct rg_rdma_conn *c);
/**
 * Sends the fragment whose payload lies in the send slot of data_posted. The caller holds a credit and a
 * slot.
 */
enum rg_status rg_rdma_post_data(struct rg_rdma_conn *c, uint32_t length);
/** Sends a small fragment. */
enum rg_status rg_rdma_post_control(struct rg_rdma_conn *c, enum rg_rdma_type type, const void *payload,
                                    uint32_t length);
/** Starts a one-sided write of at most RG_RDMA_WRITE_MAX bytes; there is room for it. */
enum rg_status rg_rdma_post_write(struct rg_rdma_conn *c, const void *from, uint32_t size, uint32_t key,
                                  uint64_t to, uint32_t to_key);
/** Starts a write of no bytes, which a peer's device acknowledges if it is there. */
void rg_rdma_post_sign_of_life(struct rg_rdma_conn *c);
/** Asks for an event at the next completion, where events come; true: something has completed meanwhile. */
bool rg_rdma_arm(struct rg_rdma_conn *c);
/** Handles what has completed; returns its number. */
int rg_rdma_progress(struct rg_rdma_conn *c);
/** Marks the connection as broken and wakes all. */
void rg_rdma_break(struct rg_rdma_conn *c, enum rg_status status);

/* --- wait.c; all but the first two under the lock --- */

/** While it waits for the lock it is counted in `wanted`. */
void rg_rdma_lock(struct rg_rdma_conn *c);
void rg_rdma_unlock(struct rg_rdma_conn *c);
/** Takes a completion event from the channel; false: there is none. */
bool rg_rdma_take_event(struct rg_rdma_conn *c);
/** Whether this side cannot go on: interrupted or broken; RG_OK else. */
enum rg_status rg_rdma_state(const struct rg_rdma_conn *c);
/**
 * Waits until something may have changed since the last look at the state, the lock given up meanwhile.
 * RG_ERR_TIMEOUT: not by `deadline` (0: one look; UINT64_MAX: for ever); else what rg_rdma_state says.
 */
enum rg_status rg_rdma_wait(struct rg_rdma_conn *c, enum rg_rdma_side side, uint64_t deadline);

/* --- stream.c --- */

enum rg_status rg_rdma_send(struct rg_conn *conn, struct rg_send *message);
enum rg_status rg_rdma_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_rdma_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
/** Sends `size` bytes (at most RG_RDMA_PAYLOAD) as a DATA fragment. Under the lock. */
enum rg_status rg_rdma_send_payload(struct rg_rdma_conn *c, const void *payload, size_t size);
/** Takes a DATA fragment of exactly `size` bytes. Under the lock. */
enum rg_status rg_rdma_take_payload(struct rg_rdma_conn *c, void *payload, size_t size);

/* --- write.c --- */

/** Whether the bulk data of a message is to be placed (true) or to travel as fragments. */
bool rg_rdma_is_written(struct rg_rdma_conn *c, const struct rg_send *message);
struct rg_rdma_route;
/**
 * Writes a message's bulk data where the peer asks for it, or where `route` (NULL: there is none) says. Not
 * under the lock. *fault: zeros went out.
 */
enum rg_status rg_rdma_write(struct rg_rdma_conn *c, const struct rg_send *message,
                             const struct rg_rdma_route *route, bool *fault);
/** Takes placed bulk data. Not under the lock. */
enum rg_status rg_rdma_take_written(struct rg_rdma_conn *c, unsigned char *to, size_t size);

/* --- advertised.c --- */

/** The pieces of the peer's memory that a message's bulk data goes to. */
struct rg_rdma_route {
    unsigned n;
    struct {
        uint16_t slot;
        uint64_t offset;
        uint32_t length;
        struct rg_rdma_advert advert;
    } pieces[RG_RDMA_CHUNKS];
};

/** Operations of the transport; not under the lock. */
enum rg_status rg_rdma_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                 size_t size);
void rg_rdma_withdraw(struct rg_conn *conn, uint64_t tag, void *memory);
enum rg_status rg_rdma_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size);
bool rg_rdma_has_advertised(struct rg_conn *conn, size_t size);
/* under the lock */
/** Finds room for a message among what the peer has advertised, and takes it. False: there is not enough. */
bool rg_rdma_route(struct rg_rdma_conn *c, const struct rg_send *message, struct rg_rdma_route *out);
/** A ADVERTISE that came in. Returns whether it makes sense. */
bool rg_rdma_read_advertisement(struct rg_rdma_conn *c, const unsigned char *payload, uint32_t length);
/** Advertises again what leaves by itself, as far as there is room for it. */
void rg_rdma_readvertise(struct rg_rdma_conn *c);
/** Forgets what is advertised, without a tag, of memory that is about to be given back. */
void rg_rdma_forget_adverts(struct rg_rdma_conn *c, const unsigned char *base, size_t size);
/** Takes bulk data that was placed into advertised memory. Not under the lock. */
enum rg_status rg_rdma_receive_advertised(struct rg_rdma_conn *c, unsigned char *to, size_t size);

/* --- region.c; under the lock --- */

/** Registers memory. `temporary`: it is given back when nothing uses it. RG_ERR_NO_MEMORY, RG_ERR_FAULT. */
enum rg_status rg_rdma_region_add(struct rg_rdma_conn *c, void *base, size_t size, bool temporary,
                                  struct rg_rdma_region **out);
/** Waits until no transfer uses it, and gives it back. */
void rg_rdma_region_remove(struct rg_rdma_conn *c, struct rg_rdma_region *region);
/** The region that holds all of [at, at + size), or NULL. */
struct rg_rdma_region *rg_rdma_region_find(struct rg_rdma_conn *c, const void *at, size_t size);
/** The registration of a region's byte `at`, and how many bytes from there it covers (at most *size). */
struct ibv_mr *rg_rdma_region_part(const struct rg_rdma_region *region, const void *at, size_t *size);
/** A transfer begins to use it; and has ended. */
void rg_rdma_region_use(struct rg_rdma_region *region);
void rg_rdma_region_done(struct rg_rdma_conn *c, struct rg_rdma_region *region);
/**
 * Puts a region into the list, each part of it made by `make`, which returns NULL and sets errno if it
 * cannot.
 */
typedef struct ibv_mr *(*rg_rdma_make_part)(struct rg_rdma_conn *c, const struct rg_rdma_region *region,
                                            size_t offset, size_t size, void *user);
enum rg_status rg_rdma_region_add_parts(struct rg_rdma_conn *c, void *base, size_t size,
                                        rg_rdma_make_part make, void *user, struct rg_rdma_region **out);
/** Operations of the transport; not under the lock. */
enum rg_status rg_rdma_register(struct rg_conn *conn, void *base, size_t size);
void rg_rdma_unregister(struct rg_conn *conn, void *base);

/* --- device.c: operations of the transport; not under the lock --- */

/** RG_DEVICE_ bits; 0 of a connection that does nothing but SEND and RECV. */
unsigned rg_rdma_device_paths(struct rg_conn *conn);
enum rg_status rg_rdma_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                       uint64_t offset);
bool rg_rdma_writes_directly(struct rg_conn *conn, const void *memory, size_t size);

#endif
