/*
 * transport.c - the front of all connections: the checks that every operation relies on.
 *
 * A call checks its arguments and the order of calls (bulk data is taken before the next message), and passes
 * on what the connection's operation returns. Nothing else can fail here. Threads: as transport.h says of
 * each call.
 */
#include "transport/operations.h"

/* Sum of the parts' sizes, or SIZE_MAX if it is beyond `limit`. */
static size_t sum_parts(const struct iovec *parts, int count, size_t limit)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > limit - sum)
            return SIZE_MAX;
        sum += parts[i].iov_len;
    }
    return sum;
}

/* Counts that one thread at a time changes, and others look at: no more than stores. */
static inline uint32_t enter(_Atomic uint32_t *count)
{
    const uint32_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before | 1, memory_order_relaxed);
    return before & ~1u;
}

static inline void leave(_Atomic uint32_t *count, uint32_t after)
{
    atomic_store_explicit(count, after, memory_order_relaxed);
}

void rg_conn_progress(const struct rg_conn *conn, struct rg_conn_progress *out)
{
    const uint32_t sends = atomic_load_explicit(&conn->sends, memory_order_relaxed),
                   receives = atomic_load_explicit(&conn->receives, memory_order_relaxed);
    *out = (struct rg_conn_progress){
        .sending = (sends & 1) || atomic_load_explicit(&conn->detached, memory_order_relaxed),
        .receiving = receives & 1,
        .sent = sends / 2 + atomic_load_explicit(&conn->detached_sends, memory_order_relaxed),
        .received = receives / 2,
    };
    out->lost = conn->ops->lost && conn->ops->lost(conn);
    out->has_backlog = conn->ops->backlog(conn, &out->unread, &out->unsent);
}

bool rg_conn_channel_progress(const struct rg_conn *conn, unsigned place, struct rg_conn_progress *out)
{
    return conn->ops->channel_progress && conn->ops->channel_progress(conn, place, out);
}

bool rg_conn_give_up_channel(struct rg_conn *conn, unsigned place)
{
    return conn->ops->give_up_channel && conn->ops->give_up_channel(conn, place);
}

struct rg_lease rg_lease_until_reply;

void rg_lease_end(struct rg_lease *lease)
{
    if (lease->conn)
        lease->conn->ops->end_lease(lease->conn, lease);
}

bool rg_lease_ended(const struct rg_lease *lease)
{
    return !lease->conn || lease->conn->ops->lease_ended(lease->conn, lease);
}

enum rg_status rg_conn_send(struct rg_conn *conn, struct rg_send *send)
{
    send->msg_size = sum_parts(send->msg, send->n_msg, RG_MESSAGE_MAX);
    send->bulk_size = sum_parts(send->bulk, send->n_bulk, RG_BULK_MAX);
    send->detached = false;
    if (send->msg_size == SIZE_MAX || send->bulk_size == SIZE_MAX) {
        rg_error("a message is larger than the limits of %u bytes, %u bytes of bulk data", RG_MESSAGE_MAX,
                 RG_BULK_MAX);
        return RG_ERR_INVALID;
    }
    const uint32_t before = enter(&conn->sends);
    const enum rg_status status = conn->ops->send(conn, send);
    leave(&conn->sends, before + 2);
    return status;
}

enum rg_status rg_conn_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    atomic_fetch_add_explicit(&conn->detached, 1, memory_order_relaxed);
    const enum rg_status status = conn->ops->send_detached(conn, send);
    atomic_fetch_add_explicit(&conn->detached_sends, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&conn->detached, 1, memory_order_relaxed);
    return status;
}

enum rg_status rg_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    if (conn->bulk_left > 0) {
        rg_error("%zu bytes of bulk data were not taken before the next message", conn->bulk_left);
        return RG_ERR_INVALID;
    }
    struct rg_message message;
    const uint32_t before = enter(&conn->receives);
    enum rg_status status = conn->ops->recv(conn, timeout_ms, &message);
    leave(&conn->receives, before + (status == RG_ERR_TIMEOUT ? 0 : 2));
    if (status != RG_OK)
        return status;
    conn->bulk_left = message.bulk_size;
    *out = message;
    return RG_OK;
}

bool rg_conn_rests(const struct rg_conn *conn)
{
    return conn->ops->rests(conn);
}

