/*
 * state.h - what can be said of a connection while it is used: what has become of bulk data, how far its two ends are, how it is
 * protected. Implemented by transport.c and the transports.
 *
 * Any thread that may use the connection, beside others.
 */
#ifndef RG_TRANSPORT_STATE_H
#define RG_TRANSPORT_STATE_H

#include "transport/transport.h"

enum { RG_CONN_RAILS = 8 }; /* rails over TCP that are told apart */

/**
 * What happened to bulk data on this side, where the transport knows (rdma, tcp): all 0 elsewhere. With tcp,
 * direct means that the kernel took it from, or put it into, its place.
 */
struct rg_conn_statistics {
    uint64_t bulk_copied_sent, bulk_copied_received; /* bytes that this process copied */
    uint64_t bulk_direct_sent,
        bulk_direct_received; /* bytes that the device took from, or put into, their place */
    uint64_t
        bulk_kept; /* bytes that were copied to be there if they must be sent again (resumable/resumable.h) */
    unsigned channels;                       /* connections for bulk data besides the first (multipath/) */
    bool rails, striped;                     /* they are rails; and carry what this side sends */
    uint64_t lost_rails, returned_rails;     /* rails: how often one was lost, and came back */
    uint64_t compressed_from, compressed_to; /* bytes sent compressed, and how many that made */
    /* rails over TCP (multipath/): bytes of bulk data by each, of which the first is the one that the session began on */
    uint64_t rail_sent[RG_CONN_RAILS], rail_received[RG_CONN_RAILS];
};

/** Counted from the beginning. Any thread that may use the connection, beside others. */
void rg_conn_get_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out);

/** How far a connection is, to be compared with later: whether its peer takes and sends anything (liveness.h). */
struct rg_conn_progress {
    bool lost;               /* there is no connection now, and another is waited for (resumable/) */
    bool sending, receiving; /* some thread is inside */
    uint32_t sent, received; /* how often that has ended; counts wrap */
    bool has_backlog;        /* what follows is known: */
    size_t unread,
        unsent; /* bytes that have come and nobody has received; that the peer's machine has not got */
};
/** Any thread that may use the connection, beside others. */
void rg_conn_progress(const struct rg_conn *conn, struct rg_conn_progress *out);
/** The same of a further connection that carries bulk data for this one, by its place from 0. False: there is no such. */
bool rg_conn_channel_progress(const struct rg_conn *conn, unsigned place, struct rg_conn_progress *out);
/** Does without it: what it carries goes by others. False: there is no such, or no other. Threads as rg_conn_progress. */
bool rg_conn_give_up_channel(struct rg_conn *conn, unsigned place);

/** How a connection is protected. */
struct rg_conn_security {
    bool encrypted;  /* by TLS; of several connections: all of them */
    char cipher[32]; /* "TLS_AES_256_GCM_SHA384" */
    char peer[256];  /* the name in the certificate that the peer has proved; "": it is not known here */
};
/** Of a session's connection: of all that it is made of. Threads as rg_conn_progress. */
void rg_conn_security(const struct rg_conn *conn, struct rg_conn_security *out);

#endif
