/*
 * parse.h - quantities as people write them: sizes, durations, bandwidths, integers, fractions.
 *
 * All of them take the whole text or fail: RG_ERR_INVALID, and `why` (why_size bytes, may be NULL) gets a
 * phrase that names the text, e.g. "'12Q' is not a size (like 512M or 4GiB)". `out` is set only on success.
 * The locale does not matter: the decimal point is a point.
 */
#ifndef RG_COMMON_BASE_PARSE_H
#define RG_COMMON_BASE_PARSE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** Bytes: "4096", "64K", "512M", "4GiB", "1.5G" (powers of 1024); "10KB", "10MB", "10GB" (powers of 1000). */
RG_MUST_CHECK enum rg_status rg_parse_size(const char *text, uint64_t *out, char *why, size_t why_size);
/** Nanoseconds: "2ms", "50us", "1.5s", "10m" or "10min", "1h"; a unit is required but for 0. */
RG_MUST_CHECK enum rg_status rg_parse_duration(const char *text, uint64_t *out_ns, char *why,
                                               size_t why_size);
/** Bytes a second, at least 1: "10Gb", "100Mbit" (bits), "1.5GB", "800MB" (bytes), each with or without "/s"; powers of
 * 1000. */
RG_MUST_CHECK enum rg_status rg_parse_bandwidth(const char *text, uint64_t *out_bytes_per_second, char *why,
                                                size_t why_size);
/** A decimal integer, or a hexadecimal one with 0x, in min..max. */
RG_MUST_CHECK enum rg_status rg_parse_integer(const char *text, int64_t min, int64_t max, int64_t *out,
                                              char *why, size_t why_size);
/** A share of a whole, more than 0 and at most 1: "0.5", "50%"; in millionths. */
RG_MUST_CHECK enum rg_status rg_parse_fraction(const char *text, uint32_t *out_millionths, char *why,
                                               size_t why_size);
/** Whether a setting's text, NULL: there is none, switches it on: it is neither empty nor 0. */
static inline bool rg_is_on(const char *text)
{
    return text != NULL && *text != '\0' && strcmp(text, "0") != 0;
}
/** strtod(3) with a point as decimal point: it would take the one of the program's locale. */
double rg_parse_double(const char *text, char **end);

#endif
