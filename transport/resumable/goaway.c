/*
 * goaway.c - ends that are meant: the words that come before one, saying them and finding them. See
 * internal.h.
 */
#include "transport/resumable/internal.h"

#include "common/base/clock.h"
#include "common/base/poll.h"
#include "common/sync/scoped_lock.h"
#include "proto/wire.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    GOAWAY_NS = 1000000000, /* how long who leaves waits for what others are sending */
};

/* --- the peer's --- */

/* More than the keepalive of a living peer takes, and less than the silence after which the connection is lost. */
static uint32_t heard_within_ms(int fd)
{
    static const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT};
    int value[3] = {0};
    for (unsigned i = 0; i < 3; i++) {
        socklen_t size = sizeof value[i];
        (void)getsockopt(fd, IPPROTO_TCP, names[i], &value[i], &size);
    }
    return ((uint32_t)value[0] + (uint32_t)value[1] * (uint32_t)value[2]) * 750u;
}

bool rg_resumable_heard_lately(const struct rg_conn *conn)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    const int fd = conn ? rg_conn_fd(conn) : -1;
    if (fd < 0)
        return false;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return true; /* a unix socket: the kernel itself ended it */
    return info.tcpi_last_ack_recv < heard_within_ms(fd);
}

/*
 * A control message is the last that a worker says, and why it ends; anything else comes again by the next
 * link.
 */
static void keep_last_words(struct rg_resumable *c, const void *data, size_t size)
{
    struct rg_message_header header = {0};
    if (size >= sizeof header)
        memcpy(&header, data, sizeof header);
    if (header.kind != RG_MESSAGE_CONTROL || c->last_words)
        return;
    c->last_words = malloc(size);
    if (!c->last_words)
        return;
    memcpy(c->last_words, data, size);
    c->last_words_size = size;
}

bool rg_resumable_is_word(const struct rg_message *message, enum rg_resumable_kind kind)
{
    struct rg_resumable_header header;
    if (message->size != sizeof header || message->bulk_size)
        return false;
    memcpy(&header, message->data, sizeof header);
    return header.kind == kind;
}

/*
 * A peer that leaves, or says why it ends, closes at once, so a send may fail before anybody has read that.
 * Reads on for it. What else is found is not counted: if the peer does come back, it sends it again. Under
 * the lock. Does nothing while somebody receives, or where something that lies in the link is in use.
 */
void rg_resumable_look_for_last_words(struct rg_resumable *c)
{
    struct rg_message message;
    struct rg_resumable_header header;
    if (c->has_ready)
        keep_last_words(c, c->ready.data, c->ready.size);
    if (rg_resumable_is_read(c) || c->in_use || c->in_bulk)
        return;
    while (!c->peer_says_goaway && !c->link->bulk_left && rg_conn_recv(c->link, 0, &message) == RG_OK &&
           !message.bulk_size && message.size >= sizeof header) {
        memcpy(&header, message.data, sizeof header);
        if (header.kind == RG_RESUMABLE_DATA)
            keep_last_words(c, (const unsigned char *)message.data + sizeof header,
                            message.size - sizeof header);
        c->peer_says_goaway = rg_resumable_is_word(&message, RG_RESUMABLE_GOAWAY);
    }
}

enum rg_resumable_peer rg_resumable_peer(int control_fd)
{
    struct pollfd p = {.fd = control_fd, .events = POLLRDHUP};
    if (control_fd < 0)
        return RG_PEER_UNKNOWN;
    return rg_poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLERR)) == POLLRDHUP ? RG_PEER_GONE
                                                                                      : RG_PEER_LIVES;
}

/* --- this side's --- */

/* Waits until a word of ours would be taken, with the right to send, which is free. Gives up the lock. */
static bool await_writable(struct rg_resumable *c, uint64_t until_ns)
{
    struct pollfd p = {.fd = rg_conn_fd(c->link), .events = POLLOUT};
    if (!rg_resumable_shows_end(c->link))
        return true;
    const uint64_t now = rg_now_ns();
    c->sending = true;
    pthread_mutex_unlock(&c->lock);
    const int n = rg_poll(&p, 1, until_ns > now ? (int)((until_ns - now) / 1000000u) : 0);
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    return n == 1 && p.revents == POLLOUT && c->state == RG_RESUMABLE_UP;
}

/*
 * Waits until all has been sent: what a socket still has to send goes with it if it is closed while it has
 * something to be read. The right to send is free, and nobody takes it. Gives up the lock.
 */
static void await_sent(struct rg_resumable *c, uint64_t until_ns)
{
    const int fd = rg_conn_fd(c->link);
    int left = 0;
    c->visitors++; /* the link stays */
    pthread_mutex_unlock(&c->lock);
    while (ioctl(fd, SIOCOUTQNSD, &left) == 0 && left > 0 &&
           rg_now_ns() < until_ns) /* a unix socket: never */
        (void)rg_poll(NULL, 0, 1);
    pthread_mutex_lock(&c->lock);
    c->visitors--;
}

/* By the link; threads that go on sending do not keep the right to for ever. */
static void say_goaway(struct rg_resumable *c)
{
    const uint64_t until = rg_now_ns() + GOAWAY_NS;
    c->turn_wanted = true;
    while (c->state == RG_RESUMABLE_UP && c->sending && rg_now_ns() < until)
        rg_resumable_sleep(c, until);
    if (c->state == RG_RESUMABLE_UP && !c->sending && await_writable(c, until)) {
        rg_resumable_say(c, RG_RESUMABLE_GOAWAY);
        if (c->state == RG_RESUMABLE_UP)
            await_sent(c, until);
    }
    c->turn_wanted = false;
    rg_resumable_changed(c);
}

void rg_resumable_renounce(struct rg_conn *conn)
{
    const struct rg_resumable_header header = {.kind = RG_RESUMABLE_GOAWAY};
    const struct iovec part = {(void *)(uintptr_t)&header, sizeof header};
    (void)!rg_conn_send(
        conn, &(struct rg_send){.msg = &part, .n_msg = 1}); /* one that has ended: so it is taken for lost */
}

/*
 * By the control connection, if there is one: the kernel delivers what was sent there, and then tells of the
 * end, also when this process is gone, while what a link without a descriptor has not sent by then goes with
 * it.
 */
void rg_resumable_goaway(struct rg_conn *conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    if (!c)
        return;
    RG_SCOPED_LOCK(&c->lock);
    c->says_goaway = true;
    if (c->control_conn && c->link && !rg_resumable_shows_end(c->link) &&
        rg_resumable_is_writable(c->control_conn))
        rg_resumable_renounce(c->control_conn); /* if it has ended, the reconnector notices */
    else
        say_goaway(c);
}

void rg_resumable_set_final(struct rg_conn *conn)
{
    struct rg_resumable *c = rg_resumable_of(conn);
    if (!c)
        return;
    RG_SCOPED_LOCK(&c->lock);
    c->final = true;
    if (c->state == RG_RESUMABLE_BROKEN)
        rg_resumable_end(c, c->loss.status);
}
