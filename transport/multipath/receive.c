/*
 * receive.c - messages in: the head from the first connection, then piece by piece from the channels it names.
 *
 * Pieces are taken in their order by the one receiver, straight into their place; what arrives on other channels meanwhile
 * waits in the kernel's buffers, so the channels work side by side. Nothing is believed: each piece must be the very one
 * that is due on its channel, of the size that follows from the message's.
 */
#include "transport/multipath/internal.h"

#include "common/base/safe_copy.h"

#include <stdlib.h>

static enum rg_status fail(struct multipath *b, const struct channel *channel, enum rg_status status)
{
    pthread_mutex_lock(&b->lock);
    if (status == RG_ERR_CLOSED && !b->interrupted)
        status = RG_ERR_LOST; /* in the middle of a message */
    pthread_mutex_unlock(&b->lock);
    rg_multipath_break(b, channel, status, "receiving");
    return b->recv_failed = status;
}

static enum rg_status violation(struct multipath *b, const struct channel *channel, const char *what)
{
    rg_error("%s sent %s", b->head.peer, what);
    return fail(b, channel, RG_ERR_PROTOCOL);
}

/* A message whose bulk data comes by channels. */
static enum rg_status take_head(struct multipath *b, struct rg_message *message)
{
    struct rg_out_of_band head;
    if (message->bulk_size || message->size < sizeof head)
        return violation(b, NULL, "a malformed announcement of bulk data");
    memcpy(&head, message->data, sizeof head);
    static const uint8_t zeros[sizeof head.reserved];
    const unsigned pieces = (head.bulk_size + RG_PIECE - 1) / RG_PIECE;
    bool good = head.version == RG_PROTOCOL_MAJOR && head.bulk_size && head.bulk_size <= RG_BULK_MAX &&
                head.number == b->received_number + 1 && memcmp(head.reserved, zeros, sizeof zeros) == 0;
    for (unsigned i = 0; i < RG_PIECES_MAX && good; i++) {
        const unsigned channel = (unsigned)(head.route >> (4 * i)) & 15;
        good = i < pieces ? channel < b->options.channels : channel == 0;
    }
    if (!good)
        return violation(b, NULL, "an impossible announcement of bulk data");
    pthread_mutex_lock(&b->lock); /* the readers of rails look at these */
    b->received_number = head.number;
    b->out_of_band = true;
    b->route = head.route;
    b->total = head.bulk_size;
    b->taken = 0;
    b->peer_stripes = true;
    if (b->options.rails)
        rg_multirail_begin(b);
    pthread_mutex_unlock(&b->lock);
    message->data = (const unsigned char *)message->data + sizeof head;
    message->size -= sizeof head;
    message->bulk_size = head.bulk_size;
    if (head.wanted > atomic_load(&b->n_channels) || b->options.rails)
        rg_multipath_want(b, head.wanted, 0);
    return RG_OK;
}

enum rg_status rg_multipath_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct multipath *b = (struct multipath *)conn;
    if (b->recv_failed != RG_OK)
        return b->recv_failed;
    enum rg_status status = rg_conn_recv(b->first, timeout_ms, out);
    if (status != RG_OK) {
        if (status != RG_ERR_TIMEOUT)
            b->recv_failed = status;
        return status;
    }
    uint16_t kind = 0;
    if (out->size >= sizeof kind)
        memcpy(&kind, out->data, sizeof kind);
    if (kind == RG_MESSAGE_OUT_OF_BAND)
        return take_head(b, out);
    if (b->out_of_band) {
        pthread_mutex_lock(&b->lock); /* the readers of rails look at it */
        b->out_of_band = false;
        pthread_mutex_unlock(&b->lock);
    }
    if (out->bulk_size >= RG_MULTIPATH_MIN)
        rg_multipath_want(b, 0, out->bulk_size);
    if (b->peer_stripes && out->bulk_size >= RG_MULTIRAIL_MIN) {
        pthread_mutex_lock(&b->lock);
        b->peer_stripes = false;
        pthread_mutex_unlock(&b->lock);
    }
    return RG_OK;
}

