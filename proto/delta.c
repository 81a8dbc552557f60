/* delta.c - see delta.h. */
#include "proto/delta.h"

#include "common/base/limits.h"
#include "proto/codec.h"
#include "proto/wire.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_MASK  0xfffu
#define WORD        8u
#define COUNT_SHORT 63u        /* of a token; more are behind it */
#define HASHED      256u       /* bytes of a record that its hash is made of */
#define NOWHERE     UINT64_MAX /* no record has this number */
#define CHANGED_MAX 2048u      /* bytes; longer records are the same or sent as they are */

static_assert(RG_DELTA_HISTORY >= 2 * RG_MESSAGE_MAX, "a batch leaves some of the history");
static_assert((RG_DELTA_RECORDS & (RG_DELTA_RECORDS - 1)) == 0, "numbers wrap by masking");

/*
 * Records have numbers, from 0. `bytes` is filled from its beginning, batch by batch; one that does not fit behind the others
 * begins anew at 0. All but the indices is the same at both ends.
 */
struct rg_delta {
    uint64_t next;   /* the number of the record to come */
    uint64_t oldest; /* the first whose bytes are still there */
    uint64_t follow; /* the record behind the one that was named last */
    size_t used;     /* where the next batch begins */
    uint32_t at[RG_DELTA_RECORDS];
    /* the encoder's: the hash of each record; and numbers, plus one, by hash of a whole record and of its kind */
    uint32_t hash[RG_DELTA_RECORDS];
    uint64_t same[INDEX_MASK + 1], similar[INDEX_MASK + 1];
    _Alignas(16) unsigned char bytes[RG_DELTA_HISTORY];
};

struct rg_delta *rg_delta_create(void)
{
    return calloc(1, sizeof(struct rg_delta)); /* so large that the pages come as they are used */
}

void rg_delta_destroy(struct rg_delta *delta)
{
    free(delta);
}

/* --- the history: the same steps at both ends -------------------------------------------------------------------- */

static size_t slot(uint64_t number)
{
    return number & (RG_DELTA_RECORDS - 1);
}

/* Makes room for a batch of so many bytes; forgets the records that are there. */
static unsigned char *make_room(struct rg_delta *delta, size_t size)
{
    if (delta->next >= RG_DELTA_RECORDS && delta->oldest < delta->next - (RG_DELTA_RECORDS - 1))
        delta->oldest = delta->next - (RG_DELTA_RECORDS - 1);
    if (size > RG_DELTA_HISTORY - delta->used) {
        while (delta->oldest < delta->next && delta->at[slot(delta->oldest)] >= delta->used)
            delta->oldest++;
        delta->used = 0;
    }
    const size_t begin = delta->used, end = begin + size;
    while (delta->oldest < delta->next && delta->at[slot(delta->oldest)] >= begin &&
           delta->at[slot(delta->oldest)] < end)
        delta->oldest++;
    delta->used = end;
    return delta->bytes + begin;
}

static bool is_there(const struct rg_delta *delta, uint64_t number)
{
    return number >= delta->oldest && number < delta->next && delta->next - number < RG_DELTA_RECORDS;
}

static const unsigned char *record_of(const struct rg_delta *delta, uint64_t number)
{
    return delta->bytes + delta->at[slot(number)];
}

static uint32_t size_at(const unsigned char *record)
{
    uint32_t size;
    memcpy(&size, record + offsetof(struct rg_record, size), sizeof size);
    return size;
}

/* The next record, whose bytes are at `record`, is complete. */
static void append(struct rg_delta *delta, const unsigned char *record)
{
    delta->at[slot(delta->next++)] = (uint32_t)(record - delta->bytes);
}

static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* --- encoding ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint32_t hash_of(const unsigned char *record, size_t size)
{
    uint64_t hash = size;
    for (size_t i = 0; i < size && i < HASHED; i += WORD)
        hash = mix(hash, word_at(record + i));
    return (uint32_t)(hash >> 32);
}

/* A hash of what records that resemble one another have in common: size, operation and first parameter (of a launch the
 * function). */
static uint32_t kind_of(const unsigned char *record, size_t size)
{
    const size_t behind = sizeof(struct rg_record);
    return (uint32_t)(mix(mix(0, word_at(record)), size > behind ? word_at(record + behind) : 0) >> 32);
}

static unsigned char *put_varint(unsigned char *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *out++ = (unsigned char)(value | 0x80);
    *out++ = (unsigned char)value;
    return out;
}

