/* exposition.c - metrics as text: what names of peers can and cannot do to it, and both formats. */
#include "server/http/exposition.h"
#include "server/http/reader.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct rg_exposition out;

static void fini(void)
{
    free(out.text);
}

TestSuite(exposition, .fini = fini);

Test(exposition, counters_are_called_as_each_format_wants)
{
    out.openmetrics = true;
    rg_exposition_family(&out, "x_seconds", RG_METRIC_COUNTER, "seconds", "Help.");
    rg_exposition_sample(&out, NULL, 0, 1.5);
    cr_assert_eq(rg_exposition_end(&out), RG_OK);
    cr_assert_str_eq(out.text, "# TYPE x_seconds counter\n# UNIT x_seconds seconds\n# HELP x_seconds Help.\n"
                               "x_seconds_total 1.5\n# EOF\n");
}

Test(exposition, older_format)
{
    rg_exposition_family(&out, "x_seconds", RG_METRIC_COUNTER, "seconds", "Help.");
    rg_exposition_sample(&out, NULL, 0, 2);
    cr_assert_eq(rg_exposition_end(&out), RG_OK);
    cr_assert_str_eq(out.text,
                     "# TYPE x_seconds_total counter\n# HELP x_seconds_total Help.\nx_seconds_total 2\n");
}

Test(exposition, hostile_labels_stay_labels)
{
    static const char hostile[] = "a\"} 1\nevil{b=\"c\\\x1b[31m\xff\xe2\x80\xae\xc3\xa4";
    rg_exposition_family(&out, "x", RG_METRIC_GAUGE, "", "H");
    const size_t before = out.size;
    rg_exposition_sample(&out, (const struct rg_label[]){{"l", hostile}}, 1, 1);
    cr_assert_eq(rg_exposition_end(&out), RG_OK);
    cr_assert_str_eq(out.text + before, "x{l=\"a\\\"} 1\\nevil{b=\\\"c\\\\?[31m????\xc3\xa4\"} 1\n");
}

Test(exposition, numbers_keep_what_they_are)
{
    rg_exposition_family(&out, "x", RG_METRIC_GAUGE, "", "H");
    const size_t before = out.size;
    rg_exposition_sample(&out, NULL, 0, 9007199254740991.0);
    rg_exposition_sample(&out, NULL, 0, 0.1);
    rg_exposition_sample(&out, NULL, 0, 1e300);
    cr_assert_eq(rg_exposition_end(&out), RG_OK);
    cr_assert_str_eq(out.text + before,
                     "x 9007199254740991\nx 0.10000000000000001\nx 1.0000000000000001e+300\n");
}

/* A page of elsewhere whose name was made to lead to this machine says its own name. */
Test(service, only_this_machines_names)
{
    static const char *const own[] = {"localhost",       "LocalHost:9401", "127.0.0.1", "127.0.0.1:1",
                                      "127.8.9.10:9401", "[::1]",          "[::1]:9401"};
    static const char *const others[] = {"",
                                         "evil.example",
                                         "evil.example:9401",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "localhost:9401@evil.example",
                                         "localhost:x",
                                         "10.0.0.1",
                                         "[::2]",
                                         "[::1",
                                         "[::1]x",
                                         "0127.0.0.1"};
    char longest[300];
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cr_assert(rg_reader_is_own_host(own[i]), "%s", own[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert(!rg_reader_is_own_host(others[i]), "%s", others[i]);
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    cr_assert(!rg_reader_is_own_host(longest));
}
