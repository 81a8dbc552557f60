/*
 * connection.c - messages over one stream socket, TCP or unix.
 *
 * Sending is one sendmsg of frame header, message and bulk data, straight from the caller's memory; what the
 * socket does not take at once is sent on from where it stopped. Receiving goes through one buffer: header
 * and message are read into it, in exact mode no byte more than they have, after set_read_ahead some
 * kilobytes more, so that a small message costs one system call. Bulk data is received straight into the
 * caller's memory, except for what had been read ahead of it (at most READ_AHEAD bytes).
 *
 * The socket itself, waiting and interrupting are stream.h's.
 *
 * Failures are for good: a receiver (sender) that has failed returns the same from then on. The two sides
 * fail on their own, so that the peer's last words can be read after a send found the connection broken.
 * Memory that the kernel cannot access (EFAULT) is not a failure of the connection: zeros are sent in its
 * place, or the bytes are received to nowhere.
 *
 * Threads: fields are the receiver's or the sender's as marked.
 */
#include "transport/frame.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/stream.h"
#include "transport/tcp/zerocopy.h"

#include "common/base/descriptor.h"
#include "common/base/safe_copy.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_AHEAD = 8192,
    BUFFER_SIZE = sizeof(struct rg_frame) + RG_MESSAGE_MAX + READ_AHEAD,
    SCRATCH_SIZE = 4096, /* for bulk data that no one wants */
    WINDOW_PARTS = 64,   /* parts given to one sendmsg */
};

struct tcp_conn {
    struct rg_conn head;
    struct rg_tcp_stream stream;

    enum rg_status send_failed; /* sender, with the next */
    struct rg_zerocopy zerocopy;
    _Atomic uint64_t bulk_sent; /* bytes, all of them from where they lay */
    _Atomic uint64_t bulk_received,
        bulk_copied; /* straight into their place; from what had been read ahead */

    enum rg_status recv_failed; /* receiver, with all that follows */
    bool read_ahead;
    unsigned char *buffer; /* [start, end) is filled */
    size_t start, end;
    size_t held; /* bytes at start that belong to the message last returned */
};

/* --- sending --- */

/* Where a message stands on its way out: header, message parts, bulk parts, counted in one sequence. */
struct cursor {
    const struct rg_send *message;
    struct rg_frame frame;
    int n_parts;
    int part;      /* 0: the header */
    size_t offset; /* within it */
    bool one_part; /* after EFAULT: one part a call, to find the one that is at fault */
    bool zeros;    /* the rest of this part is replaced */
};

static char zero_bytes[16384];

static bool in_bulk(const struct cursor *cur)
{
    return cur->part > cur->message->n_msg;
}

static struct iovec part_at(const struct cursor *cur, int part)
{
    const struct rg_send *m = cur->message;
    if (part == 0)
        return (struct iovec){(void *)(uintptr_t)&cur->frame, sizeof cur->frame};
    return part <= m->n_msg ? m->msg[part - 1] : m->bulk[part - 1 - m->n_msg];
}

/* Moves on by `size` bytes, and over parts of no size. */
static void advance(struct cursor *cur, size_t size)
{
    while (cur->part < cur->n_parts) {
        size_t left = part_at(cur, cur->part).iov_len - cur->offset;
        if (size < left) {
            cur->offset += size;
            return;
        }
        size -= left;
        cur->part++;
        cur->offset = 0;
        cur->zeros = false;
    }
}

/* The parts for the next call; returns their number. */
static int fill_window(const struct cursor *cur, struct iovec window[WINDOW_PARTS])
{
    struct iovec first = part_at(cur, cur->part);
    first.iov_base = (char *)first.iov_base + cur->offset;
    first.iov_len -= cur->offset;
    if (cur->zeros) {
        first.iov_base = zero_bytes;
        if (first.iov_len > sizeof zero_bytes)
            first.iov_len = sizeof zero_bytes;
    }
    window[0] = first;
    int n = 1;
    if (!cur->one_part)
        while (n < WINDOW_PARTS && cur->part + n < cur->n_parts) {
            window[n] = part_at(cur, cur->part + n);
            n++;
        }
    return n;
}

