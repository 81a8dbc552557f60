/*
 * delay.c - filter delay: a slower, longer link.
 *
 *   oneway=DURATION      each message arrives so much later, in each direction (2ms, 50us)
 *   bandwidth=BANDWIDTH  the link carries no more in each direction (10Gb, 1.5GB): all connections of this process that
 *                        have the filter with these options share it
 *   flow=BANDWIDTH       each connection carries no more in each direction, as where one connection does not fill a link
 *
 * Either end may have the filter; it delays what it sends and what it receives, so only one end should. A
 * send copies the message into a queue and returns; a thread hands it to the connection below when its time
 * has come. Another thread takes in what arrives below, and a receive gets it when its time has come. A
 * message's time is when its last byte has crossed the link: it starts when the link is free, takes size /
 * bandwidth, and arrives `oneway` later (delay_link.h). Order is kept within a connection.
 *
 * Where there is a rate, a send waits as it would for a socket: until no more than a socket's buffer is still to
 * leave, or less on a slow link. The queues are bounded besides (QUEUE_BYTES).
 *
 * Closing: what was sent before rg_conn_destroy is still delivered, as TCP would; at most LINGER_MS beyond
 * the delay are spent on a peer that does not take it. A failure below reaches the sender at its next send
 * and the receiver after what arrived before it.
 *
 * Threads: `outbound` and `inbound` are the filter's; they touch the queues, the connection below, and their
 * own flow's clock only.
 */
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "transport/filters/delay_link.h"
#include "transport/operations.h"
#include "transport/queue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    QUEUE_BYTES = 64 << 20,
    LINGER_MS = 2000,
};

struct delay_conn {
    struct rg_conn head;
    struct rg_delay_options options;
    struct rg_parcel_queue out, in;
    struct rg_delay_link *link;    /* NULL: no limit in common */
    struct rg_delay_flow flows[2]; /* out: the sender's; in: the inbound thread's */
    pthread_t outbound, inbound;
    pthread_mutex_t done_lock;
    pthread_cond_t done;
    bool outbound_done;        /* done_lock */
    struct rg_parcel *current; /* the receiver's */
};

static enum rg_status delay_check(const char *text, char *why, size_t why_size)
{
    struct rg_delay_options options;
    return rg_delay_options_read(text, &options, why, why_size);
}

/* When the last byte of a message that is sent now has left; *go_on: when its sender may go on. */
static uint64_t departure(struct delay_conn *c, enum rg_delay_direction direction,
                          const struct rg_parcel *parcel, uint64_t *go_on)
{
    return rg_delay_departure(c->link, &c->flows[direction], &c->options, direction,
                              parcel->msg_size + parcel->bulk_size, go_on);
}

/* --- outbound --- */

static enum rg_status delay_send(struct rg_conn *conn, struct rg_send *message)
{
    struct delay_conn *c = (struct delay_conn *)conn;
    bool fault;
    struct rg_parcel *parcel = rg_parcel_pack(message, &fault);
    if (!parcel)
        return RG_ERR_NO_MEMORY;
    uint64_t go_on;
    parcel->due_ns = departure(c, RG_DELAY_OUT, parcel, &go_on) + c->options.oneway_ns;
    enum rg_status status = rg_queue_push(&c->out, parcel);
    if (status == RG_OK)
        rg_queue_pause(&c->out, go_on);
    return status == RG_OK && fault ? RG_ERR_FAULT : status;
}

static void *run_outbound(void *arg)
{
    struct delay_conn *c = arg;
    struct rg_parcel *parcel;
    enum rg_status end;
    rg_thread_sleep_precisely();
    rg_thread_expect_little();
    while ((end = rg_queue_pop(&c->out, -1, &parcel)) == RG_OK) {
        const struct iovec msg = {parcel->data, parcel->msg_size};
        const struct iovec bulk = {parcel->bulk, parcel->bulk_size};
        enum rg_status status = rg_conn_send(
            c->head.next,
            &(struct rg_send){.msg = &msg, .n_msg = 1, .bulk = &bulk, .n_bulk = parcel->bulk_size > 0});
        free(parcel);
        if (status != RG_OK) {
            rg_queue_stop(&c->out, status);
            break;
        }
    }
    /* this side has ended and all of it is on its way: now the peer may see the end, and `inbound` stops
     * waiting */
    if (end != RG_OK)
        rg_conn_interrupt(c->head.next);
    RG_SCOPED_LOCK(&c->done_lock);
    c->outbound_done = true;
    pthread_cond_broadcast(&c->done);
    return NULL;
}

/* --- inbound --- */