enum rg_status rg_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    if (size > conn->bulk_left) {
        rg_error("%zu bytes of bulk data were asked for where %zu are left", size, conn->bulk_left);
        return RG_ERR_INVALID;
    }
    if (size == 0)
        return RG_OK;
    conn->bulk_left -= size;
    const uint32_t before = enter(&conn->receives);
    const enum rg_status status = conn->ops->recv_bulk(conn, buffer, size);
    leave(&conn->receives, before + 2);
    return status;
}

enum rg_status rg_conn_register(struct rg_conn *conn, void *base, size_t size)
{
    return conn->ops->register_memory(conn, base, size);
}

void rg_conn_unregister(struct rg_conn *conn, void *base)
{
    conn->ops->unregister_memory(conn, base);
}

unsigned rg_conn_device_paths(struct rg_conn *conn)
{
    return conn->ops->device_paths(conn);
}

enum rg_status rg_conn_register_device(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset)
{
    return size == 0 ? RG_ERR_INVALID : conn->ops->register_device(conn, base, size, fd, offset);
}

bool rg_conn_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    return size <= conn->bulk_left && conn->ops->writes_directly(conn, memory, size);
}

enum rg_status rg_conn_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    return size == 0 || tag == RG_TAG_NOWHERE ? RG_ERR_INVALID
                                              : conn->ops->advertise(conn, tag, base, memory, size);
}

void rg_conn_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    conn->ops->withdraw(conn, tag, memory);
}

enum rg_status rg_conn_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    *size = 0;
    if (most > conn->bulk_left) {
        rg_error("%zu bytes of bulk data were asked for where %zu are left", most, conn->bulk_left);
        return RG_ERR_INVALID;
    }
    const uint32_t before = enter(&conn->receives);
    enum rg_status status = most == 0 ? RG_OK : conn->ops->take_advertised(conn, most, memory, size);
    leave(&conn->receives, before + 2);
    conn->bulk_left -= *size;
    return status;
}

bool rg_conn_adverts_ended(struct rg_conn *conn)
{
    return conn->ops->adverts_ended(conn);
}

bool rg_conn_has_advertised(struct rg_conn *conn, size_t size)
{
    return conn->ops->has_advertised(conn, size);
}

void rg_conn_get_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    *out = (struct rg_conn_statistics){0};
    conn->ops->statistics(conn, out);
}

void rg_conn_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    *out = (struct rg_conn_security){0};
    conn->ops->security(conn, out);
}

enum rg_status rg_conn_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys)
{
    return conn->ops->tls_export(conn, keys);
}

enum rg_status rg_conn_tls_exporter(const struct rg_conn *conn, uint8_t out[32])
{
    return conn->ops->tls_exporter(conn, out);
}

void rg_conn_set_read_ahead(struct rg_conn *conn)
{
    conn->ops->set_read_ahead(conn);
}

bool rg_conn_has_credit(struct rg_conn *conn)
{
    return conn->ops->has_credit(conn);
}

void rg_conn_set_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    conn->ops->set_control(conn, control_conn);
}

void rg_conn_interrupt(struct rg_conn *conn)
{
    conn->ops->interrupt(conn);
}

void rg_conn_reset(struct rg_conn *conn)
{
    conn->ops->reset(conn);
}

int rg_conn_fd(const struct rg_conn *conn)
{
    return conn->ops->fd(conn);
}

unsigned rg_conn_caps(const struct rg_conn *conn)
{
    return conn->caps;
}

unsigned rg_conn_rails(const struct rg_conn *conn)
{
    return conn->rails;
}

size_t rg_conn_piece(const struct rg_conn *conn, size_t piece)
{
    enum {
        ASKED_LEAST = 1 << 20
    }; /* on links where this takes longer, asking for less takes most of the time */
    if ((conn->caps & RG_CAP_ASKS) && piece < ASKED_LEAST)
        piece = ASKED_LEAST;
    return piece < conn->piece_least ? conn->piece_least : piece;
}

const char *rg_conn_transport(const struct rg_conn *conn)
{
    return conn->transport;
}

const char *rg_conn_peer(const struct rg_conn *conn)
{
    return conn->peer;
}

void rg_conn_destroy(struct rg_conn *conn)
{
    if (conn)
        conn->ops->destroy(conn);
}

void rg_conn_abandon(struct rg_conn *conn)
{
    conn->ops->abandon(conn);
}