/* Whether what is still to be sent of the message is bulk data, and enough of it. */
static bool worth_zerocopy(const struct cursor *cur)
{
    return cur->message->bulk_size >= RG_ZEROCOPY_LEAST && !cur->zeros;
}

/* Waits until the kernel needs the memory no more. */
static enum rg_status wait_for_kernel(struct tcp_conn *c)
{
    enum { LOOK_MS = 100 };
    while (!rg_zerocopy_done(&c->zerocopy, c->stream.fd, LOOK_MS)) {
        if (rg_tcp_stream_is_interrupted(&c->stream))
            return RG_ERR_CLOSED;
        if (!rg_tcp_stream_is_ours(&c->stream) || !rg_tcp_peer_alive(c->stream.fd))
            return rg_tcp_stream_lost(&c->stream, ETIMEDOUT, "send");
    }
    return RG_OK;
}

static enum rg_status send_all(struct tcp_conn *c, struct cursor *cur, bool *fault)
{
    while (cur->part < cur->n_parts) {
        struct iovec window[WINDOW_PARTS];
        int n = fill_window(cur, window);
        struct msghdr mh = {.msg_iov = window, .msg_iovlen = (size_t)n};
        bool more = cur->zeros || cur->part + n < cur->n_parts;
        if (!rg_tcp_stream_is_ours(&c->stream))
            return RG_ERR_LOST;
        const int without_copy = c->zerocopy.on && worth_zerocopy(cur) ? MSG_ZEROCOPY : 0;
        ssize_t sent = sendmsg(c->stream.fd, &mh, MSG_NOSIGNAL | (more ? MSG_MORE : 0) | without_copy);
        if (sent >= 0) {
            c->zerocopy.sent += without_copy != 0;
            advance(cur, (size_t)sent);
            continue;
        }
        if (errno == ENOBUFS && without_copy) { /* more memory would be locked than may be */
            c->zerocopy.on = false;
            continue;
        }
        enum rg_status status = RG_OK;
        switch (errno) {
        case EINTR:
            break;
        case EAGAIN:
            status = rg_tcp_stream_wait_writable(&c->stream);
            break;
        case EFAULT:
            if (n > 1) {
                cur->one_part = true;
            } else if (in_bulk(cur) && !cur->zeros) {
                cur->zeros = *fault = true;
            } else {
                rg_error("a message to %s is not in readable memory", c->head.peer);
                status = RG_ERR_LOST;
            }
            break;
        default:
            status = rg_tcp_stream_lost(&c->stream, errno, "send");
        }
        if (status != RG_OK)
            return status;
    }
    return RG_OK;
}

static enum rg_status tcp_send(struct rg_conn *conn, struct rg_send *message)
{
    struct tcp_conn *c = (struct tcp_conn *)conn;
    if (rg_tcp_stream_is_interrupted(&c->stream))
        return RG_ERR_CLOSED;
    if (c->send_failed != RG_OK)
        return c->send_failed;
    struct cursor cur = {.message = message,
                         .frame = rg_frame_encode(message->msg_size, message->bulk_size),
                         .n_parts = 1 + message->n_msg + message->n_bulk};
    bool fault = false;
    enum rg_status status = send_all(c, &cur, &fault);
    if (status == RG_OK && c->zerocopy.sent != c->zerocopy.done)
        status = wait_for_kernel(c);
    if (status != RG_OK) {
        c->send_failed = status;
        rg_tcp_stream_end_sending(&c->stream);
        return status;
    }
    atomic_fetch_add_explicit(&c->bulk_sent, message->bulk_size, memory_order_relaxed);
    return fault ? RG_ERR_FAULT : RG_OK;
}

/* --- receiving --- */

/* Moves what is unread to the front of the buffer: to make room, or to align a message. */
static void compact(struct tcp_conn *c)
{
    memmove(c->buffer, c->buffer + c->start, c->end - c->start);
    c->end -= c->start;
    c->start = 0;
}

