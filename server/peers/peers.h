/*
 * peers.h - connections to the workers of other sessions of the same client: on other servers those of its own process (proto/peer.h),
 * and on any server those of others that work together (ranks of NCCL's).
 *
 * The client invites (rgPeerInvite; of a session that is another process's, RG_PURPOSE_INVITE): from then on, one connection that
 * shows the secret is taken, whichever server opened it.
 * It came to the frontend or was opened by it, and is handed over like the session's own (handshake/channels.c). A
 * reader thread for each sees to it that it goes on over RDMA where it can (upgrade.h), and then takes what comes; anybody may send, one
 * at a time.
 *
 * Connections are numbered: those of the client's own process as it counts its sessions, those of others from RG_SERVERS_MAX on,
 * and these serve whoever has asked for them (rg_peers_serve).
 *
 * Failures: a connection that breaks, or a peer that breaks the protocol, is the end of the connection and of the copies
 * under way on it, which go on with an error; the client is told (RG_NOTICE_PEER_LOST) and copies through its own memory from
 * then on. The session goes on.
 *
 * Who waits for a message of another process may receive it without its reader (rg_peer_read), which saves the time until that
 * thread is awake and has woken the one that waits. While somebody does so again and again, the reader only looks now and then
 * whether it is needed.
 *
 * Locks: that of struct rg_deferred guards states, `send_lock` the right to send, `receive_lock` that to receive; the first is not held
 * while anybody sends, and is taken behind the last.
 */
#ifndef RG_SERVER_PEERS_PEERS_H
#define RG_SERVER_PEERS_PEERS_H

#include "common/base/hash_table.h"
#include "common/sync/chunk_size.h"
#include "common/sync/priority_lock.h"
#include "proto/control/control.h"
#include "proto/peer.h"
#include "server/core/worker.h"
#include "server/modules.h"

struct rg_tls_keys;
struct rg_deferred_item;

enum rg_peer_state {
    RG_PEER_NONE,
    RG_PEER_INVITED,
    RG_PEER_OPENING,
    RG_PEER_OPEN,
    RG_PEER_LOST,
    RG_PEER_OVER, /* lost, and its reader has ended: of another process */
};

struct rg_peer {
    struct rg_worker *worker;
    unsigned
        number; /* of the other session, as the client counts; from RG_SERVERS_MAX on: of another process */
    enum rg_peer_state state;
    uint8_t secret[RG_PEER_SECRET];       /* INVITED */
    uint64_t invited_ns;                  /* INVITED, of another process */
    struct rg_conn *conn;                 /* OPEN, LOST; OPENING: once it has come */
    struct rg_conn *control_conn;         /* that it began on, where it has moved to RDMA; else NULL */
    bool connects, upgrades;              /* this side has opened it; it may move */
    uint64_t target_session;              /* connects: whom its server has connected it to, */
    char target_address[RG_CONTROL_TEXT]; /* and where; "": on the same server */
    struct rg_priority_lock send_lock;    /* who sends data is in no hurry */
    struct rg_chunk_size chunk;           /* of data of copies */
    unsigned n_early;                     /* transfers that it has spoken of before the client has */
    pthread_t reader;
    bool reader_runs;
    /* of another process: who has the lock receives */
    pthread_mutex_t receive_lock;
    struct rg_adaptive_wait wait; /* of who reads in the reader's place; with the lock */
    _Atomic uint64_t read_ns;     /* when somebody wanted to do that lately; 0: the reader is to */
    void *user;                   /* of whom it serves; OPEN */
};

/** Whom connections of other processes serve. The reader of a connection calls it. */
struct rg_peer_service {
    /** What `user` is to be; NULL: the connection is of no use. */
    void *(*opened)(struct rg_peer *peer);
    /** A message, whose bulk data is to be taken from peer->conn. False: it breaks the protocol, or its bulk data did not come. */
    bool (*message)(struct rg_peer *peer, const void *data, size_t size, size_t bulk_size);
    /** The last call. */
    void (*lost)(struct rg_peer *peer);
};

/** Before the first invitation. */
void rg_peers_serve(const struct rg_peer_service *service);
/** Whether anybody has called that. */
bool rg_peers_are_served(void);
/** A secret of one use, and the number that the connection will have. False: there are too many, or no random numbers. */
bool rg_peers_invite(struct rg_worker *worker, unsigned *number, uint8_t secret[RG_PEER_SECRET]);
/** The same for the client of another session, which has come by this connection; `fd` is used up. The thread that takes connections. */
void rg_peers_answer_invite(struct rg_worker *worker, int fd, const struct rg_tls_keys *keys);

/** Connections may go on over RDMA, as the session's own: the operator allows it. Before any comes. */
void rg_peers_allow_rdma(struct rg_worker *worker);
/** Takes a connection whose hello has said that it is a peer's; `fd` is used up. The thread that takes connections. */
void rg_peers_take(struct rg_worker *worker, const struct rg_client_hello *hello, int fd,
                   const struct rg_tls_keys *keys);
/** The same with a connection that has been made; `conn` is used up. */
void rg_peers_connect(struct rg_worker *worker, const struct rg_client_hello *hello, struct rg_conn *conn);

/** Sends `size` bytes, with bulk data or none, as a message. RG_ERR_*: the connection is lost. Any thread. */
enum rg_status rg_peer_send_bytes(struct rg_peer *peer, const void *message, size_t size, const void *bulk,
                                  size_t bulk_size);
/** Receives a message from another process in the reader's place, if one comes within a millisecond. False: none did, or the reader was at it. */
bool rg_peer_read(struct rg_peer *peer);
/** Sends a message, with bulk data or none. RG_ERR_*: the connection is lost, and all who need it are told. Any thread. */
enum rg_status rg_peer_send(struct rg_peer *peer, const struct rg_peer_message *message, const void *bulk,
                            size_t size);
/** The same of a copy's data, message->size bytes, in pieces: what else is to be sent, as questions for the data of other copies, goes between. */
enum rg_status rg_peer_send_data(struct rg_peer *peer, const struct rg_peer_message *message,
                                 const void *data);
/** The peer of that number, if its connection is there; else NULL. The lock of struct rg_deferred is held. */
struct rg_peer *rg_peer_find(struct rg_worker *worker, unsigned number);

/** Says what became of bulk data, if there was any that the transport tells of. OPEN, or it was. */
void rg_peer_tell_statistics(const struct rg_peer *peer);
/** Starts the thread that receives, by `number`; its states are set. The lock of struct rg_deferred is held. */
RG_MUST_CHECK bool rg_peer_start_reader(struct rg_peer *peer);

/* --- copies and waits (transfers.c), for the reader of a connection --- */

/** False: it breaks the protocol, or its bulk data did not come. */
bool rg_peer_transfer_message(struct rg_peer *peer, const struct rg_peer_message *message, size_t bulk_size);
/** The connection is lost: all that wait for it go on. The lock is held. */
void rg_peer_transfers_fail(struct rg_peer *peer);
/** At the end of the worker. */
void rg_peer_transfers_end(struct rg_worker *worker);

/** Of a worker. The lock guards all of it, but for `rdma` and the connections' own. */
struct rg_peers {
    pthread_cond_t changed;
    struct rg_hash_table early; /* transfers.h */
    struct rg_peer peers[RG_SERVERS_MAX];
    struct rg_peer *others[RG_PEERS_OTHERS_MAX]; /* of other processes */
    bool rdma;                                   /* rg_peers_allow_rdma; set before any connection comes */
};

static inline struct rg_peers *rg_peers_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_PEERS];
}

#endif
