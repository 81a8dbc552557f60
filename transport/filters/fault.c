/*
 * fault.c - filter fault: a connection that fails at a chosen message, for tests.
 *
 * The options are fault_options.h's.
 * Without options everything passes. Counters are the sender's and the receiver's; no threads.
 */
#include "transport/filters/fault_options.h"
#include "transport/frame.h"
#include "transport/operations.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct fault_conn {
    struct rg_conn head;
    struct rg_fault_options options;
    uint64_t send_budget, recv_budget; /* bytes until the cut: sender, receiver */
    bool spare_send, spare_recv;       /* one message passes first */
    bool was_cut;                      /* receiver */
    uint64_t n_sent;                   /* sender */
    uint64_t n_received;               /* receiver */
    unsigned char *copy;               /* receiver: of a message that was corrupted */
    unsigned char *outgo;              /* sender: the same */
};

static enum rg_status fault_check(const char *text, char *why, size_t why_size)
{
    struct rg_fault_options options;
    return rg_fault_options_parse(text, &options, why, why_size);
}

/* --- sending --- */

static void gather(unsigned char *to, const struct iovec *parts, int count)
{
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0)
            memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
}

static void invert_byte(unsigned char *data, size_t size, uint64_t byte)
{
    if (size > 0)
        data[byte < size ? byte : size - 1] ^= 0xff;
}

/* Whether what is written to the socket below is no frame, but a record of TLS. */
static bool is_encrypted(const struct fault_conn *c)
{
    struct rg_conn_security security;
    rg_conn_security(c->head.next, &security);
    return security.encrypted;
}

/* The beginning of a record that never ends: so much a peer can tell of one that was cut. */
static void begin_record(const struct fault_conn *c)
{
    static const unsigned char record[64] = {23, 3, 3, 0x40, 0x11}; /* of 16 KiB of data */
    if (send(rg_conn_fd(c->head.next), record, sizeof record, MSG_NOSIGNAL) < 0)
        rg_debug("filter fault: %m");
}

/* Writes a frame of our own making, and `size` bytes after it, to the socket below; then ends the connection.
 */
static enum rg_status send_raw(struct fault_conn *c, struct rg_frame frame, const void *data, size_t size)
{
    int fd = rg_conn_fd(c->head.next);
    if (fd < 0) {
        rg_error("filter fault: transport %s has no descriptor to write a broken frame to",
                 c->head.next->transport);
        return RG_ERR_UNSUPPORTED;
    }
    struct iovec parts[2] = {{&frame, sizeof frame}, {(void *)(uintptr_t)data, size}};
    struct msghdr mh = {.msg_iov = parts, .msg_iovlen = 2};
    /* a socket buffer takes this much; what it does not take is cut off as well */
    if (sendmsg(fd, &mh, MSG_NOSIGNAL) < 0)
        rg_debug("filter fault: %m");
    shutdown(fd, SHUT_WR);
    return RG_ERR_LOST;
}

static enum rg_status send_with_copy(struct fault_conn *c, const struct rg_send *m)
{
    free(c->outgo);
    c->outgo = malloc(m->msg_size + 1);
    if (!c->outgo)
        return RG_ERR_NO_MEMORY;
    gather(c->outgo, m->msg, m->n_msg);
    const struct iovec whole = {c->outgo, m->msg_size};
    if (c->n_sent == c->options.truncate_at && is_encrypted(c)) {
        begin_record(c);
        shutdown(rg_conn_fd(c->head.next), SHUT_WR);
        return RG_ERR_LOST;
    }
    if (c->n_sent == c->options.truncate_at)
        return send_raw(c, rg_frame_encode(m->msg_size, m->bulk_size), c->outgo, m->msg_size / 2);
    invert_byte(c->outgo, m->msg_size, c->options.byte);
    return rg_conn_send(c->head.next,
                        &(struct rg_send){.msg = &whole, .n_msg = 1, .bulk = m->bulk, .n_bulk = m->n_bulk});
}

static enum rg_status send_zero_bulk(struct fault_conn *c, const struct rg_send *m)
{
    void *zeros = calloc(1, m->bulk_size + 1);
    if (!zeros)
        return RG_ERR_NO_MEMORY;
    const struct iovec bulk = {zeros, m->bulk_size};
    enum rg_status status = rg_conn_send(
        c->head.next,
        &(struct rg_send){.msg = m->msg, .n_msg = m->n_msg, .bulk = &bulk, .n_bulk = m->bulk_size > 0});
    free(zeros);
    return status == RG_OK ? RG_ERR_FAULT : status;
}

