/*
 * wire.h - what a multipath adds to the wire; little-endian.
 *
 * A message whose bulk data travels out of band stands behind a struct rg_out_of_band, as one message of the
 * first connection. Piece i of the bulk data is bytes [i * RG_PIECE, (i + 1) * RG_PIECE) of it. Each is a
 * message on its channel: a struct rg_piece, and as bulk data of that the piece itself, compressed or not.
 * The pieces of a channel come in the order of messages and, within a message, of their numbers.
 *
 * Rails: a run of pieces is one message, behind a struct rg_run. It comes by whatever channel, and again by
 * another one if its sender has dropped the first; then the same run, which names the rails that its sender
 * has given up.
 */
#ifndef RG_TRANSPORT_MULTIPATH_WIRE_H
#define RG_TRANSPORT_MULTIPATH_WIRE_H

#include "common/base/limits.h"
#include "proto/wire.h"

struct rg_out_of_band {
    uint16_t kind;    /* RG_MESSAGE_OUT_OF_BAND */
    uint16_t version; /* RG_PROTOCOL_MAJOR */
    uint32_t bulk_size;
    uint64_t number; /* counts such messages of this direction, from 1 */
    uint64_t route;  /* bits 4 * i to 4 * i + 3: the channel of piece i, in the order of opening */
    uint8_t wanted;  /* channels that the sender would like to have */
    uint8_t reserved[7];
};
static_assert(sizeof(struct rg_out_of_band) == 32,
              "wire layout; a multiple of 16, which messages are aligned to");
static_assert(RG_PIECES_MAX <= 16, "the route has 4 bits for each piece");

struct rg_piece {
    uint16_t kind;    /* RG_MESSAGE_PIECE */
    uint16_t version; /* RG_PROTOCOL_MAJOR */
    uint16_t index;
    uint8_t codec; /* enum rg_compression: RG_COMPRESS_NONE, _LZ4 or _ZSTD */
    uint8_t reserved;
    uint64_t number; /* of the message */
};
static_assert(sizeof(struct rg_piece) == 16, "wire layout");

struct rg_run {
    uint16_t kind;    /* RG_MESSAGE_PIECE */
    uint16_t version; /* RG_PROTOCOL_MAJOR */
    uint16_t index;
    uint8_t given_up; /* bit i: the sender has given up rail i, which may have brought some of this */
    uint8_t more;     /* so many of the pieces that follow are in the same message */
    uint64_t number;  /* of the message */
};
static_assert(sizeof(struct rg_run) == 16, "wire layout");

#endif