static unsigned char *put_token(unsigned char *out, enum rg_delta_kind kind, uint64_t count)
{
    const uint64_t less = count - 1;
    *out++ = (unsigned char)(kind | (less < COUNT_SHORT ? less : COUNT_SHORT) << 2);
    return less < COUNT_SHORT ? out : put_varint(out, less - COUNT_SHORT);
}

/* What is being written. Records that one token can stand for are collected as a run first. */
struct encoder {
    struct rg_delta *delta;
    unsigned char *out;
    enum rg_delta_kind kind;    /* of the run: LITERAL or SAME */
    uint64_t count;             /* records of it */
    uint64_t where;             /* SAME: of the first */
    const unsigned char *first; /* LITERAL: the first */
};

/* Writes the run, which ends before `end`. */
static void put_run(struct encoder *encoder, const unsigned char *end)
{
    if (!encoder->count)
        return;
    encoder->out = put_token(encoder->out, encoder->kind, encoder->count);
    if (encoder->kind == RG_DELTA_SAME) {
        encoder->out = put_varint(encoder->out, encoder->where);
    } else {
        memcpy(encoder->out, encoder->first, (size_t)(end - encoder->first));
        encoder->out += end - encoder->first;
    }
    encoder->count = 0;
}

/* How a record of the history is named, which is then the last one that was. */
static uint64_t name(struct rg_delta *delta, uint64_t number)
{
    const uint64_t where = number == delta->follow ? 0 : delta->next - number;
    delta->follow = number + 1;
    return where;
}

/* The bytes by which a word differs from another, behind the byte that says which. */
static unsigned char *put_difference(unsigned char *out, uint64_t difference)
{
    unsigned char *which = out++;
    *which = 0;
    for (unsigned i = 0; difference; i++, difference >>= 8)
        if (difference & 0xff) {
            *which |= (unsigned char)(1u << i);
            *out++ = (unsigned char)difference;
        }
    return out;
}

/* A record as a change of another of its size. NULL: that would not save half of it. */
static unsigned char *put_changed(unsigned char *out, const unsigned char *record, const unsigned char *other,
                                  size_t size)
{
    const size_t words = size / WORD, bitmap_size = (words + 7) / 8;
    const unsigned char *const limit = out + size / 2;
    unsigned char *bitmap = out;
    memset(bitmap, 0, bitmap_size);
    out += bitmap_size;
    for (size_t i = 0; i < words; i++) {
        const uint64_t difference = word_at(record + i * WORD) ^ word_at(other + i * WORD);
        if (!difference)
            continue;
        if (out + 1 + WORD > limit)
            return NULL;
        bitmap[i / 8] |= (unsigned char)(1u << i % 8);
        out = put_difference(out, difference);
    }
    return out;
}

/* The record that one should be compared with: of its size and operation. NOWHERE: there is none. */
static uint64_t find_similar(const struct rg_delta *delta, const unsigned char *record, size_t size,
                             uint64_t indexed)
{
    const uint64_t candidates[] = {delta->follow, indexed};
    if (size > CHANGED_MAX)
        return NOWHERE;
    for (int i = 0; i < 2; i++)
        if (is_there(delta, candidates[i]) && word_at(record_of(delta, candidates[i])) == word_at(record))
            return candidates[i];
    return NOWHERE;
}

static bool equals(const struct rg_delta *delta, uint64_t number, const unsigned char *record, size_t size)
{
    if (!is_there(delta, number))
        return false;
    const unsigned char *other = record_of(delta, number);
    return word_at(other) == word_at(record) && memcmp(other, record, size) == 0;
}

static void encode_same(struct encoder *encoder, uint64_t number, const unsigned char *record)
{
    const uint64_t where = name(encoder->delta, number);
    if (encoder->kind != RG_DELTA_SAME || where != 0)
        put_run(encoder, record);
    if (encoder->count == 0) {
        encoder->kind = RG_DELTA_SAME;
        encoder->where = where;
    }
    encoder->count++;
}

