/*
 * connection.c - transport tls: connections whose messages travel in records of TLS 1.3 over TCP.
 *
 * A connection is made by a handshake (client.c) or of a socket and the keys that a handshake has left
 * (the server's, in whichever process). The socket, waiting and the health of the peer are transport tcp's (stream.h);
 * send.c and receive.c do the rest. What can fail is theirs, or is explained to who connects.
 *
 * An end is told to the peer by close_notify, unless a message is under way or another process goes on with the
 * connection (rg_conn_tls_export).
 *
 * Threads: as transport.h says.
 */
#include "common/base/clock.h"
#include "common/base/descriptor.h"
#include "transport/tcp/socket.h"
#include "transport/tls/client.h"
#include "transport/tls/internal.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOSE_MS = 100, /* for what was sent before to leave, at an end */
    LEAST_MS = 1000 /* of the time to connect, for the handshake */
};

static void tls_set_read_ahead(struct rg_conn *conn)
{
    atomic_store_explicit(&((struct rg_tls_conn *)conn)->read_ahead, true, memory_order_relaxed);
}

static void tls_interrupt(struct rg_conn *conn)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    if (!c->exported)
        rg_tls_conn_close_notify(c, 0);
    rg_tcp_stream_interrupt(&c->stream);
}

static void tls_reset(struct rg_conn *conn)
{
    rg_tcp_stream_reset(&((struct rg_tls_conn *)conn)->stream);
}

static int tls_fd(const struct rg_conn *conn)
{
    return ((const struct rg_tls_conn *)conn)->stream.fd;
}

/* Every byte passes through this process, to be encrypted. */
static void tls_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    const struct rg_tls_conn *c = (const struct rg_tls_conn *)conn;
    out->bulk_copied_sent = atomic_load_explicit(&c->bulk_sent, memory_order_relaxed);
    out->bulk_copied_received = atomic_load_explicit(&c->bulk_received, memory_order_relaxed);
}

static void tls_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    const struct rg_tls_conn *c = (const struct rg_tls_conn *)conn;
    out->encrypted = true;
    strcpy(out->cipher, c->out.suite->name);
    strcpy(out->peer, c->peer);
}

static void tls_destroy(struct rg_conn *conn)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    if (c->stream.fd >= 0 && !c->exported)
        rg_tls_conn_close_notify(c, CLOSE_MS);
    rg_tcp_stream_close(&c->stream, c->read_ahead && !c->exported);
    rg_tls_direction_fini(&c->out);
    rg_tls_direction_fini(&c->in);
    free(c->out_buffer);
    free(c->cipher);
    free(c->plain);
    OPENSSL_cleanse(c->exporter, sizeof c->exporter);
    free(c);
}

static void tls_abandon(struct rg_conn *conn)
{
    rg_tcp_stream_abandon(&((struct rg_tls_conn *)conn)->stream);
}

static enum rg_status tls_export(struct rg_conn *conn, struct rg_tls_keys *keys)
{
    struct rg_tls_conn *c = (struct rg_tls_conn *)conn;
    if (c->recv_failed != RG_OK || c->send_failed != RG_OK)
        return c->recv_failed != RG_OK ? c->recv_failed : c->send_failed;
    if (c->cipher_start != c->cipher_end || c->next != c->end || conn->bulk_left > 0)
        return RG_ERR_PROTOCOL;
    int expected = RG_TLS_FREE;
    if (!atomic_compare_exchange_strong(&c->sending, &expected, RG_TLS_OVER))
        return RG_ERR_CLOSED;
    c->exported = true;
    memset(keys, 0, sizeof *keys);
    keys->cipher = c->out.suite->number;
    keys->is_server = c->is_server;
    keys->secret_size = c->out.suite->secret_size;
    memcpy(keys->send, c->out.secret, sizeof keys->send);
    memcpy(keys->receive, c->in.secret, sizeof keys->receive);
    keys->sent = c->out.number;
    keys->received = c->in.number;
    return RG_OK;
}

static enum rg_status tls_exporter(const struct rg_conn *conn, uint8_t out[32])
{
    const struct rg_tls_conn *c = (const struct rg_tls_conn *)conn;
    if (!c->has_exporter)
        return RG_ERR_UNSUPPORTED;
    memcpy(out, c->exporter, sizeof c->exporter);
    return RG_OK;
}

void rg_tls_conn_set_records_per_key(struct rg_conn *conn, uint64_t records)
{
    ((struct rg_tls_conn *)conn)->records_per_key = records;
}

/* --- making one --- */

