/*
 * delta.c - batches that refer to earlier records: several decoded one after another, so that each finds the history
 * of those before. What the encoder makes of well-formed records must come out again.
 *
 * The input: for each batch u16 count, u16 size, its bytes. With the highest bit of count the bytes are records (of a
 * size that is made good), which are encoded and decoded.
 */
#include "common/base/limits.h"
#include "proto/codec.h"
#include "proto/delta_history.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdlib.h>

static struct rg_delta *encoder, *decoder, *hostile;
static unsigned char records[RG_MESSAGE_MAX], encoded[RG_MESSAGE_MAX + RG_DELTA_GROWTH];

static unsigned get_u16(struct rg_reader *in)
{
    uint16_t value;
    rg_get_into(in, &value, sizeof value);
    return value;
}

/* Cuts the bytes into records whose headers are good; returns how many. */
static uint32_t make_records(const unsigned char *bytes, size_t size, size_t *used)
{
    uint32_t count = 0;
    *used = 0;
    while (size > 1) {
        const size_t payload = (size_t)(bytes[0] % 32) * 8, there = payload < size - 1 ? payload : size - 1;
        struct rg_record record = {.size = (uint32_t)(sizeof record + payload), .op = bytes[0]};
        if (*used + record.size > sizeof records)
            break;
        memset(records + *used, 0, record.size);
        memcpy(records + *used, &record, sizeof record);
        memcpy(records + *used + sizeof record, bytes + 1, there);
        *used += record.size;
        bytes += 1 + there;
        size -= 1 + there;
        count++;
    }
    return count;
}

/* As it was made: a megabyte, of which what was not used is zeros still. */
static void forget(struct rg_delta *delta)
{
    const size_t slots = delta->next < RG_DELTA_RECORDS ? (size_t)delta->next : RG_DELTA_RECORDS;
    memset(delta->bytes, 0,
           delta->oldest ? RG_DELTA_HISTORY : delta->used); /* it begins anew once records are forgotten */
    memset(delta->at, 0, slots * sizeof *delta->at);
    if (delta == encoder) { /* which alone has them */
        memset(delta->hash, 0, slots * sizeof *delta->hash);
        memset(delta->same, 0, sizeof delta->same);
        memset(delta->similar, 0, sizeof delta->similar);
    }
    delta->next = delta->oldest = delta->follow = delta->used = 0;
}

/*
 * A batch at `begin` went wrong, before which the next record was number `next`: it may have claimed much more room than it has filled, with
 * the records that are there and a part of another, which was in an input of so many bytes or made by make_records.
 */
static void give_back(struct rg_delta *delta, const unsigned char *begin, uint64_t next, size_t size)
{
    enum { MADE_MOST = sizeof(struct rg_record) + 31 * 8 };
    const unsigned char *end = begin;
    if (!begin)
        return;
    if (delta->next > next) {
        const unsigned char *last = rg_delta_record(delta, delta->next - 1);
        end = last + rg_delta_size_at(last);
    }
    const size_t used = (size_t)(end - delta->bytes) + (size > MADE_MOST ? size : MADE_MOST);
    if (used < delta->used)
        delta->used = used;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    encoder = rg_delta_create();
    decoder = rg_delta_create();
    hostile = rg_delta_create();
    CHECK(encoder && decoder && hostile);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_reader in = rg_reader_of(data, size);
    const unsigned char *out;
    size_t out_size, used;
    forget(hostile);
    if (encoder->next) {
        forget(encoder);
        forget(decoder);
    }
    while (rg_left(&in) > 4) {
        const unsigned count = get_u16(&in);
        size_t length = get_u16(&in);
        length = length < rg_left(&in) ? length : rg_left(&in);
        const unsigned char *bytes = rg_get(&in, length);
        if (count & 0x8000) {
            const uint32_t n = make_records(bytes, length, &used);
            if (n == 0)
                continue;
            const size_t made = rg_delta_encode(encoder, records, used, encoded);
            CHECK(made <= used + RG_DELTA_GROWTH);
            CHECK(rg_delta_decode(decoder, encoded, made, n, &out, &out_size) == RG_OK);
            CHECK(out_size == used && memcmp(out, records, used) == 0);
            if (rg_delta_decode(hostile, encoded, made, n, &out, &out_size) != RG_OK)
                break;
        } else {
            unsigned char *exact = malloc(length + 1);
            CHECK(exact);
            memcpy(exact, bytes, length);
            const uint64_t next = hostile->next;
            out = NULL;
            const enum rg_status status = rg_delta_decode(hostile, exact, length, count, &out, &out_size);
            free(exact);
            if (status != RG_OK) {
                give_back(hostile, out, next, size);
                break; /* as the worker does */
            }
            CHECK(out_size <= RG_MESSAGE_MAX);
            fuzz_read(out, out_size);
        }
    }
    return 0;
}

void fuzz_seeds(void)
{
    unsigned char seed[600];
    for (unsigned i = 0; i < sizeof seed; i++)
        seed[i] = (unsigned char)(i % 60 < 4 ? (const unsigned char[]){1, 128, 56, 0}[i % 60] : i % 60 % 9);
    fuzz_seed("records", seed, sizeof seed);
    forget(encoder);
    size_t used, at = 0;
    for (unsigned i = 0; i < 3; i++) {
        const uint16_t n = (uint16_t)make_records(seed + 4, 56, &used);
        records[40] = (unsigned char)i;
        const uint16_t made = (uint16_t)rg_delta_encode(encoder, records, used, encoded);
        CHECK(at + 4 + made <= sizeof seed);
        memcpy(seed + at, &n, 2);
        memcpy(seed + at + 2, &made, 2);
        memcpy(seed + at + 4, encoded, made);
        at += 4u + made;
    }
    fuzz_seed("encoded", seed, at);
}
