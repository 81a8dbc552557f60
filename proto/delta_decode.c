/* delta_decode.c - see delta.h: tokens from a peer, of which nothing is trusted, and the records that they stand for. */
#include "proto/delta_history.h"

#include "common/base/limits.h"
#include "proto/codec.h"

/* What is being read, and where its records go. */
struct decoder {
    struct rg_delta *delta;
    struct rg_reader in;
    unsigned char *out;
    const unsigned char *end;
    uint32_t left; /* records that the batch still has */
};

static uint64_t get_varint(struct rg_reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        const unsigned char *byte = rg_get(in, 1);
        if (!byte)
            return 0;
        value |= (uint64_t)(*byte & 0x7f) << shift;
        if (!(*byte & 0x80))
            return value;
    }
    in->bad = true;
    return 0;
}

/* The record that the input names; RG_DELTA_NOWHERE: it is not there. */
static uint64_t get_name(struct decoder *decoder)
{
    struct rg_delta *delta = decoder->delta;
    const uint64_t where = get_varint(&decoder->in);
    const uint64_t number = where ? delta->next - where : delta->follow;
    if (decoder->in.bad || where > delta->next || !rg_delta_has(delta, number))
        return RG_DELTA_NOWHERE;
    delta->follow = number + 1;
    return number;
}

/* The record at `out` is complete. */
static void finish(struct decoder *decoder, size_t size)
{
    rg_delta_append(decoder->delta, decoder->out);
    decoder->out += size;
    decoder->left--;
}

static bool fits(const struct decoder *decoder, size_t size)
{
    return decoder->left > 0 && size <= (size_t)(decoder->end - decoder->out);
}

static bool decode_literal(struct decoder *decoder)
{
    if (rg_left(&decoder->in) < sizeof(struct rg_record))
        return false;
    const size_t size = rg_delta_size_at(decoder->in.at);
    if (size < sizeof(struct rg_record) || size % RG_DELTA_WORD != 0 || !fits(decoder, size))
        return false;
    const void *record = rg_get(&decoder->in, size);
    if (!record)
        return false;
    memcpy(decoder->out, record, size);
    finish(decoder, size);
    return true;
}

static bool decode_same(struct decoder *decoder, uint64_t count)
{
    struct rg_delta *delta = decoder->delta;
    uint64_t number = get_name(decoder);
    for (uint64_t i = 0; i < count; i++, number++) {
        if (!rg_delta_has(delta, number)) /* RG_DELTA_NOWHERE, too */
            return false;
        const unsigned char *record = rg_delta_record(delta, number);
        const size_t size = rg_delta_size_at(record);
        if (!fits(decoder, size))
            return false;
        memcpy(decoder->out, record, size);
        finish(decoder, size);
    }
    delta->follow = number;
    return true;
}

static bool decode_changed(struct decoder *decoder)
{
    struct rg_delta *delta = decoder->delta;
    const uint64_t number = get_name(decoder);
    if (number == RG_DELTA_NOWHERE)
        return false;
    const unsigned char *other = rg_delta_record(delta, number);
    const size_t size = rg_delta_size_at(other), words = size / RG_DELTA_WORD;
    const unsigned char *bitmap = rg_get(&decoder->in, (words + 7) / 8);
    if (!bitmap || !fits(decoder, size))
        return false;
    memcpy(decoder->out, other, size);
    for (size_t i = 0; i < words; i++) {
        if (!(bitmap[i / 8] & 1u << i % 8))
            continue;
        const unsigned char *which = rg_get(&decoder->in, 1);
        for (unsigned byte = 0; which && byte < RG_DELTA_WORD; byte++) {
            const unsigned char *difference = *which & 1u << byte ? rg_get(&decoder->in, 1) : NULL;
            if (difference)
                decoder->out[i * RG_DELTA_WORD + byte] ^= *difference;
        }
    }
    if (decoder->in.bad || rg_delta_size_at(decoder->out) != size)
        return false;
    finish(decoder, size);
    return true;
}

static bool decode_token(struct decoder *decoder)
{
    const unsigned char *token = rg_get(&decoder->in, 1);
    if (!token)
        return false;
    uint64_t count = (*token >> 2) + 1u;
    if (count > RG_DELTA_COUNT_SHORT)
        count += get_varint(&decoder->in);
    if (decoder->in.bad || count > decoder->left)
        return false;
    switch (*token & 3u) {
    case RG_DELTA_LITERAL:
        while (count && decode_literal(decoder))
            count--;
        return count == 0;
    case RG_DELTA_SAME:
        return decode_same(decoder, count);
    case RG_DELTA_CHANGED:
        return count == 1 && decode_changed(decoder);
    default:
        return false;
    }
}

enum rg_status rg_delta_decode(struct rg_delta *delta, const unsigned char *data, size_t size, uint32_t count,
                               const unsigned char **records, size_t *records_size)
{
    struct decoder decoder = {.delta = delta, .in = rg_reader_of(data, size), .left = count};
    const uint64_t total = get_varint(&decoder.in);
    if (decoder.in.bad || total > RG_MESSAGE_MAX)
        return RG_ERR_PROTOCOL;
    *records = decoder.out = rg_delta_make_room(delta, (size_t)total);
    *records_size = (size_t)total;
    decoder.end = decoder.out + total;
    while (decoder.left)
        if (!decode_token(&decoder))
            return RG_ERR_PROTOCOL;
    return rg_left(&decoder.in) == 0 && decoder.out == decoder.end ? RG_OK : RG_ERR_PROTOCOL;
}
