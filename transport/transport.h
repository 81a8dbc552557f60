/*
 * transport.h - connections that carry whole messages, in order, both ways, with bulk data attached.
 *
 * A message is up to RG_MESSAGE_MAX bytes that the receiver gets in a buffer of the transport's, plus 0 to
 * RG_BULK_MAX bytes of bulk data that the receiver takes straight into memory of its own choosing once it has
 * read the message. Nothing is ever delivered in part: a message arrives whole or the connection has failed.
 *
 * Threads: one sender and one receiver may be inside a connection at the same time; each side serialises its
 * own senders (and its own receivers) by a lock of its own. rg_conn_interrupt may be called from any thread
 * at any time before rg_conn_destroy.
 *
 * A connection is made by transport/connect/connect.h. Memory that it is to know of is registered and advertised by memory.h; how it
 * is doing is asked by state.h. What it is made of is a table of operations (operations.h).
 */
#ifndef RG_TRANSPORT_H
#define RG_TRANSPORT_H

#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/sync/adaptive_wait.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rg_conn;
struct rg_listener;
struct rg_tls_keys; /* tls/tls.h */

/** A received message. `data` stays valid until the next rg_conn_recv on the connection. */
struct rg_message {
    const void *data; /* aligned to 16 bytes */
    size_t size;
    size_t bulk_size; /* bytes that must be taken by rg_conn_recv_bulk before the next rg_conn_recv */
};

enum { RG_TRANSPORT_TOKEN = 16 };

/** Who a client is and whom it trusts, on a connection by TLS. Files are PEM; a NULL member: none. */
struct rg_tls_client {
    const char *ca_file;                     /* the authorities whose servers are believed */
    const char *certificate_file, *key_file; /* both or neither */
    const uint8_t *ca_hash;  /* instead of ca_file: SHA-256 of the authority's SubjectPublicKeyInfo */
    const char *server_name; /* that the server's certificate must have; NULL: the address's host */
};

/** How a connection is made (connect/connect.h). */
struct rg_transport_options {
    /* "": none; NULL: when connecting what REMOTE_GPU_FILTER says, else none, so that a filter which one
     * environment gives to both sides is not applied twice */
    const char *filters;
    int connect_timeout_ms; /* 0: 10 s */
    enum rg_wait_mode wait; /* of receivers, for the next message */
    bool bulk; /* it carries bulk data: little of it may wait in the kernel, none be read ahead */
    /*
     * RG_TRANSPORT_TOKEN bytes, or NULL: shown by who connects when the connection is asked for. A listener
     * that has one refuses, before it spends anything on them, those who do not show it. Transport rdma;
     * others pass over it.
     */
    const uint8_t *token;
    const struct rg_tls_client *tls;    /* connecting by tcp: by TLS; NULL: plain */
    const struct rg_tls_keys *tls_keys; /* rg_transport_adopt_fd: its handshake was done; NULL: plain */
};

/* What `why` says if the machine was reached and nobody listens there. */
#define RG_WHY_REFUSED   "connection refused"
#define RG_WHY_NO_SOCKET "no such socket"

enum {
    RG_CAP_ZERO_COPY_SEND = 1u << 0, /* bulk leaves from the caller's memory without a copy in user space */
    RG_CAP_ZERO_COPY_RECV = 1u << 1,
    /* rg_conn_fd returns a descriptor that polls readable when a message is due; after rg_conn_set_read_ahead
     * a message may already be here: poll only when rg_conn_recv with timeout 0 has returned RG_ERR_TIMEOUT
     */
    RG_CAP_FD = 1u << 2,
    /*
     * large bulk data is asked for when its message has been read: each such message takes a round trip by
     * itself
     */
    RG_CAP_ASKS = 1u << 3,
    /* rg_conn_advertise saves that round trip */
    RG_CAP_ADVERTISES = 1u << 4,
    /* a send that succeeds has arrived: the peer can still receive it when the connection has broken since */
    RG_CAP_DELIVERS = 1u << 5,
    /* data may have to be sent again: struct rg_lease saves a copy of it */
    RG_CAP_RETRANSMITS = 1u << 6,
};

