/*
 * fields.h - the text of the state folder's small files: lines of words, "key value…"; empty lines and those that begin with '#' say
 * nothing. Numbers are decimal, serials hexadecimal.
 *
 * Failures are sentences with file and line. One thread at a time; the text is changed while it is read.
 */
#ifndef RG_SERVER_IDENTITY_FIELDS_H
#define RG_SERVER_IDENTITY_FIELDS_H

#include "common/base/status.h"
#include "server/identity/identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_FIELD_WORDS 8

struct rg_fields {
    const char *file; /* for sentences */
    char *at;
    unsigned line;
    char *words[RG_FIELD_WORDS];
    size_t n;
};

/** The next line's words. False: there is none. A line of more words has n > RG_FIELD_WORDS. */
bool rg_fields_next(struct rg_fields *fields);
/** Whether the line is `key` and `n - 1` words more. */
bool rg_fields_is(const struct rg_fields *fields, const char *key, size_t n);
/** "FILE, line N: not understood…": what to return for a line that nobody knows. */
enum rg_status rg_fields_bad(const struct rg_fields *fields, char *why, size_t why_size);

/** Decimal digits alone, and no more than `max`; a time is in seconds since 1970. False: not so. */
RG_MUST_CHECK bool rg_field_number(const char *word, uint64_t max, uint64_t *out);
RG_MUST_CHECK bool rg_field_time(const char *word, int64_t *out);

/** "0a1b…", colons between bytes or not; leading zeros do not count. False: not a serial. */
RG_MUST_CHECK bool rg_serial_parse(const char *text, uint8_t serial[RG_IDENTITY_SERIAL], uint8_t *size);
/** Two digits a byte. */
void rg_serial_text(const uint8_t *serial, size_t size, char text[2 * RG_IDENTITY_SERIAL + 1]);
/** Whether they are the same number; none is the same as nothing. */
bool rg_serial_equal(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size);

/** Text that grows; `failed` once memory has run out. */
struct rg_text {
    char *data;
    size_t size, room;
    bool failed;
};
/** At most 1023 bytes at a time; more, or no memory, sets `failed`, after which nothing is added. */
void rg_text_add(struct rg_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rg_text_fini(struct rg_text *text);

#endif
