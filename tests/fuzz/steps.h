/* steps.h - inputs that are steps: numbers and texts taken off an input one after another, and put into a seed. Beyond the end all is 0. */
#ifndef RG_TESTS_FUZZ_STEPS_H
#define RG_TESTS_FUZZ_STEPS_H

#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdbool.h>
#include <string.h>

enum { FUZZ_TEXT_MAX = 8192 };

static struct rg_reader fuzz_in;

static inline bool fuzz_more(void)
{
    return !fuzz_in.bad && rg_left(&fuzz_in) > 0;
}

static inline unsigned fuzz_u8(void)
{
    uint8_t value;
    rg_get_into(&fuzz_in, &value, sizeof value);
    return value;
}

static inline uint64_t fuzz_u64(void)
{
    return rg_get_u64(&fuzz_in);
}

/** u16 size, little-endian, and so many bytes, or as many as there are; ends with NUL. Valid until the next one. */
static inline const char *fuzz_text(size_t *size)
{
    static char text[FUZZ_TEXT_MAX + 1];
    uint16_t wanted;
    rg_get_into(&fuzz_in, &wanted, sizeof wanted);
    *size = wanted < rg_left(&fuzz_in) ? wanted : rg_left(&fuzz_in);
    *size = *size < FUZZ_TEXT_MAX ? *size : FUZZ_TEXT_MAX;
    rg_get_into(&fuzz_in, text, *size);
    text[*size] = '\0';
    return text;
}

/* --- seeds ---------------------------------------------------------------------------------------------------- */

static unsigned char fuzz_made[FUZZ_TEXT_MAX];
static size_t fuzz_made_size;

static inline void fuzz_add(const void *bytes, size_t size)
{
    CHECK(size <= sizeof fuzz_made - fuzz_made_size);
    memcpy(fuzz_made + fuzz_made_size, bytes, size);
    fuzz_made_size += size;
}

static inline void fuzz_add_text(const void *text, size_t size)
{
    const uint16_t stated = (uint16_t)size;
    fuzz_add(&stated, sizeof stated);
    fuzz_add(text, size);
}

/** Bytes of a step, and a text behind them unless that is NULL. */
static inline void fuzz_add_step(const unsigned char *head, size_t n, const char *text)
{
    fuzz_add(head, n);
    if (text)
        fuzz_add_text(text, strlen(text));
}
#define FUZZ_STEP(text, ...)                                                                                 \
    fuzz_add_step((const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__}), text)

/** The seed is whole. */
static inline void fuzz_finish(const char *name)
{
    fuzz_seed(name, fuzz_made, fuzz_made_size);
    fuzz_made_size = 0;
}

#endif