/*
 * Writes the first `left` bytes of the whole message to the socket below and ends the connection. Where there
 * is none, every second message arrives all the same, which its sender cannot know.
 */
static enum rg_status cut_sending(struct fault_conn *c, struct rg_send *m, uint64_t left)
{
    const struct rg_frame frame = rg_frame_encode(m->msg_size, m->bulk_size);
    unsigned char *all = malloc(sizeof frame + m->msg_size + m->bulk_size);
    const int fd = rg_conn_fd(c->head.next);
    if (fd >= 0 && is_encrypted(c)) {
        if (left > 0)
            begin_record(c);
    } else if (all && fd >= 0) {
        memcpy(all, &frame, sizeof frame);
        gather(all + sizeof frame, m->msg, m->n_msg);
        gather(all + sizeof frame + m->msg_size, m->bulk, m->n_bulk);
        for (size_t sent = 0; sent < left;) {
            ssize_t n = send(fd, all + sent, left - sent, MSG_NOSIGNAL);
            if (n <= 0)
                break;
            sent += (size_t)n;
        }
    }
    free(all);
    if (fd < 0 && left % 2)
        (void)!rg_conn_send(c->head.next, m);
    rg_conn_interrupt(c->head.next);
    return RG_ERR_LOST;
}

/* Whether `size` bytes more are beyond the budget; counts them if they are not. */
static bool is_cut(const struct fault_conn *c, uint64_t *budget, bool *spare, uint64_t size)
{
    if (!c->options.cut_every)
        return false;
    if (*spare) {
        *spare = false;
        return false;
    }
    if (size > *budget)
        return true;
    *budget -= size;
    return false;
}

static enum rg_status fault_send(struct rg_conn *conn, struct rg_send *m)
{
    struct fault_conn *c = (struct fault_conn *)conn;
    const struct rg_fault_options *o = &c->options;
    if (c->n_sent >= o->send_close_after) {
        rg_conn_interrupt(c->head.next);
        return RG_ERR_CLOSED;
    }
    uint64_t n = ++c->n_sent;
    if (is_cut(c, &c->send_budget, &c->spare_send, sizeof(struct rg_frame) + m->msg_size + m->bulk_size))
        return cut_sending(c, m, c->send_budget);
    if (o->send_lost_at > 0 && n >= o->send_lost_at)
        return RG_ERR_LOST;
    if (n == o->send_delay_at)
        poll(NULL, 0, (int)(o->pause / 1000000u));
    struct rg_frame frame = rg_frame_encode(m->msg_size, m->bulk_size);
    if (n == o->bad_magic_at) {
        frame.magic = ~frame.magic;
        return send_raw(c, frame, NULL, 0);
    }
    if (n == o->oversize_at) {
        frame.msg_size = htole32(RG_MESSAGE_MAX + 1);
        return send_raw(c, frame, NULL, 0);
    }
    if (n == o->truncate_at || n == o->send_corrupt_at)
        return send_with_copy(c, m);
    if (n == o->send_fault_at)
        return send_zero_bulk(c, m);
    return rg_conn_send(c->head.next, m);
}

/* --- receiving --- */

static enum rg_status fault_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct fault_conn *c = (struct fault_conn *)conn;
    const struct rg_fault_options *o = &c->options;
    if (c->n_received >= o->recv_close_after) {
        rg_conn_interrupt(c->head.next);
        return RG_ERR_CLOSED;
    }
    if ((o->recv_lost_at > 0 && c->n_received + 1 >= o->recv_lost_at) || c->was_cut)
        return RG_ERR_LOST;
    RG_TRY(rg_conn_recv(c->head.next, timeout_ms, out));
    if (is_cut(c, &c->recv_budget, &c->spare_recv, sizeof(struct rg_frame) + out->size)) {
        c->was_cut = true;
        rg_conn_interrupt(c->head.next);
        return RG_ERR_LOST;
    }
    if (++c->n_received != o->recv_corrupt_at)
        return RG_OK;
    free(c->copy);
    c->copy = malloc(out->size + 1);
    if (!c->copy)
        return RG_ERR_LOST;
    memcpy(c->copy, out->data, out->size);
    invert_byte(c->copy, out->size, o->byte);
    out->data = c->copy;
    return RG_OK;
}