/* Sees to it that `need` bytes from start are in the buffer. */
static enum rg_status fill(struct tcp_conn *c, size_t need, uint64_t deadline)
{
    if (c->start + need > BUFFER_SIZE || c->start % 16 != 0)
        compact(c);
    while (c->end - c->start < need) {
        size_t missing = need - (c->end - c->start), want = missing;
        if (c->read_ahead && want < READ_AHEAD)
            want = READ_AHEAD;
        if (want > BUFFER_SIZE - c->end)
            want = BUFFER_SIZE - c->end;
        size_t got;
        enum rg_status status = rg_tcp_stream_receive(&c->stream, c->buffer + c->end, want, want == missing,
                                                      c->end == c->start, deadline, &got);
        if (status == RG_ERR_CLOSED && c->end > c->start)
            return rg_tcp_stream_lost(&c->stream, 0, NULL); /* in the middle of a message */
        if (status != RG_OK)
            return status;
        c->end += got;
    }
    return RG_OK;
}

static enum rg_status tcp_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct tcp_conn *c = (struct tcp_conn *)conn;
    const size_t header = sizeof(struct rg_frame);
    const uint64_t deadline = rg_tcp_stream_deadline(timeout_ms);
    if (rg_tcp_stream_is_interrupted(&c->stream))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    c->start += c->held;
    c->held = 0;
    if (c->start == c->end)
        c->start = c->end = 0;
    size_t msg_size = 0, bulk_size = 0;
    enum rg_status status = fill(c, header, deadline);
    if (status == RG_OK)
        status = rg_tcp_stream_frame(&c->stream, c->buffer + c->start, &msg_size, &bulk_size);
    if (status == RG_OK)
        status = fill(c, header + msg_size, deadline);
    if (status == RG_OK) {
        c->held = header + msg_size;
        *out = (struct rg_message){
            .data = c->buffer + c->start + header, .size = msg_size, .bulk_size = bulk_size};
    } else if (status != RG_ERR_TIMEOUT) {
        c->recv_failed = status;
    }
    return status;
}

static bool tcp_rests(const struct rg_conn *conn)
{
    return ((const struct tcp_conn *)conn)->stream.rests;
}

/* Receives `size` bytes to nowhere. */
static enum rg_status discard(struct tcp_conn *c, size_t size)
{
    char scratch[SCRATCH_SIZE];
    while (size > 0) {
        size_t got;
        RG_TRY(rg_tcp_stream_receive(&c->stream, scratch, size < sizeof scratch ? size : sizeof scratch, true,
                                     false, UINT64_MAX, &got));
        size -= got;
    }
    return RG_OK;
}

static enum rg_status receive_bulk(struct tcp_conn *c, unsigned char *to, size_t size)
{
    bool fault = false;
    size_t buffered = c->end - c->start - c->held;
    if (buffered > 0) {
        size_t taken = buffered < size ? buffered : size;
        fault = to && !rg_safe_copy_to(to, c->buffer + c->start + c->held, taken);
        atomic_fetch_add_explicit(&c->bulk_copied, taken, memory_order_relaxed);
        c->held += taken;
        size -= taken;
        if (to)
            to += taken;
    }
    while (size > 0 && to && !fault) {
        size_t got;
        enum rg_status status = rg_tcp_stream_receive(&c->stream, to, size, true, false, UINT64_MAX, &got);
        if (status == RG_ERR_FAULT) {
            fault = true;
            break;
        }
        if (status != RG_OK)
            return status;
        to += got;
        size -= got;
        atomic_fetch_add_explicit(&c->bulk_received, got, memory_order_relaxed);
    }
    enum rg_status status = size ? discard(c, size) : RG_OK;
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

static enum rg_status tcp_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct tcp_conn *c = (struct tcp_conn *)conn;
    if (rg_tcp_stream_is_interrupted(&c->stream))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    enum rg_status status = receive_bulk(c, buffer, size);
    if (status == RG_ERR_CLOSED)
        status = rg_tcp_stream_lost(&c->stream, 0, NULL);
    if (status != RG_OK && status != RG_ERR_FAULT)
        c->recv_failed = status;
    return status;
}

/* --- the rest --- */

static void tcp_set_read_ahead(struct rg_conn *conn)
{
    ((struct tcp_conn *)conn)->read_ahead = true;
}