static size_t piece_size(const struct multipath *b, unsigned index)
{
    const size_t offset = (size_t)index * RG_PIECE;
    return b->total - offset < RG_PIECE ? b->total - offset : RG_PIECE;
}

/* Takes a compressed piece apart into memory of ours. */
static enum rg_status unpack(struct multipath *b, struct channel *channel, enum rg_compression codec,
                             size_t packed, size_t size)
{
    if (!channel->arrived)
        channel->arrived = malloc(RG_PIECE);
    if (!channel->unpacked)
        channel->unpacked = malloc(RG_PIECE);
    if (!channel->arrived || !channel->unpacked)
        return fail(b, channel, RG_ERR_NO_MEMORY);
    enum rg_status status = rg_conn_recv_bulk(channel->conn, channel->arrived, packed);
    if (status != RG_OK)
        return fail(b, channel, status);
    if (!rg_codec_unpack(codec, channel->unpacked, size, channel->arrived, packed))
        return violation(b, channel, "bulk data that does not unpack to its size");
    return RG_OK;
}

/* Receives the head of piece `index`, and all of it if it is compressed. */
static enum rg_status begin_piece(struct multipath *b, struct channel *channel, unsigned index)
{
    struct rg_message message;
    struct rg_piece piece;
    enum rg_status status = rg_conn_recv(channel->conn, -1, &message);
    if (status != RG_OK)
        return fail(b, channel, status);
    if (message.size != sizeof piece)
        return violation(b, channel, "something else than bulk data on a connection for that");
    memcpy(&piece, message.data, sizeof piece);
    const size_t size = piece_size(b, index);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.number != b->received_number || piece.index != index || piece.codec > RG_COMPRESS_ZSTD ||
        piece.reserved)
        return violation(b, channel, "bulk data that is not what was due");
    channel->is_unpacked = piece.codec != RG_COMPRESS_NONE;
    if (channel->is_unpacked ? !message.bulk_size || message.bulk_size >= size : message.bulk_size != size)
        return violation(b, channel, "bulk data of another size than was due");
    return channel->is_unpacked
               ? unpack(b, channel, (enum rg_compression)piece.codec, message.bulk_size, size)
               : RG_OK;
}

enum rg_status rg_multipath_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct multipath *b = (struct multipath *)conn;
    unsigned char *to = buffer;
    bool fault = false;
    if (b->recv_failed != RG_OK)
        return b->recv_failed;
    if (!b->out_of_band)
        return rg_conn_recv_bulk(b->first, buffer, size);
    if (b->options.rails) {
        const enum rg_status status = rg_multirail_take(b, to, size);
        return status == RG_OK || status == RG_ERR_FAULT ? status : fail(b, NULL, status);
    }
    while (size) {
        const unsigned index = (unsigned)(b->taken / RG_PIECE);
        const size_t offset = b->taken % RG_PIECE, left = piece_size(b, index) - offset;
        const size_t part = left < size ? left : size;
        struct channel *channel = rg_multipath_channel(b, (unsigned)(b->route >> (4 * index)) & 15);
        if (!channel) {
            rg_info("%s: a connection that is to carry bulk data does not come", b->head.peer);
            return fail(b, NULL, RG_ERR_CLOSED);
        }
        enum rg_status status = offset == 0 ? begin_piece(b, channel, index) : RG_OK;
        if (status != RG_OK)
            return status;
        if (channel->is_unpacked)
            status = !to || rg_safe_copy_to(to, channel->unpacked + offset, part) ? RG_OK : RG_ERR_FAULT;
        else
            status = rg_conn_recv_bulk(channel->conn, to, part);
        if (status != RG_OK && status != RG_ERR_FAULT)
            return fail(b, channel, status);
        if (status == RG_ERR_FAULT) {
            fault = true;
            to = NULL;
        }
        b->taken += part;
        size -= part;
        to = to ? to + part : NULL;
    }
    return fault ? RG_ERR_FAULT : RG_OK;
}
