/*
 * connection.h - messages over one stream socket, TCP or unix; between connection.c, send.c and receive.c.
 *
 * The socket itself, waiting and interrupting are stream.h's.
 *
 * Failures are for good: a receiver (sender) that has failed returns the same from then on. The two sides fail on their own, so that the
 * peer's last words can be read after a send found the connection broken. Memory that the kernel cannot access (EFAULT) is not a failure
 * of the connection: zeros are sent in its place, or the bytes are received to nowhere.
 *
 * Threads: fields are the receiver's or the sender's as marked.
 */
#ifndef RG_TRANSPORT_TCP_CONNECTION_H
#define RG_TRANSPORT_TCP_CONNECTION_H

#include "transport/frame.h"
#include "transport/tcp/stream.h"
#include "transport/tcp/zerocopy.h"

#include <stdatomic.h>

enum {
    RG_TCP_READ_AHEAD = 8192,
    RG_TCP_BUFFER_SIZE = sizeof(struct rg_frame) + RG_MESSAGE_MAX + RG_TCP_READ_AHEAD,
};

struct rg_tcp_conn {
    struct rg_conn head;
    struct rg_tcp_stream stream;

    enum rg_status send_failed; /* sender, with the next */
    struct rg_zerocopy zerocopy;
    _Atomic uint64_t bulk_sent; /* bytes, all of them from where they lay */
    _Atomic uint64_t bulk_received,
        bulk_copied; /* straight into their place; from what had been read ahead */

    enum rg_status recv_failed; /* receiver, with all that follows */
    atomic_bool read_ahead;     /* set by any thread: a delaying filter receives already */
    unsigned char *buffer;      /* [start, end) is filled */
    size_t start, end;
    size_t held; /* bytes at start that belong to the message last returned */
};

/* Operations of the transport (transport/operations.h): send.c, receive.c. */
enum rg_status rg_tcp_conn_send(struct rg_conn *conn, struct rg_send *message);
enum rg_status rg_tcp_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_tcp_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);
bool rg_tcp_conn_rests(const struct rg_conn *conn);

#endif
