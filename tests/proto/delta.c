/*
 * delta.c - batches of records come out of the other end as they went in, whatever they repeat, and however long the history
 * has been; what repeats takes little; and no input makes a decoder do anything but refuse it.
 * usage: proto_delta_batches [CASES [SEED]]
 */
#include "proto/delta.h"

#include "common/base/limits.h"
#include "proto/wire.h"
#include "tests/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static uint32_t chance(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

/* --- batches -------------------------------------------------------------------------------------------------------- */

struct batch {
    size_t size;
    uint32_t count;
    unsigned char *records; /* a block of just this size, so that the sanitizers see what reads beyond it */
};

static void begin(struct batch *batch)
{
    free(batch->records);
    *batch = (struct batch){.records = malloc(RG_MESSAGE_MAX)};
    CHECK(batch->records);
}

static void end(struct batch *batch)
{
    batch->records = realloc(batch->records, batch->size);
    CHECK(batch->records);
}

/* Adds a record with `words` words of parameters, which `value` makes. False: there is no room. */
static bool add(struct batch *batch, unsigned op, size_t words, uint64_t (*value)(size_t word))
{
    const struct rg_record record = {.size = (uint32_t)(sizeof record + 8 * words), .op = (uint16_t)op};
    if (batch->size + record.size > RG_MESSAGE_MAX)
        return false;
    unsigned char *at = batch->records + batch->size;
    memcpy(at, &record, sizeof record);
    for (size_t i = 0; i < words; i++) {
        const uint64_t word = value(i);
        memcpy(at + sizeof record + 8 * i, &word, sizeof word);
    }
    batch->size += record.size;
    batch->count++;
    return true;
}

/* Both ends of a session. */
struct ends {
    struct rg_delta *encoder, *decoder;
    unsigned char *out;
};

static struct ends connect_ends(void)
{
    struct ends ends = {rg_delta_create(), rg_delta_create(), malloc(RG_MESSAGE_MAX + RG_DELTA_GROWTH)};
    CHECK(ends.encoder && ends.decoder && ends.out);
    return ends;
}

static void disconnect(struct ends *ends)
{
    rg_delta_destroy(ends->encoder);
    rg_delta_destroy(ends->decoder);
    free(ends->out);
}

/* Sends a batch through; returns the bytes that it took. */
static size_t pass(struct ends *ends, const struct batch *batch)
{
    const unsigned char *records;
    size_t size;
    const size_t encoded = rg_delta_encode(ends->encoder, batch->records, batch->size, ends->out);
    CHECK(encoded <= batch->size + RG_DELTA_GROWTH);
    unsigned char *sent = malloc(encoded);
    CHECK(sent);
    memcpy(sent, ends->out, encoded);
    CHECK(rg_delta_decode(ends->decoder, sent, encoded, batch->count, &records, &size) == RG_OK);
    CHECK(size == batch->size && memcmp(records, batch->records, size) == 0);
    free(sent);
    return encoded;
}

/* --- what it is for --------------------------------------------------------------------------------------------------- */

static uint64_t salt;

static uint64_t launch_word(size_t word)
{
    return word == 0 ? 0x500000000000 + salt % 7 : word < 6 ? 32 : 0x7f0000000000 + 4096 * salt + word;
}

static uint64_t other_word(size_t word)
{
    return launch_word(word) ^ (word == 9 ? 0x1300 : 0);
}

/* A step of 300 different launches, in batches as they happen to be cut. */
static size_t pass_step(struct ends *ends, int changed_at, uint32_t cut)
{
    struct batch batch = {0};
    size_t sent = 0;
    begin(&batch);
    for (int i = 0; i < 300; i++) {
        salt = (uint64_t)i;
        CHECK(add(&batch, 77, 13, i == changed_at ? other_word : launch_word));
        if (batch.count < 1 + chance(cut) && i + 1 < 300)
            continue;
        end(&batch);
        sent += pass(ends, &batch);
        begin(&batch);
    }
    free(batch.records);
    return sent;
}