/* The descriptor is the connection's if this succeeds. */
static enum rg_status create(int fd, const struct rg_tls_keys *keys,
                             const struct rg_transport_options *options, struct rg_tls_conn **out)
{
    const struct rg_tls_suite *suite = rg_tls_suite_find(keys->cipher);
    if (!suite || suite->secret_size != keys->secret_size)
        return RG_ERR_INVALID;
    struct rg_tls_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    c->stream.fd = -1;
    c->out_buffer = malloc(RG_TLS_OUT); /* pages appear as they are needed */
    c->cipher = malloc(RG_TLS_IN);
    c->plain = malloc(RG_TLS_PLAIN_BUFFER); /* aligned to 16 */
    enum rg_status status = c->out_buffer && c->cipher && c->plain ? RG_OK : RG_ERR_NO_MEMORY;
    if (status == RG_OK)
        status = rg_tls_direction_init(&c->out, keys->cipher, true, keys->send, keys->sent);
    if (status == RG_OK)
        status = rg_tls_direction_init(&c->in, keys->cipher, false, keys->receive, keys->received);
    if (status != RG_OK) {
        tls_destroy(&c->head);
        return status;
    }
    c->records_per_key = RG_TLS_RECORDS_PER_KEY;
    c->is_server = keys->is_server != 0;
    rg_tcp_stream_init(&c->stream, fd, options, c->head.peer);
    c->head.caps = RG_CAP_FD;
    strcpy(c->head.transport, "tls");
    rg_tcp_peer_name(fd, c->head.peer, sizeof c->head.peer);
    *out = c;
    return RG_OK;
}

static enum rg_status tls_connect(const struct rg_address *address,
                                  const struct rg_transport_options *options, char *why, size_t why_size,
                                  struct rg_conn **out)
{
    if (!options->tls)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "an address of TLS is written tcp://, and needs credentials");
    const uint64_t began = rg_now_ns();
    int fd = rg_tcp_connect_socket(address, options->connect_timeout_ms, why, why_size);
    if (fd < 0)
        return RG_ERR_UNREACHABLE;
    fd = rg_descriptor_move_up(fd);
    (void)rg_tcp_tune(fd);
    const uint64_t passed = (rg_now_ns() - began) / 1000000u;
    const int left = options->connect_timeout_ms - (int)passed;
    struct rg_tls_session session;
    struct rg_tls_conn *c = NULL;
    enum rg_status status = rg_tls_connect(fd, options->tls, address->host, left > LEAST_MS ? left : LEAST_MS,
                                           &session, why, why_size);
    if (status == RG_OK) {
        status = create(fd, &session.keys, options, &c);
        if (status != RG_OK)
            rg_explain(why, why_size, "%s", rg_status_string(status));
    }
    if (status == RG_OK) {
        c->has_exporter = true;
        memcpy(c->exporter, session.exporter, sizeof c->exporter);
        memcpy(c->peer, session.peer, sizeof c->peer);
        /* who connects does not hand the socket on */
        c->read_ahead = !options->bulk;
        rg_tcp_stream_become_guest(&c->stream);
        *out = &c->head;
    } else {
        close(fd);
    }
    rg_tls_wipe(&session, sizeof session);
    return status;
}

static enum rg_status tls_adopt_fd(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    struct rg_tls_conn *c = NULL;
    enum rg_status status = rg_tcp_stream_check(fd);
    if (status == RG_OK)
        status = options->tls_keys ? create(fd, options->tls_keys, options, &c) : RG_ERR_INVALID;
    if (status == RG_OK)
        *out = &c->head;
    return status;
}

/* Who accepts does so by transport tcp, and looks what comes: tls.h. */
static enum rg_status tls_listen(const struct rg_address *address, const struct rg_transport_options *options,
                                 char *why, size_t why_size, struct rg_listener **out)
{
    (void)address, (void)options, (void)out;
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "an address of TLS is written tcp://");
}

static bool tls_rests(const struct rg_conn *conn)
{
    return ((const struct rg_tls_conn *)conn)->stream.rests;
}

struct rg_transport_ops rg_transport_tls_ops = {
    .name = "tls",
    .connect = tls_connect,
    .look_up = rg_tcp_look_up,
    .listen = tls_listen,
    .adopt_fd = tls_adopt_fd,
    .accept = rg_tcp_accept,
    .listener_interrupt = rg_tcp_listener_interrupt,
    .listener_destroy = rg_tcp_listener_destroy,
    .listener_fd = rg_tcp_listener_fd,
    .send = rg_tls_conn_send,
    .recv = rg_tls_conn_recv,
    .rests = tls_rests,
    .recv_bulk = rg_tls_conn_recv_bulk,
    .interrupt = tls_interrupt,
    .reset = tls_reset,
    .destroy = tls_destroy,
    .set_read_ahead = tls_set_read_ahead,
    .fd = tls_fd,
    .abandon = tls_abandon,
    .statistics = tls_statistics,
    .security = tls_security,
    .tls_export = tls_export,
    .tls_exporter = tls_exporter,
    .tls_tools = &rg_tls_tools,
};
