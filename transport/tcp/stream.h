/*
 * stream.h - a connected stream socket, TCP or unix, as the bytes of a connection: waiting, interrupting, noticing
 * that the peer is gone, and care for a descriptor in a process that treats descriptors as its own. Transports tcp
 * and tls stand on it.
 *
 * The socket is in blocking mode, so that waiting for ever is one system call; it may be shared with a process that
 * set O_NONBLOCK, so EAGAIN is met with poll everywhere. A wait ends now and then for a look at the peer's health
 * (socket.h). An interrupt sets a flag and shuts the socket down, which wakes whoever is inside.
 *
 * Who connects may be a guest in a process that closes all descriptors, or puts files of its own at numbers of its
 * choice. The socket is kept at a high number, out of the way of both, and before each use it is made sure that the
 * number still means it; nothing is ever sent to or taken from what the process put there.
 *
 * Threads: one sends and one receives at a time; interrupt, reset and is_ours are anyone's.
 */
#ifndef RG_TRANSPORT_TCP_STREAM_H
#define RG_TRANSPORT_TCP_STREAM_H

#include "transport/operations.h"

#include <stdatomic.h>
#include <sys/types.h>

struct rg_tcp_stream {
    int fd;
    bool guest; /* the process may close or replace the descriptor: the two fields say what it must be */
    dev_t device;
    ino_t inode;
    atomic_bool taken; /* it was closed or replaced */
    bool is_tcp;
    int threshold; /* so many bytes wake the receiver: 1 but within bulk data */
    atomic_bool interrupted;
    atomic_int health_ms; /* until the next look at the peer's health; how often is found out by looking */
    struct rg_adaptive_wait wait; /* the receiver's */
    /* for signal handlers on its thread: it waits for a message and has none of it; pieces received */
    volatile bool rests;
    volatile uint32_t pieces;
    const char *peer; /* its name, for messages */
};

/** Tunes the socket and takes it over. `peer` lives as long as the stream. */
void rg_tcp_stream_init(struct rg_tcp_stream *s, int fd, const struct rg_transport_options *options,
                        const char *peer);
/** Remembers which socket it is that the descriptor means. */
void rg_tcp_stream_become_guest(struct rg_tcp_stream *s);
/** Whether the descriptor is still the connection's; the first time that it is not is told. */
bool rg_tcp_stream_is_ours(struct rg_tcp_stream *s);
/** RG_OK if `fd` is a connected stream socket; RG_ERR_CLOSED if it was; RG_ERR_INVALID else. */
RG_MUST_CHECK enum rg_status rg_tcp_stream_check(int fd);

static inline bool rg_tcp_stream_is_interrupted(struct rg_tcp_stream *s)
{
    return atomic_load_explicit(&s->interrupted, memory_order_acquire);
}

/** What a failed call means; `error` (0: none) is told. */
enum rg_status rg_tcp_stream_lost(struct rg_tcp_stream *s, int error, const char *doing);
/** Waits until the socket takes more. */
RG_MUST_CHECK enum rg_status rg_tcp_stream_wait_writable(struct rg_tcp_stream *s);
/** Sends all of memory of our own. `more` follows at once. */
RG_MUST_CHECK enum rg_status rg_tcp_stream_send(struct rg_tcp_stream *s, const void *data, size_t size,
                                                bool more);
/** When a wait of timeout_ms (-1: none) from now ends: for rg_tcp_stream_receive. */
uint64_t rg_tcp_stream_deadline(int timeout_ms);
/**
 * Receives 1 to `size` bytes by `deadline` (0: what is there; UINT64_MAX: whenever it comes). `all`: `size` at once
 * is what is wanted. `message`: they begin a message, which may be long in coming. RG_ERR_CLOSED with *got 0 is the
 * end of the stream.
 */
RG_MUST_CHECK enum rg_status rg_tcp_stream_receive(struct rg_tcp_stream *s, void *to, size_t size, bool all,
                                                   bool message, uint64_t deadline, size_t *got);
/**
 * Receives 1 to `size` bytes of bulk data, of which `size` are outstanding; large amounts in large pieces. The caller
 * goes on until it has all, or until this fails.
 */
RG_MUST_CHECK enum rg_status rg_tcp_stream_receive_bulk(struct rg_tcp_stream *s, void *to, size_t size,
                                                        size_t *got);

/** Takes a message's header apart; what is not one, or is beyond the limits, is told, and what rg_frame_decode returns. */
RG_MUST_CHECK enum rg_status rg_tcp_stream_frame(const struct rg_tcp_stream *s, const void *header,
                                                 size_t *msg_size, size_t *bulk_size);

/** As rg_conn_interrupt, rg_conn_reset. */
void rg_tcp_stream_interrupt(struct rg_tcp_stream *s);
void rg_tcp_stream_reset(struct rg_tcp_stream *s);
/** Nothing more will be sent: the peer must not wait for the rest of a message. */
void rg_tcp_stream_end_sending(struct rg_tcp_stream *s);
/**
 * Closes the descriptor, if it is still ours. `with_care`: nobody else has the socket; what was sent arrives though
 * there is something left to be read.
 */
void rg_tcp_stream_close(struct rg_tcp_stream *s, bool with_care);
/** As rg_conn_abandon: closes the descriptor and leaves the connection as it is. */
void rg_tcp_stream_abandon(struct rg_tcp_stream *s);

#endif
