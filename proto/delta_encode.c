/* delta_encode.c - see delta.h: which records the peer has already, or some that resemble them. */
#include "proto/delta_history.h"

#include <assert.h>

#define HASHED      256u  /* bytes of a record that its hash is made of */
#define CHANGED_MAX 2048u /* bytes; longer records are the same or sent as they are */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint32_t hash_of(const unsigned char *record, size_t size)
{
    uint64_t hash = size;
    for (size_t i = 0; i < size && i < HASHED; i += RG_DELTA_WORD)
        hash = mix(hash, rg_delta_word_at(record + i));
    return (uint32_t)(hash >> 32);
}

/* A hash of what records that resemble one another have in common: size, operation and first parameter (of a launch the
 * function). */
static uint32_t kind_of(const unsigned char *record, size_t size)
{
    const size_t behind = sizeof(struct rg_record);
    return (uint32_t)(mix(mix(0, rg_delta_word_at(record)),
                          size > behind ? rg_delta_word_at(record + behind) : 0) >>
                      32);
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
    *out++ = (unsigned char)(kind | (less < RG_DELTA_COUNT_SHORT ? less : RG_DELTA_COUNT_SHORT) << 2);
    return less < RG_DELTA_COUNT_SHORT ? out : put_varint(out, less - RG_DELTA_COUNT_SHORT);
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
    const size_t words = size / RG_DELTA_WORD, bitmap_size = (words + 7) / 8;
    const unsigned char *const limit = out + size / 2;
    unsigned char *bitmap = out;
    memset(bitmap, 0, bitmap_size);
    out += bitmap_size;
    for (size_t i = 0; i < words; i++) {
        const uint64_t difference =
            rg_delta_word_at(record + i * RG_DELTA_WORD) ^ rg_delta_word_at(other + i * RG_DELTA_WORD);
        if (!difference)
            continue;
        if (out + 1 + RG_DELTA_WORD > limit)
            return NULL;
        bitmap[i / 8] |= (unsigned char)(1u << i % 8);
        out = put_difference(out, difference);
    }
    return out;
}

/* The record that one should be compared with: of its size and operation. RG_DELTA_NOWHERE: there is none. */
static uint64_t find_similar(const struct rg_delta *delta, const unsigned char *record, size_t size,
                             uint64_t indexed)
{
    const uint64_t candidates[] = {delta->follow, indexed};
    if (size > CHANGED_MAX)
        return RG_DELTA_NOWHERE;
    for (int i = 0; i < 2; i++)
        if (rg_delta_has(delta, candidates[i]) &&
            rg_delta_word_at(rg_delta_record(delta, candidates[i])) == rg_delta_word_at(record))
            return candidates[i];
    return RG_DELTA_NOWHERE;
}

static bool equals(const struct rg_delta *delta, uint64_t number, const unsigned char *record, size_t size)
{
    if (!rg_delta_has(delta, number))
        return false;
    const unsigned char *other = rg_delta_record(delta, number);
    return rg_delta_word_at(other) == rg_delta_word_at(record) && memcmp(other, record, size) == 0;
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

/* A record that is not in the history; `indexed`: the last that resembled it, or RG_DELTA_NOWHERE. */
static void encode_new(struct encoder *encoder, uint64_t indexed, const unsigned char *record, size_t size)
{
    struct rg_delta *delta = encoder->delta;
    const uint64_t other = find_similar(delta, record, size, indexed);
    unsigned char changed[CHANGED_MAX / 2];
    const unsigned char *end =
        other == RG_DELTA_NOWHERE ? NULL : put_changed(changed, record, rg_delta_record(delta, other), size);
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
        hash = delta->hash[rg_delta_slot(delta->follow)];
        encode_same(encoder, delta->follow, record);
    } else {
        hash = hash_of(record, size);
        const uint64_t same = delta->same[hash & RG_DELTA_INDEX_MASK] - 1;
        uint64_t *similar = &delta->similar[kind_of(record, size) & RG_DELTA_INDEX_MASK];
        if (equals(delta, same, record, size))
            encode_same(encoder, same, record);
        else
            encode_new(encoder, *similar - 1, record, size);
        *similar = delta->next + 1;
    }
    delta->same[hash & RG_DELTA_INDEX_MASK] = delta->next + 1;
    delta->hash[rg_delta_slot(delta->next)] = hash;
    rg_delta_append(delta, record);
}

size_t rg_delta_encode(struct rg_delta *delta, const unsigned char *records, size_t size, unsigned char *out)
{
    unsigned char *record = rg_delta_make_room(delta, size);
    const unsigned char *const end = record + size;
    struct encoder encoder = {.delta = delta, .out = put_varint(out, size)};
    memcpy(record, records, size);
    for (size_t length; record < end; record += length) {
        length = rg_delta_size_at(record);
        encode_record(&encoder, record, length);
    }
    put_run(&encoder, end);
    assert((size_t)(encoder.out - out) <= size + RG_DELTA_GROWTH);
    return (size_t)(encoder.out - out);
}
