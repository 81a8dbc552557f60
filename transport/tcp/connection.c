/* connection.c - see connection.h: how a connection begins and ends, and the transport's table of operations. */
#include "transport/tcp/connection.h"

#include "common/base/descriptor.h"
#include "transport/tcp/socket.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tcp_set_read_ahead(struct rg_conn *conn)
{
    atomic_store_explicit(&((struct rg_tcp_conn *)conn)->read_ahead, true, memory_order_relaxed);
}

static void tcp_interrupt(struct rg_conn *conn)
{
    rg_tcp_stream_interrupt(&((struct rg_tcp_conn *)conn)->stream);
}

static void tcp_reset(struct rg_conn *conn)
{
    rg_tcp_stream_reset(&((struct rg_tcp_conn *)conn)->stream);
}

static int tcp_fd(const struct rg_conn *conn)
{
    return ((const struct rg_tcp_conn *)conn)->stream.fd;
}

static void tcp_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    const struct rg_tcp_conn *c = (const struct rg_tcp_conn *)conn;
    out->bulk_direct_sent = atomic_load_explicit(&c->bulk_sent, memory_order_relaxed);
    out->bulk_direct_received = atomic_load_explicit(&c->bulk_received, memory_order_relaxed);
    out->bulk_copied_received = atomic_load_explicit(&c->bulk_copied, memory_order_relaxed);
}

static void tcp_destroy(struct rg_conn *conn)
{
    struct rg_tcp_conn *c = (struct rg_tcp_conn *)conn;
    rg_tcp_stream_close(&c->stream,
                        c->read_ahead); /* in exact mode another process may have the socket now */
    free(c->buffer);
    free(c);
}

static void tcp_abandon(struct rg_conn *conn)
{
    rg_tcp_stream_abandon(&((struct rg_tcp_conn *)conn)->stream);
}

enum rg_status rg_tcp_conn_create(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    struct rg_tcp_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    c->stream.fd = -1;
    c->buffer = malloc(RG_TCP_BUFFER_SIZE); /* aligned to 16; pages appear as messages need them */
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
    rg_tcp_stream_become_guest(&((struct rg_tcp_conn *)*out)->stream);
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
    .look_up = rg_tcp_look_up,
    .listen = rg_tcp_listen,
    .adopt_listener = rg_tcp_adopt_listener,
    .adopt_fd = tcp_adopt_fd,
    .accept = rg_tcp_accept,
    .listener_interrupt = rg_tcp_listener_interrupt,
    .listener_destroy = rg_tcp_listener_destroy,
    .listener_fd = rg_tcp_listener_fd,
    .send = rg_tcp_conn_send,
    .recv = rg_tcp_conn_recv,
    .rests = rg_tcp_conn_rests,
    .recv_bulk = rg_tcp_conn_recv_bulk,
    .interrupt = tcp_interrupt,
    .reset = tcp_reset,
    .destroy = tcp_destroy,
    .set_read_ahead = tcp_set_read_ahead,
    .fd = tcp_fd,
    .abandon = tcp_abandon,
    .statistics = tcp_statistics,
};