static void tcp_interrupt(struct rg_conn *conn)
{
    rg_tcp_stream_interrupt(&((struct tcp_conn *)conn)->stream);
}

static void tcp_reset(struct rg_conn *conn)
{
    rg_tcp_stream_reset(&((struct tcp_conn *)conn)->stream);
}

static int tcp_fd(const struct rg_conn *conn)
{
    return ((const struct tcp_conn *)conn)->stream.fd;
}

static void tcp_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    const struct tcp_conn *c = (const struct tcp_conn *)conn;
    out->bulk_direct_sent = atomic_load_explicit(&c->bulk_sent, memory_order_relaxed);
    out->bulk_direct_received = atomic_load_explicit(&c->bulk_received, memory_order_relaxed);
    out->bulk_copied_received = atomic_load_explicit(&c->bulk_copied, memory_order_relaxed);
}

static void tcp_destroy(struct rg_conn *conn)
{
    struct tcp_conn *c = (struct tcp_conn *)conn;
    rg_tcp_stream_close(&c->stream,
                        c->read_ahead); /* in exact mode another process may have the socket now */
    free(c->buffer);
    free(c);
}

static void tcp_abandon(struct rg_conn *conn)
{
    rg_tcp_stream_abandon(&((struct tcp_conn *)conn)->stream);
}

enum rg_status rg_tcp_conn_create(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    struct tcp_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    c->stream.fd = -1;
    c->buffer = malloc(BUFFER_SIZE); /* aligned to 16; pages appear as messages need them */
    if (!c->buffer) {
        tcp_destroy(&c->head);
        return RG_ERR_NO_MEMORY;
    }
    rg_tcp_stream_init(&c->stream, fd, options, c->head.peer);
    if (options->bulk && c->stream.is_tcp)
        rg_zerocopy_start(&c->zerocopy, fd);
    c->head.caps = RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_FD;
    strcpy(c->head.transport, c->stream.is_tcp ? "tcp" : "unix");
    rg_tcp_peer_name(fd, c->head.peer, sizeof c->head.peer);
    *out = &c->head;
    return RG_OK;
}

static enum rg_status tcp_connect(const struct rg_address *address,
                                  const struct rg_transport_options *options, char *why, size_t why_size,
                                  struct rg_conn **out)
{
    int fd = rg_tcp_connect_socket(address, options->connect_timeout_ms, why, why_size);
    if (fd < 0)
        return RG_ERR_UNREACHABLE;
    fd = rg_descriptor_move_up(fd);
    enum rg_status status = rg_tcp_conn_create(fd, options, out);
    if (status != RG_OK) {
        rg_explain(why, why_size, "%s", rg_status_string(status));
        close(fd);
        return status;
    }
    /* who connects does not hand the socket on */
    if (!options->bulk)
        tcp_set_read_ahead(*out);
    rg_tcp_stream_become_guest(&((struct tcp_conn *)*out)->stream);
    return RG_OK;
}

static enum rg_status tcp_adopt_fd(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    enum rg_status status = rg_tcp_stream_check(fd);
    return status == RG_OK ? rg_tcp_conn_create(fd, options, out) : status;
}

struct rg_transport_ops rg_transport_tcp_ops = {
    .name = "tcp",
    .connect = tcp_connect,
    .listen = rg_tcp_listen,
    .adopt_listener = rg_tcp_adopt_listener,
    .adopt_fd = tcp_adopt_fd,
    .accept = rg_tcp_accept,
    .listener_interrupt = rg_tcp_listener_interrupt,
    .listener_destroy = rg_tcp_listener_destroy,
    .listener_fd = rg_tcp_listener_fd,
    .send = tcp_send,
    .recv = tcp_recv,
    .rests = tcp_rests,
    .recv_bulk = tcp_recv_bulk,
    .interrupt = tcp_interrupt,
    .reset = tcp_reset,
    .destroy = tcp_destroy,
    .set_read_ahead = tcp_set_read_ahead,
    .fd = tcp_fd,
    .abandon = tcp_abandon,
    .statistics = tcp_statistics,
};