static void test_steps(void)
{
    struct ends ends = connect_ends();
    const size_t all = 300 * (sizeof(struct rg_record) + 8 * 13), first = pass_step(&ends, -1, 300);
    CHECK(first < all / 2);                  /* they resemble one another */
    for (int step = 0; step < 200; step++) { /* more than the history holds */
        CHECK(pass_step(&ends, -1, 300) <= 300);
        CHECK(pass_step(&ends, step, 300) <= 340);
        CHECK(pass_step(&ends, -1, 2) <= 300 * 8);
    }
    disconnect(&ends);
}

static uint64_t zero_word(size_t word)
{
    (void)word;
    return 0;
}

/* A burst of one and the same call, more of them than are numbered. */
static void test_burst(void)
{
    struct ends ends = connect_ends();
    struct batch batch = {0};
    for (int i = 0; i < 9; i++) {
        begin(&batch);
        while (add(&batch, 5, 0, zero_word))
            ;
        CHECK(batch.count > RG_DELTA_RECORDS);
        end(&batch);
        CHECK(pass(&ends, &batch) < 32 + sizeof(struct rg_record));
    }
    free(batch.records);
    disconnect(&ends);
}

static uint64_t random_word(size_t word)
{
    (void)word;
    return state = state * 6364136223846793005ull + 1442695040888963407ull;
}

/* Nothing that repeats, in messages as large as they can be. */
static void test_noise(void)
{
    struct ends ends = connect_ends();
    struct batch batch = {0};
    for (int i = 0; i < 20; i++) {
        begin(&batch);
        while (add(&batch, i, i % 3 ? 0 : chance(400), random_word) || add(&batch, i, 0, random_word))
            ;
        CHECK(batch.size > RG_MESSAGE_MAX - sizeof(struct rg_record));
        end(&batch);
        (void)pass(&ends, &batch);
    }
    free(batch.records);
    disconnect(&ends);
}

/* --- by chance ---------------------------------------------------------------------------------------------------------- */

static uint64_t some_word(size_t word)
{
    switch (chance(8)) {
    case 0:
        return random_word(word);
    case 1:
        return chance(3) << 8 * chance(4);
    default:
        return word;
    }
}

/* A batch of records that resemble others more or less; `mood`: how much. */
static void make_batch(struct batch *batch, unsigned mood)
{
    const uint64_t begun = state;
    begin(batch);
    if (chance(2))
        state = mood % 5; /* one that has been there before, up to a point */
    for (uint32_t i = 0, n = 1 + chance(chance(9) ? 40 : 4000); i < n; i++)
        if (!add(batch, 1 + chance(3), chance(9) ? chance(20) : chance(2000),
                 chance(3) ? launch_word : some_word) ||
            chance(200) == 0)
            state ^= begun;
    state ^= begun * 31;
    end(batch);
}

static void test_chance(unsigned long seed)
{
    struct ends ends = connect_ends();
    struct batch batch = {0};
    state = seed * 0x9e3779b97f4a7c15u + 1;
    for (unsigned i = 0; i < 60; i++) {
        salt = chance(4);
        make_batch(&batch, chance(100));
        if (batch.count)
            (void)pass(&ends, &batch);
    }
    free(batch.records);
    disconnect(&ends);
}

/* The same with bytes changed, or too few of them: refused, or taken for records that are whole; never more. */
static void test_hostile(unsigned long seed)
{
    struct ends ends = connect_ends();
    struct batch batch = {0};
    state = seed * 0x9e3779b97f4a7c15u + 3;
    for (unsigned i = 0; i < 40; i++) {
        const unsigned char *records;
        size_t size;
        make_batch(&batch, chance(100));
        size_t encoded = rg_delta_encode(ends.encoder, batch.records, batch.size, ends.out);
        for (unsigned n = chance(4); n; n--)
            ends.out[chance((uint32_t)(chance(2)      ? encoded
                                       : encoded < 40 ? encoded
                                                      : 40))] ^=
                (unsigned char)(chance(2) ? 1u << chance(8) : chance(256));
        if (chance(8) == 0)
            encoded = chance((uint32_t)encoded);
        unsigned char *sent = malloc(encoded ? encoded : 1);
        CHECK(sent);
        memcpy(sent, ends.out, encoded);
        const uint32_t count = chance(8) ? batch.count : chance(5000);
        if (rg_delta_decode(ends.decoder, sent, encoded, count, &records, &size) == RG_OK) {
            size_t at = 0;
            for (uint32_t n = 0; n < count; n++) {
                struct rg_record record;
                CHECK(size - at >= sizeof record);
                memcpy(&record, records + at, sizeof record);
                CHECK(record.size >= sizeof record && record.size % 8 == 0 && record.size <= size - at);
                at += record.size;
            }
            CHECK(at == size);
        }
        free(sent);
    }
    free(batch.records);
    disconnect(&ends);
}

