/*
 * send.c - a message as TLS records.
 *
 * A message begins a record of its own, so that who reads no further than a message can hand the connection on. If
 * frame header, message and bulk data fit into one record they are one; else bulk data begins another, so that the
 * receiver can open full records straight into their place. Several records are sealed from the caller's memory into
 * one buffer and leave by one call.
 *
 * Bulk data may lie in memory that cannot be read: it is looked at before, and where it cannot, zeros take its place.
 * A failed send is for good: records are counted, so nothing can follow.
 *
 * Threads: the sender, who holds `sending`; rg_tls_conn_close_notify is anyone's and takes it.
 */
#include "transport/tls/internal.h"

#include "common/base/poll.h"
#include "common/base/safe_copy.h"

#include <sys/socket.h>

enum { PARTS = 32 }; /* of one record */

static const unsigned char zero_bytes[RG_TLS_PLAIN];

/* Where a message stands on its way out: frame header, parts of the message, parts of the bulk data. */
struct cursor {
    const struct rg_send *message;
    struct rg_frame frame;
    int n_parts, part; /* 0: the header */
    size_t offset;     /* within the part */
    size_t readable;   /* bytes from there on that were looked at */
    bool zeros;        /* the rest of the part is replaced */
    bool fault;
};

static struct iovec part_at(const struct cursor *cur)
{
    const struct rg_send *m = cur->message;
    if (cur->part == 0)
        return (struct iovec){(void *)(uintptr_t)&cur->frame, sizeof cur->frame};
    return cur->part <= m->n_msg ? m->msg[cur->part - 1] : m->bulk[cur->part - 1 - m->n_msg];
}

/* The next bytes, up to `most`, of the current part. */
static struct iovec next_piece(struct cursor *cur, size_t most)
{
    const struct iovec part = part_at(cur);
    struct iovec piece = {(char *)part.iov_base + cur->offset, part.iov_len - cur->offset};
    if (cur->part > cur->message->n_msg && !cur->zeros && cur->readable == 0 && piece.iov_len > 0) {
        cur->readable = piece.iov_len < RG_TLS_OUT ? piece.iov_len : RG_TLS_OUT;
        if (!rg_memory_is_readable(piece.iov_base, cur->readable))
            cur->zeros = cur->fault = true;
    }
    if (cur->zeros)
        piece.iov_base = (void *)(uintptr_t)zero_bytes;
    else if (cur->part > cur->message->n_msg && piece.iov_len > cur->readable)
        piece.iov_len = cur->readable;
    if (piece.iov_len > most)
        piece.iov_len = most;
    cur->offset += piece.iov_len;
    cur->readable -= cur->readable > piece.iov_len ? piece.iov_len : cur->readable;
    if (cur->offset == part.iov_len) {
        cur->part++;
        cur->offset = cur->readable = 0;
        cur->zeros = false;
    }
    return piece;
}

static enum rg_status flush(struct rg_tls_conn *c, bool more)
{
    const size_t size = c->out_size;
    c->out_size = 0;
    return size ? rg_tcp_stream_send(&c->stream, c->out_buffer, size, more) : RG_OK;
}

static enum rg_status seal(struct rg_tls_conn *c, enum rg_tls_content type, const struct iovec *parts,
                           int n_parts)
{
    size_t size;
    enum rg_status status = rg_tls_seal(&c->out, type, parts, n_parts, c->out_buffer + c->out_size, &size);
    if (status == RG_OK)
        c->out_size += size;
    return status;
}

/* New keys, if these have served enough or the peer asks; there is room for one record. */
static enum rg_status renew_keys(struct rg_tls_conn *c)
{
    static const unsigned char update[] = {24, 0, 0, 1, 0}; /* KeyUpdate, not requested of the peer */
    const struct iovec part = {(void *)(uintptr_t)update, sizeof update};
    if (c->out.number < c->records_per_key && !atomic_load_explicit(&c->update_wanted, memory_order_relaxed))
        return RG_OK;
    atomic_store_explicit(&c->update_wanted, false, memory_order_relaxed);
    enum rg_status status = seal(c, RG_TLS_HANDSHAKE, &part, 1);
    return status == RG_OK ? rg_tls_direction_update(&c->out) : status;
}

/* Seals the parts before `last_part` into records, and sends those that fill the buffer. */
static enum rg_status seal_until(struct rg_tls_conn *c, struct cursor *cur, int last_part)
{
    while (cur->part < last_part) {
        struct iovec parts[PARTS];
        size_t room = RG_TLS_PLAIN;
        int n = 0;
        while (cur->part < last_part && room > 0 && n < PARTS) {
            parts[n] = next_piece(cur, room);
            room -= parts[n++].iov_len;
        }
        if (room == RG_TLS_PLAIN)
            continue; /* parts of no size */
        RG_TRY(c->out_size > RG_TLS_OUT - 2 * RG_TLS_RECORD ? flush(c, true) : RG_OK);
        RG_TRY(renew_keys(c));
        RG_TRY(seal(c, RG_TLS_DATA, parts, n));
    }
    return RG_OK;
}

enum rg_status rg_tls_conn_send(struct rg_conn *conn, struct rg_send *message)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    int expected = RG_TLS_FREE;
    if (!atomic_compare_exchange_strong_explicit(&c->sending, &expected, RG_TLS_BUSY, memory_order_acquire,
                                                 memory_order_relaxed))
        return RG_ERR_CLOSED;
    struct cursor cur = {.message = message,
                         .frame = rg_frame_encode(message->msg_size, message->bulk_size),
                         .n_parts = 1 + message->n_msg + message->n_bulk};
    const bool one = sizeof cur.frame + message->msg_size + message->bulk_size <= RG_TLS_PLAIN;
    enum rg_status status = rg_tcp_stream_is_interrupted(&c->stream) ? RG_ERR_CLOSED : c->send_failed;
    if (status == RG_OK && !one)
        status = seal_until(c, &cur, 1 + message->n_msg);
    if (status == RG_OK)
        status = seal_until(c, &cur, cur.n_parts);
    if (status == RG_OK)
        status = flush(c, false);
    if (status != RG_OK && c->send_failed == RG_OK) {
        c->send_failed = status;
        rg_tcp_stream_end_sending(&c->stream);
    }
    atomic_store_explicit(&c->sending, RG_TLS_FREE, memory_order_release);
    if (status != RG_OK)
        return status;
    atomic_fetch_add_explicit(&c->bulk_sent, message->bulk_size, memory_order_relaxed);
    return cur.fault ? RG_ERR_FAULT : RG_OK;
}

void rg_tls_conn_close_notify(struct rg_tls_conn *c, int timeout_ms)
{
    static const unsigned char alert[] = {1, 0}; /* a warning: close_notify */
    const struct iovec part = {(void *)(uintptr_t)alert, sizeof alert};
    unsigned char record[RG_TLS_OVERHEAD + sizeof alert];
    size_t size;
    int expected = RG_TLS_FREE;
    if (!atomic_compare_exchange_strong_explicit(&c->sending, &expected, RG_TLS_OVER, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    if (c->send_failed != RG_OK || !rg_tcp_stream_is_ours(&c->stream) ||
        rg_tls_seal(&c->out, RG_TLS_ALERT, &part, 1, record, &size) != RG_OK)
        return;
    struct pollfd p = {.fd = c->stream.fd, .events = POLLOUT};
    if (timeout_ms > 0)
        (void)rg_poll(&p, 1, timeout_ms);
    (void)!send(c->stream.fd, record, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}
