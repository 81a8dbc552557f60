/* parse.c - quantities as people write them. */
#include "common/base/parse.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>

typedef enum rg_status (*parse_fn)(const char *, uint64_t *, char *, size_t);

struct good {
    const char *text;
    uint64_t value;
};

static void expect_good(parse_fn parse, const struct good *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 42;
        char why[128] = "";
        cr_assert_eq(parse(table[i].text, &value, why, sizeof why), RG_OK, "%s: %s", table[i].text, why);
        cr_assert_eq(value, table[i].value, "%s gives %lu", table[i].text, value);
    }
}

static void expect_bad(parse_fn parse, const char *const *table, size_t n, const char *kind)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 42;
        char why[128] = "", expected[128];
        cr_assert_eq(parse(table[i], &value, why, sizeof why), RG_ERR_INVALID, "%s", table[i]);
        cr_assert_eq(value, 42);
        snprintf(expected, sizeof expected, "'%s' is not %s", table[i] ? table[i] : "", kind);
        cr_assert_str_eq(why, expected);
        cr_assert_eq(parse(table[i], &value, NULL, 0), RG_ERR_INVALID);
    }
}
#define TABLE(t) (t), sizeof(t) / sizeof((t)[0])

Test(parse, sizes)
{
    static const struct good good[] = {
        {"0", 0},
        {"4096", 4096},
        {"1B", 1},
        {"64K", 65536},
        {"512M", 512ull << 20},
        {"4GiB", 4ull << 30},
        {"1.5G", 3ull << 29},
        {".5K", 512},
        {"2TiB", 2ull << 40},
        {"10KB", 10000},
        {"1.25GB", 1250000000},
        {"0.1GB", 100000000},
        {"18446744073709551615", UINT64_MAX},
        {"16777215TiB", 16777215ull << 40},
    };
    static const char *const bad[] = {NULL,    "",    "x", "12Q",  "-1",  "1 G", "1e3",
                                      "1.2.3", ".",   "G", "4gib", "1G ", " 1",  "18446744073709551616",
                                      "0x10",  "1,5G"};
    expect_good(rg_parse_size, TABLE(good));
    expect_bad(rg_parse_size, TABLE(bad), "a size (like 512M or 4GiB)");
    uint64_t value = 42;
    char why[64];
    cr_assert_eq(rg_parse_size("16777216TiB", &value, why, sizeof why), RG_ERR_INVALID);
    cr_assert_str_eq(why, "'16777216TiB' is too large");
    cr_assert_eq(value, 42);
}

Test(parse, durations)
{
    static const struct good good[] = {
        {"0", 0},
        {"2ms", 2000000},
        {"50us", 50000},
        {"1.5s", 1500000000},
        {"7ns", 7},
        {"0.5us", 500},
        {"10min", 600000000000},
        {"10m", 600000000000},
        {"1h", 3600000000000},
        {"7d", 604800000000000},
    };
    static const char *const bad[] = {"2", "2M", "ms", "2 ms", "2MS", "-2ms", "2ms/s"};
    expect_good(rg_parse_duration, TABLE(good));
    expect_bad(rg_parse_duration, TABLE(bad), "a duration (like 10min, 2ms or 50us)");
}

Test(parse, bandwidths)
{
    static const struct good good[] = {
        {"10Gb", 1250000000},  {"10Gb/s", 1250000000}, {"100Mbit", 12500000},
        {"1.5GB", 1500000000}, {"800MB/s", 800000000}, {"8b", 1},
        {"1Tb", 125000000000},
    };
    static const char *const bad[] = {"10", "10G", "10GiB", "10Gb/h", "10Gbps", "/s", "10/s"};
    expect_good(rg_parse_bandwidth, TABLE(good));
    expect_bad(rg_parse_bandwidth, TABLE(bad), "a bandwidth (like 10Gb or 1.5GB)");
    static const char *const nothing[] = {"0", "0Gb", "7b", "0.5B/s"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        uint64_t value = 42;
        cr_assert_eq(rg_parse_bandwidth(nothing[i], &value, NULL, 0), RG_ERR_INVALID, "%s", nothing[i]);
        cr_assert_eq(value, 42);
    }
}

Test(parse, fractions)
{
    uint32_t value = 0;
    char why[128];
    cr_assert_eq(rg_parse_fraction("0.5", &value, why, sizeof why), RG_OK);
    cr_assert_eq(value, 500000);
    cr_assert_eq(rg_parse_fraction("50%", &value, why, sizeof why), RG_OK);
    cr_assert_eq(value, 500000);
    cr_assert_eq(rg_parse_fraction("1", &value, why, sizeof why), RG_OK);
    cr_assert_eq(value, 1000000);
    cr_assert_eq(rg_parse_fraction("12.5%", &value, why, sizeof why), RG_OK);
    cr_assert_eq(value, 125000);
    static const char *const bad[] = {"0", "1.1", "101%", "-1", "x", "", "50 %"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        why[0] = '\0';
        cr_assert_eq(rg_parse_fraction(bad[i], &value, why, sizeof why), RG_ERR_INVALID, "%s", bad[i]);
        cr_assert_neq(why[0], '\0');
    }
    cr_assert_eq(value, 125000);
}

Test(parse, integers)
{
    int64_t value = 0;
    char why[128] = "";
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-5", -5},
                {"65535", 65535},
                {"0x1F", 31},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN},
                {"007", 7}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_assert_eq(rg_parse_integer(good[i].text, INT64_MIN, INT64_MAX, &value, why, sizeof why), RG_OK,
                     "%s", why);
        cr_assert_eq(value, good[i].value);
    }
    static const char *const bad[] = {"", "-", "0x", "1.5", "12a", " 1", "+1", "0xg"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(rg_parse_integer(bad[i], INT64_MIN, INT64_MAX, &value, why, sizeof why), RG_ERR_INVALID);
    cr_assert_eq(rg_parse_integer("9223372036854775808", INT64_MIN, INT64_MAX, &value, why, sizeof why),
                 RG_ERR_INVALID);
    cr_assert_eq(
        rg_parse_integer("99999999999999999999999999999999999999999999", 0, 10, &value, why, sizeof why),
        RG_ERR_INVALID);
    cr_assert_eq(rg_parse_integer("11", 1, 10, &value, why, sizeof why), RG_ERR_INVALID);
    cr_assert_str_eq(why, "'11' is not in the range 1 to 10");
    cr_assert_eq(rg_parse_integer("0", 1, 10, &value, why, sizeof why), RG_ERR_INVALID);
    cr_assert_eq(rg_parse_integer("10", 1, 10, &value, why, sizeof why), RG_OK);
}

/* The application may have set a locale whose decimal point is a comma. */
Test(parse, locale_does_not_matter)
{
    uint64_t value = 0;
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        cr_skip("no such locale here");
    cr_assert_eq(rg_parse_size("1.5K", &value, NULL, 0), RG_OK);
    cr_assert_eq(value, 1536);
}
