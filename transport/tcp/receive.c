/*
 * receive.c - see connection.h: through one buffer. Header and message are read into it, in exact mode no byte more than they have, after
 * set_read_ahead some kilobytes more, so that a small message costs one system call. Bulk data is received straight into the caller's
 * memory, except for what had been read ahead of it (at most RG_TCP_READ_AHEAD bytes).
 */
#include "transport/tcp/connection.h"

#include "common/base/safe_copy.h"

#include <string.h>

enum { SCRATCH_SIZE = 4096 }; /* for bulk data that no one wants */

/* Moves what is unread to the front of the buffer: to make room, or to align a message. */
static void compact(struct rg_tcp_conn *c)
{
    memmove(c->buffer, c->buffer + c->start, c->end - c->start);
    c->end -= c->start;
    c->start = 0;
}

/* Sees to it that `need` bytes from start are in the buffer. */
static enum rg_status fill(struct rg_tcp_conn *c, size_t need, uint64_t deadline)
{
    if (c->start + need > RG_TCP_BUFFER_SIZE || c->start % 16 != 0)
        compact(c);
    while (c->end - c->start < need) {
        size_t missing = need - (c->end - c->start), want = missing;
        if (want < RG_TCP_READ_AHEAD && atomic_load_explicit(&c->read_ahead, memory_order_relaxed))
            want = RG_TCP_READ_AHEAD;
        if (want > RG_TCP_BUFFER_SIZE - c->end)
            want = RG_TCP_BUFFER_SIZE - c->end;
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

enum rg_status rg_tcp_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_tcp_conn *c = (struct rg_tcp_conn *)conn;
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

bool rg_tcp_conn_rests(const struct rg_conn *conn)
{
    return ((const struct rg_tcp_conn *)conn)->stream.rests;
}

/* Receives `size` bytes to nowhere. */
static enum rg_status discard(struct rg_tcp_conn *c, size_t size)
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

static enum rg_status receive_bulk(struct rg_tcp_conn *c, unsigned char *to, size_t size)
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
        enum rg_status status = rg_tcp_stream_receive_bulk(&c->stream, to, size, &got);
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

enum rg_status rg_tcp_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct rg_tcp_conn *c = (struct rg_tcp_conn *)conn;
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