static enum rg_status fault_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct fault_conn *c = (struct fault_conn *)conn;
    bool spare = c->spare_recv;
    if (c->was_cut)
        return RG_ERR_LOST;
    if (!is_cut(c, &c->recv_budget, &spare, size))
        return rg_conn_recv_bulk(c->head.next, buffer, size);
    c->was_cut = true;
    enum rg_status status = c->recv_budget ? rg_conn_recv_bulk(c->head.next, buffer, c->recv_budget) : RG_OK;
    rg_conn_interrupt(c->head.next);
    return status == RG_OK || status == RG_ERR_FAULT ? RG_ERR_LOST : status;
}

/* --- the rest --- */

static void fault_interrupt(struct rg_conn *conn)
{
    rg_conn_interrupt(conn->next);
}

static void fault_destroy(struct rg_conn *conn)
{
    struct fault_conn *c = (struct fault_conn *)conn;
    rg_conn_destroy(c->head.next);
    free(c->copy);
    free(c->outgo);
    free(c);
}

static int fault_fd(const struct rg_conn *conn)
{
    return rg_conn_fd(conn->next);
}

static enum rg_status fault_register(struct rg_conn *conn, void *base, size_t size)
{
    return rg_conn_register(conn->next, base, size);
}

static void fault_unregister(struct rg_conn *conn, void *base)
{
    rg_conn_unregister(conn->next, base);
}

static enum rg_status fault_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                      size_t size)
{
    return rg_conn_advertise(conn->next, tag, base, memory, size);
}

static void fault_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    rg_conn_withdraw(conn->next, tag, memory);
}

static enum rg_status fault_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct fault_conn *c = (struct fault_conn *)conn;
    if (c->was_cut)
        return RG_ERR_LOST;
    const enum rg_status status = rg_conn_take_advertised(c->head.next, most, memory, size);
    bool spare = c->spare_recv;
    if (status == RG_OK && is_cut(c, &c->recv_budget, &spare, *size)) { /* behind this piece */
        c->was_cut = true;
        rg_conn_interrupt(c->head.next);
    }
    return status;
}

static bool fault_has_advertised(struct rg_conn *conn, size_t size)
{
    return rg_conn_has_advertised(conn->next, size);
}

static void fault_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    rg_conn_get_statistics(conn->next, out);
}

static enum rg_status fault_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys)
{
    return rg_conn_tls_export(conn->next, keys);
}

/* A random number below `limit`, from a sequence (splitmix64). */
static uint64_t draw(uint64_t *state, uint64_t limit)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % limit;
}

static void draw_budgets(struct fault_conn *c)
{
    static atomic_uint_fast64_t n_connections;
    const uint64_t number = atomic_fetch_add(&n_connections, 1);
    uint64_t state = c->options.seed * 1000003u + number;
    if (!c->options.cut_every)
        return;
    c->spare_send = c->spare_recv = number == 0;
    c->send_budget = draw(&state, 2 * c->options.cut_every);
    c->recv_budget = draw(&state, 2 * c->options.cut_every);
}

static enum rg_status fault_wrap(struct rg_conn *next, const char *text, struct rg_conn **out)
{
    struct fault_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    char why[64];
    enum rg_status status = rg_fault_options_parse(text, &c->options, why, sizeof why);
    if (status != RG_OK) {
        free(c);
        return status;
    }
    draw_budgets(c);
    c->head.next = next;
    c->head.caps = next->caps;
    *out = &c->head;
    return RG_OK;
}

static struct rg_transport_ops fault_ops = {
    .name = "fault",
    .send = fault_send,
    .recv = fault_recv,
    .recv_bulk = fault_recv_bulk,
    .interrupt = fault_interrupt,
    .destroy = fault_destroy,
    .fd = fault_fd,
    .register_memory = fault_register,
    .unregister_memory = fault_unregister,
    .advertise = fault_advertise,
    .withdraw = fault_withdraw,
    .take_advertised = fault_take_advertised,
    .has_advertised = fault_has_advertised,
    .statistics = fault_statistics,
    .tls_export = fault_tls_export,
};

const struct rg_filter rg_filter_fault = {
    .name = "fault",
    .ops = &fault_ops,
    .check = fault_check,
    .wrap = fault_wrap,
};
