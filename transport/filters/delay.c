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
 * bandwidth, and arrives `oneway` later. Order is kept within a connection. Connections share the link as
 * fair queueing would have it: a small message of a connection that has nothing else under way does not wait
 * for the data of others.
 *
 * Where there is a rate, a send waits as it would for a socket: until no more than UNSENT_BYTES are still to
 * leave, or less on a slow link. The queues are bounded besides (QUEUE_BYTES).
 *
 * Closing: what was sent before rg_conn_destroy is still delivered, as TCP would; at most LINGER_MS beyond
 * the delay are spent on a peer that does not take it. A failure below reaches the sender at its next send
 * and the receiver after what arrived before it.
 *
 * Threads: `outbound` and `inbound` are the filter's; they touch the queues, the connection below, and their
 * own flow's clock only. A shared link has a lock.
 */
#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "transport/filters/option.h"
#include "transport/operations.h"
#include "transport/queue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum direction { OUT, IN };

enum {
    QUEUE_BYTES = 64 << 20,
    LINGER_MS = 2000,
    FRAME_BYTES = 16,
    /*
     * what a socket takes beyond what has left: so many bytes, but on slow links only what leaves in so many
     * ns
     */
    UNSENT_BYTES = 1 << 20,
    UNSENT_LEAST = 128 << 10,
    UNSENT_NS = 1000000,
    SPARSE_BYTES = 16 << 10, /* messages that overtake the data of other connections */
};

/*
 * What all connections of this process with the same options share; there is one where they have a bandwidth.
 */
struct link {
    struct link *next;
    char *options;
    unsigned users;
    uint64_t free_ns[2]; /* when the last byte so far has left, out and in */
};

static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;
static struct link *links; /* links_lock, with all that is in them */

/* One direction of a connection. */
struct flow {
    uint64_t free_ns; /* when the last byte so far has left */
};

struct delay_options {
    uint64_t oneway_ns;
    uint64_t bytes_per_second; /* of the link; 0: no limit */
    uint64_t flow_per_second;  /* of each connection; 0: no limit */
};

struct delay_conn {
    struct rg_conn head;
    struct delay_options options;
    struct rg_queue out, in;
    struct link *link;    /* NULL: no limit in common */
    struct flow flows[2]; /* out: the sender's; in: the inbound thread's */
    pthread_t outbound, inbound;
    pthread_mutex_t done_lock;
    pthread_cond_t done;
    bool outbound_done;        /* done_lock */
    struct rg_parcel *current; /* the receiver's */
};

static enum rg_status parse_options(const char *text, struct delay_options *out, char *why, size_t why_size)
{
    struct delay_options options = {0};
    struct rg_filter_option option;
    enum rg_status status;
    for (const char *cur = text; rg_filter_option_next(&cur, &option, &status, why, why_size);) {
        if (strcmp(option.key, "oneway") == 0) {
            status = rg_parse_duration(option.value, &options.oneway_ns, why, why_size);
        } else if (strcmp(option.key, "bandwidth") == 0) {
            status = rg_parse_bandwidth(option.value, &options.bytes_per_second, why, why_size);
        } else if (strcmp(option.key, "flow") == 0) {
            status = rg_parse_bandwidth(option.value, &options.flow_per_second, why, why_size);
        } else {
            rg_explain(why, why_size, "there is no option '%s' (oneway, bandwidth, flow)", option.key);
            status = RG_ERR_INVALID;
        }
        if (status != RG_OK)
            return status;
    }
    if (status == RG_OK && options.oneway_ns > 60ull * 1000000000u) {
        rg_explain(why, why_size, "oneway is more than a minute");
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK)
        *out = options;
    return status;
}

static enum rg_status delay_check(const char *text, char *why, size_t why_size)
{
    struct delay_options options;
    return parse_options(text, &options, why, why_size);
}

/* --- links --- */

static struct link *find_link(const char *options)
{
    for (struct link *link = links; link; link = link->next)
        if (strcmp(link->options, options) == 0)
            return link;
    return NULL;
}

