/*
 * receive.c - messages in: bulk data is taken from the channels that the message names, in the order of its
 * pieces.
 *
 * While the receiver takes one channel's piece, the next ones fill the kernel's buffers, so the channels work
 * side by side. Nothing is believed: each piece must be the very one that is due on its channel, of the size
 * that follows from the message's.
 */
#include "transport/multipath/internal.h"

#include "common/base/safe_copy.h"

#include <stdlib.h>
#include <string.h>

enum rg_status rg_multipath_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    struct multipath *m = (struct multipath *)conn;
    unsigned wanted;
    const enum rg_status status = rg_fanout_recv(&m->f, timeout_ms, out, &wanted);
    if (wanted > atomic_load(&m->f.n_channels))
        rg_multipath_want(m, wanted, 0);
    else if (status == RG_OK && !m->f.out_of_band && out->bulk_size >= RG_MULTIPATH_MIN)
        rg_multipath_want(m, 0, out->bulk_size);
    return status;
}

/* Takes a compressed piece apart into memory of ours. */
static enum rg_status unpack(struct rg_fanout *f, struct path *path, enum rg_compression codec, size_t packed,
                             size_t size)
{
    if (!path->arrived)
        path->arrived = malloc(RG_PIECE);
    if (!path->unpacked)
        path->unpacked = malloc(RG_PIECE);
    if (!path->arrived || !path->unpacked)
        return rg_fanout_fail(f, &path->base, RG_ERR_NO_MEMORY);
    enum rg_status status = rg_conn_recv_bulk(path->base.conn, path->arrived, packed);
    if (status != RG_OK)
        return rg_fanout_fail(f, &path->base, status);
    if (!rg_codec_unpack(codec, path->unpacked, size, path->arrived, packed))
        return rg_fanout_violation(f, &path->base, "bulk data that does not unpack to its size");
    return RG_OK;
}

/* Receives the head of piece `index`, of `size` bytes, and all of it if it is compressed. */
static enum rg_status begin_piece(struct rg_fanout *f, struct path *path, unsigned index, size_t size)
{
    struct rg_message message;
    struct rg_piece piece;
    enum rg_status status = rg_conn_recv(path->base.conn, -1, &message);
    if (status != RG_OK)
        return rg_fanout_fail(f, &path->base, status);
    if (message.size != sizeof piece)
        return rg_fanout_violation(f, &path->base, "something else than bulk data on a connection for that");
    memcpy(&piece, message.data, sizeof piece);
    if (piece.kind != RG_MESSAGE_PIECE || piece.version != RG_PROTOCOL_MAJOR ||
        piece.number != f->received_number || piece.index != index || piece.codec > RG_COMPRESS_ZSTD ||
        piece.reserved)
        return rg_fanout_violation(f, &path->base, "bulk data that is not what was due");
    path->is_unpacked = piece.codec != RG_COMPRESS_NONE;
    if (path->is_unpacked ? !message.bulk_size || message.bulk_size >= size : message.bulk_size != size)
        return rg_fanout_violation(f, &path->base, "bulk data of another size than was due");
    return path->is_unpacked ? unpack(f, path, (enum rg_compression)piece.codec, message.bulk_size, size)
                             : RG_OK;
}

enum rg_status rg_multipath_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    struct multipath *m = (struct multipath *)conn;
    struct rg_fanout *f = &m->f;
    unsigned char *to = buffer;
    bool fault = false;
    if (f->recv_failed != RG_OK)
        return f->recv_failed;
    if (!f->out_of_band)
        return rg_conn_recv_bulk(f->first, buffer, size);
    while (size) {
        const unsigned index = (unsigned)(f->taken / RG_PIECE);
        const size_t offset = f->taken % RG_PIECE, left = rg_fanout_piece_size(f->total, index) - offset;
        const size_t part = left < size ? left : size;
        struct path *path = rg_multipath_path(m, rg_fanout_channel_of(f->route, index));
        if (!path) {
            rg_info("%s: a connection that is to carry bulk data does not come", f->head.peer);
            return rg_fanout_fail(f, NULL, RG_ERR_CLOSED);
        }
        enum rg_status status = offset == 0 ? begin_piece(f, path, index, left) : RG_OK;
        if (status != RG_OK)
            return status;
        if (path->is_unpacked)
            status = !to || rg_safe_copy_to(to, path->unpacked + offset, part) ? RG_OK : RG_ERR_FAULT;
        else
            status = rg_conn_recv_bulk(path->base.conn, to, part);
        if (status != RG_OK && status != RG_ERR_FAULT)
            return rg_fanout_fail(f, &path->base, status);
        if (status == RG_ERR_FAULT) {
            fault = true;
            to = NULL;
        }
        f->taken += part;
        size -= part;
        to = to ? to + part : NULL;
    }
    return fault ? RG_ERR_FAULT : RG_OK;
}
