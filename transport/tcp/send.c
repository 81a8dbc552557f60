/*
 * send.c - see connection.h: one sendmsg of frame header, message and bulk data, straight from the caller's memory; what the socket does
 * not take at once is sent on from where it stopped.
 */
#include "transport/tcp/connection.h"

#include "transport/tcp/socket.h"

#include <errno.h>

enum { WINDOW_PARTS = 64 }; /* parts given to one sendmsg */

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
static enum rg_status wait_for_kernel(struct rg_tcp_conn *c)
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

static enum rg_status send_all(struct rg_tcp_conn *c, struct cursor *cur, bool *fault)
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

enum rg_status rg_tcp_conn_send(struct rg_conn *conn, struct rg_send *message)
{
    struct rg_tcp_conn *c = (struct rg_tcp_conn *)conn;
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