/* The link of connections with these options; NULL: out of memory. */
static struct link *join_link(const char *options)
{
    pthread_mutex_lock(&links_lock);
    struct link *link = find_link(options);
    if (!link && (link = calloc(1, sizeof *link))) {
        link->options = strdup(options);
        link->next = links;
        if (link->options)
            links = link;
        else
            free(link), link = NULL;
    }
    if (link)
        link->users++;
    pthread_mutex_unlock(&links_lock);
    return link;
}

static void leave_link(struct link *link)
{
    if (!link)
        return;
    pthread_mutex_lock(&links_lock);
    if (--link->users == 0) {
        struct link **at = &links;
        while (*at != link)
            at = &(*at)->next;
        *at = link->next;
        free(link->options);
        free(link);
    }
    pthread_mutex_unlock(&links_lock);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t time_for(uint64_t size, uint64_t bytes_per_second)
{
    return bytes_per_second ? (uint64_t)((unsigned __int128)size * 1000000000u / bytes_per_second) : 0;
}

/* How far a send may be ahead of the link. */
static uint64_t unsent_time(uint64_t bytes_per_second)
{
    const uint64_t most = time_for(UNSENT_BYTES, bytes_per_second),
                   least = time_for(UNSENT_LEAST, bytes_per_second);
    return most < UNSENT_NS ? most : later(least, UNSENT_NS);
}

/* When the last byte of a message that is sent now has left; *go_on: when its sender may go on. */
static uint64_t departure(struct delay_conn *c, int direction, const struct rg_parcel *parcel,
                          uint64_t *go_on)
{
    const uint64_t now = rg_now_ns(), size = parcel->msg_size + parcel->bulk_size + FRAME_BYTES;
    struct flow *flow = &c->flows[direction];
    const bool sparse = flow->free_ns <= now && size <= SPARSE_BYTES;
    uint64_t left = later(flow->free_ns, now) + time_for(size, c->options.flow_per_second);
    uint64_t slack = c->options.flow_per_second ? unsent_time(c->options.flow_per_second) : UINT64_MAX;
    if (c->link) {
        const uint64_t cost = time_for(size, c->options.bytes_per_second);
        pthread_mutex_lock(&links_lock);
        uint64_t *free_ns = &c->link->free_ns[direction];
        *free_ns = later(*free_ns, now) + cost;
        left = later(left, sparse ? now + cost : *free_ns);
        pthread_mutex_unlock(&links_lock);
        const uint64_t link_slack = unsent_time(c->options.bytes_per_second);
        slack = link_slack < slack ? link_slack : slack;
    }
    flow->free_ns = later(flow->free_ns, left);
    *go_on = left > slack ? left - slack : 0;
    return left;
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
    parcel->due_ns = departure(c, OUT, parcel, &go_on) + c->options.oneway_ns;
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
    pthread_mutex_lock(&c->done_lock);
    c->outbound_done = true;
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->done_lock);
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
    parcel->due_ns = departure(c, IN, parcel, &go_on) + c->options.oneway_ns;
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
    if (c->flows[OUT].free_ns > until)
        until = c->flows[OUT].free_ns;
    until += c->options.oneway_ns + (uint64_t)LINGER_MS * 1000000u;
    const struct timespec t = rg_timespec(until);
    pthread_mutex_lock(&c->done_lock);
    int error = 0;
    while (!c->outbound_done && error == 0)
        error = pthread_cond_timedwait(&c->done, &c->done_lock, &t);
    pthread_mutex_unlock(&c->done_lock);
}

static void free_conn(struct delay_conn *c)
{
    rg_queue_fini(&c->out);
    rg_queue_fini(&c->in);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->done_lock);
    leave_link(c->link);
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
    const int size = UNSENT_LEAST, fd = rg_conn_fd(next);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static enum rg_status delay_wrap(struct rg_conn *next, const char *text, struct rg_conn **out)
{
    struct delay_conn *c = calloc(1, sizeof *c);
    if (!c)
        return RG_ERR_NO_MEMORY;
    char why[64];
    enum rg_status status = parse_options(text, &c->options, why, sizeof why);
    if (status == RG_OK && c->options.bytes_per_second && !(c->link = join_link(text)))
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
