/*
 * stats.h - counters of a session. Each is written under the lock of the path it is on (queue.c, receiver.c)
 * and read when the process ends, for `remote-gpu run --stats`; those of several sessions are added up.
 */
#ifndef RG_CLIENT_CORE_STATS_H
#define RG_CLIENT_CORE_STATS_H

#include "transport/state.h"
#include "transport/transport.h"

#include <stdint.h>

struct rg_session;

/** Changes of transport that are told one by one; of later ones the last. */
#define RG_STATS_LINKS 16

struct rg_stats {
    uint64_t calls;                     /* records of the application's calls; the command stream's lock */
    _Atomic uint64_t round_trips;       /* replies waited for */
    uint64_t sent_messages;             /* the send lock */
    _Atomic uint64_t inline_messages;   /* of them: by a thread that waits for nothing, for itself */
    _Atomic uint64_t sender_wakes;      /* times that the sender thread was woken */
    uint64_t sent_bytes;                /* without the transport's framing */
    uint64_t repeated_bytes;            /* not sent, because they repeat what was: proto/delta.h */
    _Atomic uint64_t received_messages; /* the reader role; senders read it for the header's `ack` */
    uint64_t received_bytes;
    /* of copies from other servers to this one: bytes from server to server, of these by RDMA; and through the client */
    _Atomic uint64_t peer_direct, peer_rdma, peer_by_client;
    /* of its streams for other servers': by a message from server to server, and by way of the client */
    _Atomic uint64_t peer_waits_direct, peer_waits_by_client;
    _Atomic uint64_t waited_ns; /* that calls of all threads waited for replies */
    /* losses of the connection that the session has outlived, and the time without one; the reconnector (connect/reconnect.c) */
    _Atomic uint64_t resumed, without_ns;
    uint64_t upgraded_again; /* times that it went back to RDMA; likewise */
    struct rg_stats_link {
        const char *transport; /* its name, which stays */
        uint64_t since_ns;
    } links[RG_STATS_LINKS]; /* after the first, what the session was connected by; stats.c's lock */
    unsigned n_links;
    /* by which bulk data went over TCP, where there are several ways; connect/rails.c, under its lock */
    struct rg_stats_rail {
        char address[48]; /* of the server's; "": not this one */
        unsigned lost, returned;
    } rails[RG_CONN_RAILS];
    struct rg_stats_unused {
        char address[48]; /* of the server's, by which no bulk data goes; "": not this one */
        const char *why;
    } unused[RG_CONN_RAILS];
};

/**
 * Remembers when the first session began; from then on the process's end writes the counters if
 * REMOTE_GPU_STATS asks.
 */
void rg_stats_start(void);
/** The session goes on by another transport, of that name, which stays. Any thread. */
void rg_stats_link(struct rg_session *session, const char *transport, uint64_t since_ns);

#endif
