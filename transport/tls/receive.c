/*
 * receive.c - messages out of TLS records.
 *
 * What comes is received into a buffer of several records and opened from there: frame header and message into the
 * connection's buffer, full records of bulk data straight into the caller's memory. As long as the connection may be
 * handed on nothing is received beyond the current message: of a record first the header; of bulk data as much at once
 * as it takes at least when encrypted.
 *
 * A record that does not open, is padded, empty or of a kind that has no place here ends the connection with
 * RG_ERR_PROTOCOL: what came before has been authenticated and stays. The peer's close_notify between two messages is
 * RG_ERR_CLOSED; an end without it, or within a message, RG_ERR_LOST. Memory of the caller's is looked at before it is
 * written; what cannot be is received to nowhere.
 *
 * Threads: the receiver.
 */
#include "transport/tls/internal.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log_limit.h"
#include "common/base/safe_copy.h"

#include <string.h>

enum {
    DIRECT_LEAST =
        64, /* bytes of content: alerts and KeyUpdates are shorter, and never opened into the caller's memory */
    READ_AHEAD = RG_TLS_RECORD,
    LOOK = RG_TLS_IN, /* bytes of the caller's memory that are looked at together */
};

static enum rg_status violation(struct rg_tls_conn *c, const char *what)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT; /* whoever reaches a server's port can cause it */
    rg_log_limited(&limit, rg_now_ns(), RG_LOG_ERROR, "%s sent %s", c->head.peer, what);
    return RG_ERR_PROTOCOL;
}

/* --- records --- */

/* The least that `size` bytes of content take when they are encrypted. */
static size_t encrypted(size_t size)
{
    return size + (size + RG_TLS_PLAIN - 1) / RG_TLS_PLAIN * RG_TLS_OVERHEAD;
}

/* Receives until a whole record is there; *content_size is its content's. */
static enum rg_status await_record(struct rg_tls_conn *c, uint64_t deadline, size_t *content_size)
{
    if (c->cipher_start == c->cipher_end)
        c->cipher_start = c->cipher_end = 0;
    for (;;) {
        const size_t have = c->cipher_end - c->cipher_start;
        size_t need = RG_TLS_HEADER;
        if (have >= need) {
            if (rg_tls_header(c->cipher + c->cipher_start, content_size) != RG_OK)
                return violation(c, "something that is not an encrypted record of remote-gpu's");
            need = *content_size + RG_TLS_OVERHEAD;
            if (have >= need)
                return RG_OK;
        }
        if (c->cipher_start + RG_TLS_RECORD > RG_TLS_IN) {
            memmove(c->cipher, c->cipher + c->cipher_start, have);
            c->cipher_start = 0;
            c->cipher_end = have;
        }
        const size_t room = RG_TLS_IN - c->cipher_end, least = encrypted(c->due);
        size_t want = need - have, got;
        if (least > have + want)
            want = least - have;
        if (want < READ_AHEAD && atomic_load_explicit(&c->read_ahead, memory_order_relaxed))
            want = READ_AHEAD;
        if (want > room)
            want = room;
        const bool first = have == 0 && c->end == c->next && c->due == 0;
        enum rg_status status = rg_tcp_stream_receive(&c->stream, c->cipher + c->cipher_end, want,
                                                      want == need - have, first, deadline, &got);
        if (status == RG_ERR_CLOSED) /* without a close_notify: anyone may have cut it */
            return rg_tcp_stream_lost(&c->stream, 0, NULL);
        if (status != RG_OK)
            return status;
        c->cipher_end += got;
    }
}

static enum rg_status take_alert(struct rg_tls_conn *c, const unsigned char *alert, size_t size)
{
    if (size != 2)
        return violation(c, "a malformed alert");
    if (alert[1] == 0) {
        c->closed = true;
        return RG_ERR_CLOSED;
    }
    rg_debug("%s: alert %u", c->head.peer, alert[1]);
    return rg_tcp_stream_lost(&c->stream, 0, NULL);
}

static enum rg_status take_handshake(struct rg_tls_conn *c, const unsigned char *data, size_t size)
{
    static const unsigned char update[] = {24, 0, 0, 1}; /* KeyUpdate */
    if (size != sizeof update + 1 || memcmp(data, update, sizeof update) != 0 || data[4] > 1)
        return violation(c, "a message of TLS that has no place here");
    if (++c->updates > RG_TLS_UPDATES_MAX) {
        (void)violation(c, "new keys again and again, and no data");
        return RG_ERR_LIMIT;
    }
    if (data[4])
        atomic_store_explicit(&c->update_wanted, true, memory_order_relaxed);
    return rg_tls_direction_update(&c->in);
}

/*
 * Opens the next record, which is there and has `size` bytes of content, to `to`. *got is 0 if it was one that speaks
 * of the connection.
 */