/**
 * Says that the memory of bulk data stays as it is when the call that sent it has returned: until
 * rg_lease_end. A connection that may have to send the data again (resumable/resumable.h) then need not copy
 * it. Starts zeroed; serves one connection at a time and, like the memory, one thread at a time.
 */
struct rg_lease {
    struct rg_conn *conn; /* that may still need the memory; NULL: none */
    uint64_t last;        /* the connection's: the last of the messages */
};
/**
 * For memory that stays as it is until the peer's user has told, in a message that is received here later,
 * that it has taken the data; or until it is unregistered (rg_conn_unregister). Nobody ends this one.
 */
extern struct rg_lease rg_lease_until_reply;

/** One message to send: its parts, its bulk data and where that may go. Starts zeroed. */
struct rg_send {
    const struct iovec *msg;
    int n_msg;
    const struct iovec *bulk;
    int n_bulk;
    uint64_t tag,
        base; /* the bulk data goes to what the peer has advertised for `tag`, from byte `base` on; 0: anywhere */
    struct rg_lease *lease; /* of the bulk data's memory; NULL: it may change when it has been sent */
    bool detachable; /* the caller can send the bulk data by a call of its own, rg_conn_send_detached */
    bool detached;   /* set by rg_conn_send: it must do so */
    /* the connection's */
    size_t msg_size, bulk_size; /* sums of the parts */
    uint64_t number, route;     /* multipath/: which message, and which channel carries which piece of it */
    struct rg_retransmit_entry *entry; /* resumable/ */
};

/**
 * Sends one message. Returns when the caller may reuse all of the memory; that does not mean that the peer
 * has it. RG_ERR_FAULT: a bulk part could not be read; zeros were sent in its place and the connection is
 * still good. Any other failure is the connection's end.
 *
 * Where bulk data travels by itself (multipath/) and send->detachable allows it, only the message has been
 * sent: send->detached is set, the message's parts may be reused, and rg_conn_send_detached must follow. The
 * peer receives the message at once and waits when it comes to take the bulk data.
 */
RG_MUST_CHECK enum rg_status rg_conn_send(struct rg_conn *conn, struct rg_send *send);
/**
 * Sends the bulk data of a message that rg_conn_send has detached, and returns as that does. Needs no
 * serialisation by the caller: any thread, also while others send messages.
 */
RG_MUST_CHECK enum rg_status rg_conn_send_detached(struct rg_conn *conn, struct rg_send *send);
/**
 * The memory is the caller's again when this returns. What the peer does not have yet by then is copied; or
 * waited for, if that takes no longer. Before the connection is destroyed.
 */
void rg_lease_end(struct rg_lease *lease);
/** Whether rg_lease_end would have nothing to do. Never waits. */
bool rg_lease_ended(const struct rg_lease *lease);
/**
 * Waits for the next message, up to timeout_ms (-1: for ever; 0: only if one is there).
 * RG_ERR_TIMEOUT leaves the connection good. RG_ERR_CLOSED: orderly end by the peer between two messages, or
 * an interrupt. RG_ERR_LOST: broken, also in the middle of a message. RG_ERR_PROTOCOL / RG_ERR_LIMIT: bad
 * framing.
 */
RG_MUST_CHECK enum rg_status rg_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
/**
 * Whether who is inside of rg_conn_recv sleeps there before a message's first byte, so that a signal handler on the same thread may
 * call rg_conn_recv as well. The call below then returns RG_ERR_TIMEOUT, whatever its timeout: what it waited for may have been
 * received. Only for such handlers: for others it says nothing.
 */
bool rg_conn_rests(const struct rg_conn *conn);
/**
 * Takes the next `size` bytes of the current message's bulk data into `buffer`; NULL discards them. May be
 * called several times until all is taken. RG_ERR_FAULT: the buffer cannot be written; the bytes are
 * discarded and the connection is still good.
 */