static enum rg_status take_in(struct delay_conn *c)
{
    struct rg_message message;
    RG_TRY(rg_conn_recv(c->head.next, -1, &message));
    struct rg_parcel *parcel = rg_parcel_create(message.size, message.bulk_size);
    if (!parcel)
        return RG_ERR_LOST;
    if (message.size > 0)
        memcpy(parcel->data, message.data, message.size);
    enum rg_status status = rg_conn_recv_bulk(c->head.next, parcel->bulk, message.bulk_size);
    if (status != RG_OK) {
        free(parcel);
        return status;
    }
    uint64_t go_on;
    parcel->due_ns = departure(c, RG_DELAY_IN, parcel, &go_on) + c->options.oneway_ns;
    status = rg_queue_push(&c->in, parcel);
    if (status == RG_OK)
        rg_queue_pause(&c->in, go_on);
    return status;
}

static void *run_inbound(void *arg)
{
    struct delay_conn *c = arg;
    enum rg_status status;
    do
        status = take_in(c);
    while (status == RG_OK);
    rg_queue_end(&c->in, status);
    return NULL;
}

static enum rg_status delay_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct delay_conn *c = (struct delay_conn *)conn;
    struct rg_parcel *parcel;
    RG_TRY(rg_queue_pop(&c->in, timeout_ms, &parcel));
    free(c->current);
    c->current = parcel;
    *out =
        (struct rg_message){.data = parcel->data, .size = parcel->msg_size, .bulk_size = parcel->bulk_size};
    return RG_OK;
}

static enum rg_status delay_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    return rg_parcel_take_bulk(((struct delay_conn *)conn)->current, buffer, size);
}

/* --- the rest --- */

/* Ends this side; what is queued to go out still goes. */
static void delay_interrupt(struct rg_conn *conn)
{
    struct delay_conn *c = (struct delay_conn *)conn;
    rg_queue_interrupt_push(&c->out);
    rg_queue_interrupt_pop(&c->in);
    rg_queue_end(&c->out, RG_ERR_CLOSED);
    rg_queue_stop(&c->in, RG_ERR_CLOSED);
}

static void wait_outbound_done(struct delay_conn *c)
{
    uint64_t until = rg_now_ns();
    if (c->flows[RG_DELAY_OUT].free_ns > until)
        until = c->flows[RG_DELAY_OUT].free_ns;
    until += c->options.oneway_ns + (uint64_t)LINGER_MS * 1000000u;
    const struct timespec t = rg_timespec(until);
    RG_SCOPED_LOCK(&c->done_lock);
    int error = 0;
    while (!c->outbound_done && error == 0)
        error = pthread_cond_timedwait(&c->done, &c->done_lock, &t);
}

static void free_conn(struct delay_conn *c)
{
    rg_queue_fini(&c->out);
    rg_queue_fini(&c->in);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->done_lock);
    rg_delay_link_leave(c->link);
    free(c->current);
    free(c);
}

static void delay_destroy(struct rg_conn *conn)
{
    struct delay_conn *c = (struct delay_conn *)conn;
    delay_interrupt(conn);
    wait_outbound_done(c);
    rg_conn_interrupt(c->head.next);
    pthread_join(c->outbound, NULL);
    pthread_join(c->inbound, NULL);
    rg_conn_destroy(c->head.next);
    free_conn(c);
}

/* What the peer has sent should wait at the peer, as on a slow link, not in this machine's kernel. */
static void bound_kernel(struct rg_conn *next)
{
    const int size = RG_DELAY_UNSENT_LEAST, fd = rg_conn_fd(next);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static enum rg_status delay_wrap(struct rg_conn *next, const char *text, struct rg_conn **out)
{
    struct delay_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    char why[64];
    enum rg_status status = rg_delay_options_read(text, &c->options, why, sizeof why);
    if (status == RG_OK && c->options.bytes_per_second && !(c->link = rg_delay_link_join(text)))
        status = RG_ERR_NO_MEMORY;
    if (status != RG_OK) {
        free(c);
        return status;
    }
    c->head.next = next;
    rg_queue_init(&c->out, QUEUE_BYTES);
    c->out.precise = true;
    rg_queue_init(&c->in, QUEUE_BYTES);
    pthread_mutex_init(&c->done_lock, NULL);
    rg_cond_init(&c->done);
    if (rg_thread_create(&c->outbound, "rg-delay-out", run_outbound, c) != RG_OK) {
        free_conn(c);
        return RG_ERR_NO_MEMORY;
    }
    rg_conn_set_read_ahead(next);
    if (c->options.bytes_per_second || c->options.flow_per_second)
        bound_kernel(next);
    if (rg_thread_create(&c->inbound, "rg-delay-in", run_inbound, c) != RG_OK) {
        rg_queue_end(&c->out, RG_ERR_CLOSED);
        pthread_join(c->outbound, NULL);
        free_conn(c);
        return RG_ERR_NO_MEMORY;
    }
    *out = &c->head;
    return RG_OK;
}

static struct rg_transport_ops delay_ops = {
    .name = "delay",
    .send = delay_send,
    .recv = delay_recv,
    .recv_bulk = delay_recv_bulk,
    .interrupt = delay_interrupt,
    .destroy = delay_destroy,
};

const struct rg_filter rg_filter_delay = {
    .name = "delay",
    .ops = &delay_ops,
    .check = delay_check,
    .wrap = delay_wrap,
};