/* --- what must be refused --------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *bytes, size_t size, uint32_t count)
{
    struct rg_delta *delta = rg_delta_create();
    const unsigned char *records;
    size_t records_size;
    CHECK(delta);
    CHECK(rg_delta_decode(delta, (const unsigned char *)bytes, size, count, &records, &records_size) ==
          RG_ERR_PROTOCOL);
    rg_delta_destroy(delta);
}
#define REFUSED(bytes, count) expect_refusal(bytes, sizeof bytes - 1, count)

#define RECORD "\x10\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"

static void test_refusals(void)
{
    struct rg_delta *delta = rg_delta_create();
    const unsigned char *records;
    size_t size;
    CHECK(delta);
    /* good ones first, that the others are refused for what they are about: one, and it three times more */
    CHECK(rg_delta_decode(delta, (const unsigned char *)"\x10\0" RECORD, 18, 1, &records, &size) == RG_OK);
    CHECK(size == 16 && memcmp(records, RECORD, 16) == 0);
    CHECK(rg_delta_decode(delta, (const unsigned char *)"\x30\x09\1", 3, 3, &records, &size) == RG_OK);
    CHECK(size == 48 && memcmp(records + 32, RECORD, 16) == 0);
    rg_delta_destroy(delta);

    REFUSED("", 1);
    REFUSED("\x10", 1);                                     /* nothing behind the size */
    REFUSED("\x20\0" RECORD, 1);                            /* fewer bytes than it says */
    REFUSED("\x08\0" RECORD, 1);                            /* more */
    REFUSED("\x10\0" RECORD "x", 1);                        /* bytes behind the last record */
    REFUSED("\x10\0" RECORD, 2);                            /* fewer records */
    REFUSED("\x20\4" RECORD RECORD, 1);                     /* more */
    REFUSED("\x10\0\x0f\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 1); /* records of impossible sizes */
    REFUSED("\x10\0\x14\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 1);
    REFUSED("\x10\0\xf0\xff\xff\xff\1\0\0\0\0\0\0\0\0\0\0\0", 1);
    REFUSED("\x10\1\1", 1); /* what has never been there */
    REFUSED("\x10\1\0", 1);
    REFUSED("\x20\0" RECORD "\1\2", 2);
    REFUSED("\x20\0" RECORD "\1\xff\xff\xff\xff\x7f", 2);
    REFUSED("\x20\0" RECORD "\2\1\1\1\x08", 2); /* a change of its size */
    REFUSED("\x30\0" RECORD "\6\1\0", 3);       /* two changed at once */
    REFUSED("\x20\0" RECORD "\2\1", 2);         /* a change that is cut off */
    REFUSED("\x20\0" RECORD "\2\1\2\xff\1", 2);
    REFUSED("\x10\3" RECORD, 1); /* no such kind */
    REFUSED("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0" RECORD, 1);
    REFUSED("\x81\x80\x10\0" RECORD, 1); /* more than a message can hold */
    REFUSED("\x10\xfc\xff\xff\xff\xff\xff\xff\xff\xff" RECORD, 1);
}

int main(int argc, char **argv)
{
    const unsigned long cases = argc > 1 ? strtoul(argv[1], NULL, 10) : 60;
    const unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    test_refusals();
    test_steps();
    test_burst();
    test_noise();
    for (unsigned long i = 0; i < cases; i++) {
        test_chance(seed + i);
        test_hostile(seed + i);
    }
    return 0;
}