RG_MUST_CHECK enum rg_status rg_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
/**
 * What another process needs besides the descriptor to go on with a connection by TLS (options->tls_keys of
 * rg_transport_adopt_fd). The connection must not be used afterwards, only destroyed, which says nothing to the
 * peer. RG_ERR_PROTOCOL: the peer has sent what belongs behind the last message together with it;
 * RG_ERR_UNSUPPORTED: not by TLS, or not handed on like this. Nobody is inside the connection.
 */
RG_MUST_CHECK enum rg_status rg_conn_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys);
/**
 * The value that binds a proof to this connection and that the server has as well (struct rg_tls_peer). Of who
 * connected; RG_ERR_UNSUPPORTED else.
 */
RG_MUST_CHECK enum rg_status rg_conn_tls_exporter(const struct rg_conn *conn, uint8_t out[32]);
/**
 * Lets the connection read beyond the message it returns, which saves a system call a message. For good, once
 * the descriptor will not be handed on any more (see rg_transport_adopt_fd); by the receiver.
 */
void rg_conn_set_read_ahead(struct rg_conn *conn);
/**
 * Makes every present and later send and recv return RG_ERR_CLOSED; the peer sees the connection end, in
 * order if no message was under way. Any thread, any number of times.
 */
void rg_conn_interrupt(struct rg_conn *conn);
/**
 * After an interrupt, of a connection that nobody is inside of: the peer learns of the end at once. Without
 * this a peer that is inside a send may not: over TCP the end travels behind data that it does not read, and
 * a window that was shut is not opened again by a reader that has left. What is under way is lost. Of a
 * connection that delivers (RG_CAP_DELIVERS) at any time, by any thread: its device writes into nobody's
 * memory any more, sends fail, and what has arrived can still be received.
 */
void rg_conn_reset(struct rg_conn *conn);
/**
 * Whether a small message can be sent without waiting for the peer to receive something first, and others
 * after it. Where poll tells that of the descriptor, this is always true.
 */
bool rg_conn_has_credit(struct rg_conn *conn);
/**
 * Names the connection that the session began on, whose end is this one's too: where a device does not tell
 * by itself that the peer is gone, who waits by `conn` looks at it now and then, and gets RG_ERR_LOST once it
 * has ended. It stays open as long as `conn` is used; NULL: no more. Nobody waits by `conn` meanwhile.
 */
void rg_conn_set_control(struct rg_conn *conn, const struct rg_conn *control_conn);
int rg_conn_fd(const struct rg_conn *conn); /* -1 without RG_CAP_FD */
unsigned rg_conn_caps(const struct rg_conn *conn);
/** How many rails (multirail/) it is meant to have; 0: it is made of no such connection. Any thread. */
unsigned rg_conn_rails(const struct rg_conn *conn);
/**
 * Bytes of bulk data that a message should carry, where `piece` (common/sync/chunk_size.h) is what the link
 * takes in good time.
 */
size_t rg_conn_piece(const struct rg_conn *conn, size_t piece);
/** "tcp", "unix", "mem", or with filters "delay+tcp". Owned by the connection. */
const char *rg_conn_transport(const struct rg_conn *conn);
/** The peer's address for messages to people, e.g. "10.0.0.7:7600". Owned by the connection. */
const char *rg_conn_peer(const struct rg_conn *conn);
/**
 * Closes and frees; NULL is fine. No other call may be in progress. What was sent is still delivered. A
 * connection that does not read ahead may have been handed on: only this process's descriptor of it is
 * closed.
 */
void rg_conn_destroy(struct rg_conn *conn);
/**
 * After fork, in the child: drops this process's copies of descriptors without a word to the peer and without
 * touching memory that other threads may have had in use. The connection must not be used or destroyed
 * afterwards.
 */
void rg_conn_abandon(struct rg_conn *conn);

#endif
