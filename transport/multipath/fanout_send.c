/*
 * fanout_send.c - messages out: the head on the first connection, the pieces on their channels.
 *
 * The head settles which channel carries which piece. The pieces of one message are sent when it is its turn,
 * by the thread that sends the message and, where several channels take part, by a thread of each of the
 * others, which is started when it is first needed. Where no thread can be had, the sender does that part
 * too.
 */
#include "transport/multipath/fanout.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <string.h>

enum { MSG_PARTS = 16 };

bool rg_fanout_fits(const struct rg_fanout *f, const struct rg_send *send)
{
    return send->bulk_size >= f->kind->least &&
           send->msg_size <= RG_MESSAGE_MAX - sizeof(struct rg_out_of_band) && send->n_msg < MSG_PARTS &&
           send->n_bulk <= RG_FANOUT_ROWS;
}

enum rg_status rg_fanout_send_head(struct rg_fanout *f, struct rg_send *send)
{
    struct rg_out_of_band head = {.kind = RG_MESSAGE_OUT_OF_BAND,
                                  .version = RG_PROTOCOL_MAJOR,
                                  .bulk_size = (uint32_t)send->bulk_size,
                                  .number = f->last_number + 1};
    pthread_mutex_lock(&f->lock);
    enum rg_status status = f->send_failed;
    const unsigned n = atomic_load(&f->n_channels);
    bool any = false;
    for (unsigned i = 0; i < n; i++)
        any |= !f->channels[i]->dropped;
    if (status == RG_OK && !any)
        status = RG_ERR_LOST;
    head.wanted = (uint8_t)f->wanted;
    if (status == RG_OK)
        head.route = rg_fanout_schedule(f, head.number, send->bulk_size);
    pthread_mutex_unlock(&f->lock);
    if (status != RG_OK)
        return status;
    struct iovec parts[MSG_PARTS] = {{&head, sizeof head}};
    memcpy(parts + 1, send->msg, (size_t)send->n_msg * sizeof *parts);
    f->last_number = send->number = head.number;
    send->route = head.route;
    status = rg_conn_send(f->first, &(struct rg_send){.msg = parts, .n_msg = send->n_msg + 1});
    if (status != RG_OK)
        rg_fanout_break(f, NULL, status, "sending");
    send->detached = status == RG_OK && send->detachable;
    return status;
}

int rg_fanout_slice(const struct rg_send *send, size_t offset, size_t size, struct iovec *out)
{
    int n = 0;
    for (int i = 0; i < send->n_bulk && size; i++) {
        const struct iovec *part = &send->bulk[i];
        if (offset >= part->iov_len) {
            offset -= part->iov_len;
            continue;
        }
        const size_t taken = part->iov_len - offset < size ? part->iov_len - offset : size;
        out[n++] = (struct iovec){(char *)part->iov_base + offset, taken};
        size -= taken;
        offset = 0;
    }
    return n;
}

/* Sends what of a message belongs to a channel, and takes the channel off those that are waited for. */
static void send_part(struct rg_channel *channel, struct rg_sending *sending)
{
    struct rg_fanout *f = channel->fanout;
    const uint64_t since = rg_now_ns();
    size_t bytes = 0;
    const enum rg_status worst = f->kind->send_part(channel, sending, &bytes);
    const bool failed = worst != RG_OK && worst != RG_ERR_FAULT;
    if (failed)
        rg_fanout_break(f, channel, worst, "sending");
    const uint64_t ns = rg_now_ns() - since;
    RG_SCOPED_LOCK(&f->lock);
    channel->sent += bytes;
    channel->ns += ns;
    if (sending->status == RG_OK || failed)
        sending->status = worst;
    channel->sending = NULL;
    sending->channels_left--;
    pthread_cond_broadcast(&f->changed);
    if (channel->dropped)
        pthread_cond_broadcast(&f->upkeep);
}

static void *channel_main(void *arg)
{
    struct rg_channel *channel = arg;
    struct rg_fanout *f = channel->fanout;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!channel->sending && !f->ending)
            pthread_cond_wait(&channel->wake, &f->lock);
        struct rg_sending *sending = channel->sending;
        if (!sending)
            break;
        pthread_mutex_unlock(&f->lock);
        send_part(channel, sending);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Gives a channel's part to its thread; false: there is none to be had. */
static bool give(struct rg_channel *channel, struct rg_sending *sending)
{
    if (!channel->thread_runs)
        channel->thread_runs =
            rg_thread_create(&channel->thread, "rg-channel", channel_main, channel) == RG_OK;
    if (!channel->thread_runs)
        return false;
    RG_SCOPED_LOCK(&channel->fanout->lock);
    channel->sending = sending;
    pthread_cond_signal(&channel->wake);
    return true;
}

enum rg_status rg_fanout_begin(struct rg_fanout *f, const struct rg_send *send)
{
    RG_SCOPED_LOCK(&f->lock);
    while (f->turn != send->number && f->send_failed == RG_OK)
        pthread_cond_wait(&f->changed, &f->lock);
    return f->send_failed;
}

void rg_fanout_send_pieces(struct rg_fanout *f, struct rg_sending *sending)
{
    bool takes_part[RG_FANOUT_CHANNELS] = {false};
    const uint64_t route = sending->send->route;
    for (unsigned i = 0; i * (size_t)RG_PIECE < sending->send->bulk_size; i++)
        takes_part[rg_fanout_channel_of(route, i)] = true;
    for (unsigned i = 0; i < RG_FANOUT_CHANNELS; i++)
        sending->channels_left += takes_part[i];
    const unsigned own = rg_fanout_channel_of(route, 0);
    for (unsigned i = 0; i < RG_FANOUT_CHANNELS; i++)
        takes_part[i] = takes_part[i] && i != own && !give(f->channels[i], sending);
    send_part(f->channels[own], sending);
    for (unsigned i = 0; i < RG_FANOUT_CHANNELS; i++)
        if (takes_part[i]) /* without a thread of its own */
            send_part(f->channels[i], sending);
    RG_SCOPED_LOCK(&f->lock);
    while (sending->channels_left)
        pthread_cond_wait(&f->changed, &f->lock);
}

enum rg_status rg_fanout_end(struct rg_fanout *f, const struct rg_sending *sending, uint64_t ns)
{
    enum rg_status status = sending->status;
    RG_SCOPED_LOCK(&f->lock);
    rg_fanout_rate(f, sending->send->bulk_size, ns);
    f->turn++;
    if (status != RG_OK && status != RG_ERR_FAULT && f->send_failed != RG_OK)
        status = f->send_failed;
    pthread_cond_broadcast(&f->changed);
    return status;
}