/* A record that is not in the history; `indexed`: the last that resembled it, or NOWHERE. */
static void encode_new(struct encoder *encoder, uint64_t indexed, const unsigned char *record, size_t size)
{
    struct rg_delta *delta = encoder->delta;
    const uint64_t other = find_similar(delta, record, size, indexed);
    unsigned char changed[CHANGED_MAX / 2];
    const unsigned char *end =
        other == NOWHERE ? NULL : put_changed(changed, record, record_of(delta, other), size);
    if (end || encoder->kind != RG_DELTA_LITERAL)
        put_run(encoder, record);
    if (end) {
        const size_t length = (size_t)(end - changed);
        encoder->out = put_varint(put_token(encoder->out, RG_DELTA_CHANGED, 1), name(delta, other));
        memcpy(encoder->out, changed, length);
        encoder->out += length;
        return;
    }
    if (encoder->count == 0) {
        encoder->kind = RG_DELTA_LITERAL;
        encoder->first = record;
    }
    encoder->count++;
}

static void encode_record(struct encoder *encoder, const unsigned char *record, size_t size)
{
    struct rg_delta *delta = encoder->delta;
    uint32_t hash;
    if (equals(delta, delta->follow, record, size)) {
        hash = delta->hash[slot(delta->follow)];
        encode_same(encoder, delta->follow, record);
    } else {
        hash = hash_of(record, size);
        const uint64_t same = delta->same[hash & INDEX_MASK] - 1;
        uint64_t *similar = &delta->similar[kind_of(record, size) & INDEX_MASK];
        if (equals(delta, same, record, size))
            encode_same(encoder, same, record);
        else
            encode_new(encoder, *similar - 1, record, size);
        *similar = delta->next + 1;
    }
    delta->same[hash & INDEX_MASK] = delta->next + 1;
    delta->hash[slot(delta->next)] = hash;
    append(delta, record);
}

size_t rg_delta_encode(struct rg_delta *delta, const unsigned char *records, size_t size, unsigned char *out)
{
    unsigned char *record = make_room(delta, size);
    const unsigned char *const end = record + size;
    struct encoder encoder = {.delta = delta, .out = put_varint(out, size)};
    memcpy(record, records, size);
    for (size_t length; record < end; record += length) {
        length = size_at(record);
        encode_record(&encoder, record, length);
    }
    put_run(&encoder, end);
    assert((size_t)(encoder.out - out) <= size + RG_DELTA_GROWTH);
    return (size_t)(encoder.out - out);
}

/* --- decoding ------------------------------------------------------------------------------------------------------ */

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

/* The record that the input names; NOWHERE: it is not there. */
static uint64_t get_name(struct decoder *decoder)
{
    struct rg_delta *delta = decoder->delta;
    const uint64_t where = get_varint(&decoder->in);
    const uint64_t number = where ? delta->next - where : delta->follow;
    if (decoder->in.bad || where > delta->next || !is_there(delta, number))
        return NOWHERE;
    delta->follow = number + 1;
    return number;
}

/* The record at `out` is complete. */
static void finish(struct decoder *decoder, size_t size)
{
    append(decoder->delta, decoder->out);
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
    const size_t size = size_at(decoder->in.at);
    if (size < sizeof(struct rg_record) || size % WORD != 0 || !fits(decoder, size))
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
        if (!is_there(delta, number)) /* NOWHERE, too */
            return false;
        const unsigned char *record = record_of(delta, number);
        const size_t size = size_at(record);
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
    if (number == NOWHERE)
        return false;
    const unsigned char *other = record_of(delta, number);
    const size_t size = size_at(other), words = size / WORD;
    const unsigned char *bitmap = rg_get(&decoder->in, (words + 7) / 8);
    if (!bitmap || !fits(decoder, size))
        return false;
    memcpy(decoder->out, other, size);
    for (size_t i = 0; i < words; i++) {
        if (!(bitmap[i / 8] & 1u << i % 8))
            continue;
        const unsigned char *which = rg_get(&decoder->in, 1);
        for (unsigned byte = 0; which && byte < WORD; byte++) {
            const unsigned char *difference = *which & 1u << byte ? rg_get(&decoder->in, 1) : NULL;
            if (difference)
                decoder->out[i * WORD + byte] ^= *difference;
        }
    }
    if (decoder->in.bad || size_at(decoder->out) != size)
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
    if (count > COUNT_SHORT)
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
    *records = decoder.out = make_room(delta, (size_t)total);
    *records_size = (size_t)total;
    decoder.end = decoder.out + total;
    while (decoder.left)
        if (!decode_token(&decoder))
            return RG_ERR_PROTOCOL;
    return rg_left(&decoder.in) == 0 && decoder.out == decoder.end ? RG_OK : RG_ERR_PROTOCOL;
}