static enum rg_status open_record(struct rg_tls_conn *c, size_t size, unsigned char *to, size_t *got)
{
    uint8_t type = 0;
    enum rg_status status = rg_tls_open(&c->in, c->cipher + c->cipher_start, size, to, &type);
    c->cipher_start += size + RG_TLS_OVERHEAD;
    *got = 0;
    if (status != RG_OK)
        return violation(c, "a record that was changed, repeated, left out or sealed with other keys");
    if (c->in.number > RG_TLS_RECORDS_MAX)
        return violation(c, "more records than one key may protect");
    if (type == RG_TLS_ALERT)
        return take_alert(c, to, size);
    if (type == RG_TLS_HANDSHAKE)
        return take_handshake(c, to, size);
    if (type != RG_TLS_DATA)
        return violation(c, type == 0 ? "a padded record" : "a record of an unknown kind");
    c->updates = 0;
    *got = size;
    c->due -= size < c->due ? size : c->due;
    return RG_OK;
}

/* --- messages --- */

/* Moves what is not taken to the front of the buffer: to make room, or to align a message. */
static void compact(struct rg_tls_conn *c)
{
    memmove(c->plain, c->plain + c->start, c->end - c->start);
    c->end -= c->start;
    c->start = c->next = 0;
}

/* Sees to it that `need` bytes from start are opened. */
static enum rg_status fill(struct rg_tls_conn *c, size_t need, uint64_t deadline)
{
    if (c->start + need + 2 * RG_TLS_PLAIN > RG_TLS_PLAIN_BUFFER || c->start % 16 != 0)
        compact(c);
    while (c->end - c->start < need) {
        size_t size, got;
        enum rg_status status = await_record(c, deadline, &size);
        if (status == RG_OK)
            status = open_record(c, size, c->plain + c->end, &got);
        if (status == RG_ERR_CLOSED && c->end > c->start)
            return rg_tcp_stream_lost(&c->stream, 0, NULL); /* in the middle of a message */
        if (status != RG_OK)
            return status;
        c->end += got;
    }
    return RG_OK;
}

static enum rg_status receive_message(struct rg_tls_conn *c, uint64_t deadline, struct rg_message *out)
{
    const size_t header = sizeof(struct rg_frame);
    size_t msg_size, bulk_size;
    RG_TRY(fill(c, header, deadline));
    RG_TRY(rg_tcp_stream_frame(&c->stream, c->plain + c->start, &msg_size, &bulk_size));
    const size_t opened = c->end - c->start, whole = header + msg_size + bulk_size;
    c->due = whole > opened ? whole - opened : 0;
    RG_TRY(fill(c, header + msg_size, deadline));
    *out =
        (struct rg_message){.data = c->plain + c->start + header, .size = msg_size, .bulk_size = bulk_size};
    c->held = header + msg_size;
    c->next = c->start + c->held;
    return RG_OK;
}

enum rg_status rg_tls_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    if (rg_tcp_stream_is_interrupted(&c->stream))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    c->start = c->next;
    c->held = 0;
    if (c->start == c->end)
        c->start = c->end = 0;
    c->next = c->start;
    enum rg_status status = receive_message(c, rg_tcp_stream_deadline(timeout_ms), out);
    if (status != RG_OK && status != RG_ERR_TIMEOUT)
        c->recv_failed = status;
    return status;
}

/* Takes what is opened already, up to *size bytes. False: the memory cannot be written. */
static bool take_opened(struct rg_tls_conn *c, unsigned char **to, size_t *size)
{
    const size_t opened = c->end - c->next, taken = opened < *size ? opened : *size;
    bool good = true;
    if (taken > 0 && *to && (good = rg_memory_is_writable(*to, taken)))
        memcpy(*to, c->plain + c->next, taken);
    c->next += taken;
    *size -= taken;
    if (*to)
        *to += taken;
    return good;
}

static enum rg_status receive_bulk(struct rg_tls_conn *c, unsigned char *to, size_t size)
{
    bool fault = !take_opened(c, &to, &size);
    size_t looked = 0; /* bytes at `to` that can be written */
    while (size > 0) {
        size_t content, got;
        RG_TRY(await_record(c, UINT64_MAX, &content));
        bool direct = to && !fault && content <= size && content >= DIRECT_LEAST;
        if (direct && looked < content) {
            looked = size < LOOK ? size : LOOK;
            fault = !rg_memory_is_writable(to, looked);
            direct = !fault;
        }
        if (!direct)
            c->next = c->end = c->start + c->held; /* all has been taken */
        RG_TRY(open_record(c, content, direct ? to : c->plain + c->end, &got));
        if (direct) {
            to += got;
            size -= got;
            looked -= got;
            continue;
        }
        c->end += got;
        unsigned char *nowhere = NULL;
        fault = !take_opened(c, fault ? &nowhere : &to, &size) || fault;
        looked = 0;
    }
    return fault ? RG_ERR_FAULT : RG_OK;
}

enum rg_status rg_tls_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    if (rg_tcp_stream_is_interrupted(&c->stream))
        return RG_ERR_CLOSED;
    if (c->recv_failed != RG_OK)
        return c->recv_failed;
    enum rg_status status = receive_bulk(c, buffer, size);
    if (status == RG_ERR_CLOSED)
        status = rg_tcp_stream_lost(&c->stream, 0, NULL);
    if (status == RG_OK || status == RG_ERR_FAULT)
        atomic_fetch_add_explicit(&c->bulk_received, size, memory_order_relaxed);
    else
        c->recv_failed = status;
    return status;
}
