/*
 * parse.c - a decimal number and a unit, without the locale's strtod.
 *
 * Each kind of quantity is a table of units; one function reads "digits[.digits]" into a fixed-point number
 * of billionths, so that 0.1GB is exact, and multiplies by the unit with a check for overflow.
 */
#include "common/base/parse.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE = 1000000000 };
typedef unsigned __int128 u128;

struct unit {
    const char *name;
    uint64_t factor;
    uint64_t divisor;
};

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

static const struct unit size_units[] = {
    {"", 1, 1},
    {"B", 1, 1},
    {"K", KIB, 1},
    {"KiB", KIB, 1},
    {"M", MIB, 1},
    {"MiB", MIB, 1},
    {"G", GIB, 1},
    {"GiB", GIB, 1},
    {"T", TIB, 1},
    {"TiB", TIB, 1},
    {"KB", 1000, 1},
    {"MB", 1000000ull, 1},
    {"GB", 1000000000ull, 1},
    {"TB", 1000000000000ull, 1},
};
static const struct unit duration_units[] = {
    {"ns", 1, 1},
    {"us", 1000, 1},
    {"ms", 1000000ull, 1},
    {"s", 1000000000ull, 1},
    {"m", 60000000000ull, 1},
    {"min", 60000000000ull, 1},
    {"h", 3600000000000ull, 1},
    {"d", 86400000000000ull, 1},
};
static const struct unit bandwidth_units[] = {
    {"b", 1, 8},
    {"bit", 1, 8},
    {"B", 1, 1},
    {"Kb", 1000, 8},
    {"Kbit", 1000, 8},
    {"KB", 1000, 1},
    {"Mb", 1000000, 8},
    {"Mbit", 1000000, 8},
    {"MB", 1000000, 1},
    {"Gb", 1000000000, 8},
    {"Gbit", 1000000000, 8},
    {"GB", 1000000000, 1},
    {"Tb", 1000000000000, 8},
    {"Tbit", 1000000000000, 8},
    {"TB", 1000000000000, 1},
};
static const struct unit fraction_units[] = {{"", 1000000, 1}, {"%", 10000, 1}};

/* Reads "12", "12.5" or ".5" as billionths; returns the rest, or NULL. Digits beyond the ninth decimal are
 * dropped. */
static const char *read_decimal(const char *text, u128 *out)
{
    u128 value = 0;
    bool any = false;
    for (; *text >= '0' && *text <= '9'; text++, any = true) {
        value = value * 10 + (unsigned)(*text - '0');
        if (value > UINT64_MAX)
            return NULL;
    }
    value *= SCALE;
    if (*text == '.') {
        text++;
        for (u128 place = SCALE / 10; *text >= '0' && *text <= '9'; text++, any = true) {
            value += place * (unsigned)(*text - '0');
            place /= 10;
        }
    }
    *out = value;
    return any ? text : NULL;
}

static enum rg_status parse_quantity(const char *text, const struct unit *units, size_t n_units,
                                     bool per_second, const char *kind, uint64_t *out, char *why,
                                     size_t why_size)
{
    u128 value = 0;
    const char *rest = text ? read_decimal(text, &value) : NULL;
    if (!rest)
        goto invalid;
    size_t length = strlen(rest);
    if (per_second && length > 2 && strcmp(rest + length - 2, "/s") == 0)
        length -= 2;
    if (value == 0 && length == 0) {
        *out = 0;
        return RG_OK;
    }
    for (size_t i = 0; i < n_units; i++) {
        if (strlen(units[i].name) != length || strncmp(units[i].name, rest, length) != 0)
            continue;
        /* the integer part is below 2^64 and a factor below 2^47, so neither product leaves 128 bits */
        u128 result =
            (value / SCALE * units[i].factor + value % SCALE * units[i].factor / SCALE) / units[i].divisor;
        if (result > UINT64_MAX)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is too large", text);
        *out = (uint64_t)result;
        return RG_OK;
    }
invalid:
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not %s", text ? text : "", kind);
}

#define UNITS(table) (table), sizeof(table) / sizeof((table)[0])

enum rg_status rg_parse_size(const char *text, uint64_t *out, char *why, size_t why_size)
{
    return parse_quantity(text, UNITS(size_units), false, "a size (like 512M or 4GiB)", out, why, why_size);
}

enum rg_status rg_parse_duration(const char *text, uint64_t *out_ns, char *why, size_t why_size)
{
    return parse_quantity(text, UNITS(duration_units), false, "a duration (like 10min, 2ms or 50us)", out_ns,
                          why, why_size);
}

enum rg_status rg_parse_bandwidth(const char *text, uint64_t *out_bytes_per_second, char *why,
                                  size_t why_size)
{
    uint64_t value = 0;
    enum rg_status status = parse_quantity(text, UNITS(bandwidth_units), true,
                                           "a bandwidth (like 10Gb or 1.5GB)", &value, why, why_size);
    if (status == RG_OK && value == 0) {
        rg_explain(why, why_size, "'%s' is less than a byte a second", text);
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK)
        *out_bytes_per_second = value;
    return status;
}

enum rg_status rg_parse_fraction(const char *text, uint32_t *out_millionths, char *why, size_t why_size)
{
    uint64_t value = 0;
    RG_TRY(parse_quantity(text, UNITS(fraction_units), false, "a fraction (like 0.5 or 50%)", &value, why,
                          why_size));
    if (value == 0 || value > 1000000)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not more than 0 and at most 1 (100%%)",
                         text);
    *out_millionths = (uint32_t)value;
    return RG_OK;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 16;
}

enum rg_status rg_parse_integer(const char *text, int64_t min, int64_t max, int64_t *out, char *why,
                                size_t why_size)
{
    const char *cur = text ? text : "";
    bool negative = *cur == '-';
    cur += negative;
    int base = 10;
    if (cur[0] == '0' && (cur[1] == 'x' || cur[1] == 'X')) {
        base = 16;
        cur += 2;
    }
    bool valid = *cur != '\0', fits = true;
    u128 value = 0;
    for (; *cur; cur++) {
        int digit = digit_value(*cur);
        if (digit >= base) {
            valid = false;
            break;
        }
        value = value * (unsigned)base + (unsigned)digit;
        if (value > (u128)INT64_MAX + 1) {
            fits = false;
            value = 0;
        }
    }
    if (!valid)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not an integer", text ? text : "");
    __int128 number = negative ? -(__int128)value : (__int128)value;
    if (!fits || number < min || number > max)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not in the range %lld to %lld", text,
                         (long long)min, (long long)max);
    *out = (int64_t)number;
    return RG_OK;
}

static locale_t plain; /* belongs to the C library */

static void find_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double rg_parse_double(const char *text, char **end)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_plain);
    return plain ? strtod_l(text, end, plain) : strtod(text, end);
}
