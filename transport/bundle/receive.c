/*
 * receive.c - messages in: the head from the first connection, then piece by piece from the lanes it names.
 *
 * Pieces are taken in their order by the one receiver, straight into their place; what arrives on other lanes meanwhile
 * waits in the kernel's buffers, so the lanes work side by side. Nothing is believed: each piece must be the very one
 * that is due on its lane, of the size that follows from the message's.
 */
#include "transport/bundle/inside.h"

#include "common/base/safe_copy.h"

#include <stdlib.h>

static enum rg_status fail(struct bundle *b, const struct lane *lane, enum rg_status status)
{
    pthread_mutex_lock(&b->lock);
    if (status == RG_ERR_CLOSED && !b->interrupted)
        status = RG_ERR_LOST; /* in the middle of a message */
    pthread_mutex_unlock(&b->lock);
    rg_bundle_break(b, lane, status, "receiving");
    return b->recv_failed = status;
}

static enum rg_status violation(struct bundle *b, const struct lane *lane, const char *what)
{
    rg_error("%s sent %s", b->head.peer, what);
    return fail(b, lane, RG_ERR_PROTOCOL);
}

/* A message whose bulk data comes by lanes. */
static enum rg_status take_head(struct bundle *b, struct rg_message *message)
{
    struct rg_apart apart;
    if (message->bulk_size || message->size < sizeof apart)
        return violation(b, NULL, "a malformed announcement of bulk data");
    memcpy(&apart, message->data, sizeof apart);
    static const uint8_t zeros[sizeof apart.reserved];
    const unsigned pieces = (apart.bulk_size + RG_PIECE - 1) / RG_PIECE;
    bool good = apart.version == RG_PROTOCOL_MAJOR && apart.bulk_size && apart.bulk_size <= RG_BULK_MAX &&
                apart.number == b->received_number + 1 && memcmp(apart.reserved, zeros, sizeof zeros) == 0;
    for (unsigned i = 0; i < RG_PIECES_MAX && good; i++) {
        const unsigned lane = (unsigned)(apart.route >> (4 * i)) & 15;
        good = i < pieces ? lane < b->options.lanes : lane == 0;
    }
    if (!good)
        return violation(b, NULL, "an impossible announcement of bulk data");
    pthread_mutex_lock(&b->lock); /* the readers of rails look at these */
    b->received_number = apart.number;
    b->apart = true;
    b->route = apart.route;
    b->total = apart.bulk_size;
    b->taken = 0;
    b->peer_stripes = true;
    if (b->options.rails)
        rg_rails_begin(b);
    pthread_mutex_unlock(&b->lock);
    message->data = (const unsigned char *)message->data + sizeof apart;
    message->size -= sizeof apart;
    message->bulk_size = apart.bulk_size;
    if (apart.wanted > atomic_load(&b->n_lanes) || b->options.rails)
        rg_bundle_want(b, apart.wanted, 0);
    return RG_OK;
}

enum rg_status rg_bundle_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct bundle *b = (struct bundle *)conn;
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
    if (b->apart) {
        pthread_mutex_lock(&b->lock); /* the readers of rails look at it */
        b->apart = false;
        pthread_mutex_unlock(&b->lock);
    }
    if (out->bulk_size >= RG_BUNDLE_MIN)
        rg_bundle_want(b, 0, out->bulk_size);
    if (b->peer_stripes && out->bulk_size >= RG_RAILS_MIN) {
        pthread_mutex_lock(&b->lock);
        b->peer_stripes = false;
        pthread_mutex_unlock(&b->lock);
    }
    return RG_OK;
}

static size_t piece_size(const struct bundle *b, unsigned index)
{
    const size_t offset = (size_t)index * RG_PIECE;
    return b->total - offset < RG_PIECE ? b->total - offset : RG_PIECE;
}

/* Takes a compressed piece apart into memory of ours. */
static enum rg_status unpack(struct bundle *b, struct lane *lane, enum rg_compression codec, size_t packed,
                             size_t size)
{
    if (!lane->arrived)
        lane->arrived = malloc(RG_PIECE);
    if (!lane->unpacked)
        lane->unpacked = malloc(RG_PIECE);
    if (!lane->arrived || !lane->unpacked)
        return fail(b, lane, RG_ERR_NO_MEMORY);
    enum rg_status status = rg_conn_recv_bulk(lane->conn, lane->arrived, packed);
    if (status != RG_OK)
        return fail(b, lane, status);
    if (!rg_codec_unpack(codec, lane->unpacked, size, lane->arrived, packed))
        return violation(b, lane, "bulk data that does not unpack to its size");
    return RG_OK;
}

/* Receives the head of piece `index`, and all of it if it is compressed. */
static enum rg_status begin_piece(struct bundle *b, struct lane *lane, unsigned index)
{
    struct rg_message message;
    struct rg_piece piece;
    enum rg_status status = rg_conn_recv(lane->conn, -1, &message);
    if (status != RG_OK)
        return fail(b, lane, status);
    if (message.size != sizeof piece)
        return violation(b, lane, "something else than bulk data on a connection for that");
    memcpy(&piece, message.data, sizeof piece);
    const size_t size = piece_size(b, index);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.number != b->received_number || piece.index != index || piece.codec > RG_COMPRESS_ZSTD ||
        piece.reserved)
        return violation(b, lane, "bulk data that is not what was due");
    lane->is_unpacked = piece.codec != RG_COMPRESS_NONE;
    if (lane->is_unpacked ? !message.bulk_size || message.bulk_size >= size : message.bulk_size != size)
        return violation(b, lane, "bulk data of another size than was due");
    return lane->is_unpacked ? unpack(b, lane, (enum rg_compression)piece.codec, message.bulk_size, size)
                             : RG_OK;
}

enum rg_status rg_bundle_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct bundle *b = (struct bundle *)conn;
    unsigned char *to = buffer;
    bool fault = false;
    if (b->recv_failed != RG_OK)
        return b->recv_failed;
    if (!b->apart)
        return rg_conn_recv_bulk(b->first, buffer, size);
    if (b->options.rails) {
        const enum rg_status status = rg_rails_take(b, to, size);
        return status == RG_OK || status == RG_ERR_FAULT ? status : fail(b, NULL, status);
    }
    while (size) {
        const unsigned index = (unsigned)(b->taken / RG_PIECE);
        const size_t offset = b->taken % RG_PIECE, left = piece_size(b, index) - offset;
        const size_t part = left < size ? left : size;
        struct lane *lane = rg_bundle_lane(b, (unsigned)(b->route >> (4 * index)) & 15);
        if (!lane) {
            rg_info("%s: a connection that is to carry bulk data does not come", b->head.peer);
            return fail(b, NULL, RG_ERR_CLOSED);
        }
        enum rg_status status = offset == 0 ? begin_piece(b, lane, index) : RG_OK;
        if (status != RG_OK)
            return status;
        if (lane->is_unpacked)
            status = !to || rg_safe_copy_to(to, lane->unpacked + offset, part) ? RG_OK : RG_ERR_FAULT;
        else
            status = rg_conn_recv_bulk(lane->conn, to, part);
        if (status != RG_OK && status != RG_ERR_FAULT)
            return fail(b, lane, status);
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
