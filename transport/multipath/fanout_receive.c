/*
 * fanout_receive.c - messages in: what the first connection brings, and where their bulk data comes from.
 *
 * Nothing is believed: an announcement of bulk data is the next one of its direction and names channels that
 * may exist, or the connection ends with RG_ERR_PROTOCOL. Threads: the receiver; what the readers of rails
 * look at is under the lock.
 */
#include "transport/multipath/fanout.h"

#include <string.h>

enum rg_status rg_fanout_fail(struct rg_fanout *f, const struct rg_channel *channel, enum rg_status status)
{
    pthread_mutex_lock(&f->lock);
    if (status == RG_ERR_CLOSED && !f->interrupted)
        status = RG_ERR_LOST; /* in the middle of a message */
    pthread_mutex_unlock(&f->lock);
    rg_fanout_break(f, channel, status, "receiving");
    return f->recv_failed = status;
}

enum rg_status rg_fanout_violation(struct rg_fanout *f, const struct rg_channel *channel, const char *what)
{
    rg_error("%s sent %s", f->head.peer, what);
    return rg_fanout_fail(f, channel, RG_ERR_PROTOCOL);
}

/* A message whose bulk data comes by channels. */
static enum rg_status take_head(struct rg_fanout *f, struct rg_message *message, unsigned *wanted)
{
    struct rg_out_of_band head;
    if (message->bulk_size || message->size < sizeof head)
        return rg_fanout_violation(f, NULL, "a malformed announcement of bulk data");
    memcpy(&head, message->data, sizeof head);
    static const uint8_t zeros[sizeof head.reserved];
    const unsigned pieces = (head.bulk_size + RG_PIECE - 1) / RG_PIECE;
    bool good = head.version == RG_PROTOCOL_MAJOR && head.bulk_size && head.bulk_size <= RG_BULK_MAX &&
                head.number == f->received_number + 1 && memcmp(head.reserved, zeros, sizeof zeros) == 0;
    for (unsigned i = 0; i < RG_PIECES_MAX && good; i++) {
        const unsigned channel = rg_fanout_channel_of(head.route, i);
        good = i < pieces ? channel < f->most : channel == 0;
    }
    if (!good)
        return rg_fanout_violation(f, NULL, "an impossible announcement of bulk data");
    pthread_mutex_lock(&f->lock);
    f->received_number = head.number;
    f->out_of_band = true;
    f->route = head.route;
    f->total = head.bulk_size;
    f->taken = 0;
    if (f->kind->begin)
        f->kind->begin(f);
    pthread_mutex_unlock(&f->lock);
    message->data = (const unsigned char *)message->data + sizeof head;
    message->size -= sizeof head;
    message->bulk_size = head.bulk_size;
    *wanted = head.wanted;
    return RG_OK;
}

enum rg_status rg_fanout_recv(struct rg_fanout *f, int timeout_ms, struct rg_message *out, unsigned *wanted)
{
    *wanted = 0;
    if (f->recv_failed != RG_OK)
        return f->recv_failed;
    enum rg_status status = rg_conn_recv(f->first, timeout_ms, out);
    if (status != RG_OK) {
        if (status != RG_ERR_TIMEOUT)
            f->recv_failed = status;
        return status;
    }
    uint16_t kind = 0;
    if (out->size >= sizeof kind)
        memcpy(&kind, out->data, sizeof kind);
    if (kind == RG_MESSAGE_OUT_OF_BAND)
        return take_head(f, out, wanted);
    if (f->out_of_band) {
        pthread_mutex_lock(&f->lock);
        f->out_of_band = false;
        pthread_mutex_unlock(&f->lock);
    }
    return RG_OK;
}
