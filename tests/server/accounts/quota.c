/* quota.c - quotas as they are written, and what they decide; the codes and texts of refusals. */
#include "server/accounts/quota.h"

#include <criterion/criterion.h>
#include <string.h>

static char why[512];
static struct rg_quota quota;

static enum rg_status parse(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    cr_assert(json);
    rg_quota_init(&quota);
    why[0] = 0;
    const enum rg_status status = rg_quota_parse(json, &quota, why, sizeof why);
    json_decref(json);
    return status;
}

Test(quota, reading)
{
    cr_assert_eq(parse("{\"sessions\": 4, \"gpus\": 0, \"memory\": \"40G\", \"gpu-hours-day\": 1.5, "
                       "\"gpu-hours-month\": 100}"),
                 RG_OK, "%s", why);
    cr_expect_eq(quota.allowed[RG_QUOTA_SESSIONS], 4);
    cr_expect_eq(quota.allowed[RG_QUOTA_GPUS], 0);
    cr_expect_eq(quota.allowed[RG_QUOTA_MEMORY], 40ull << 30);
    cr_expect_eq(quota.allowed[RG_QUOTA_HOURS_DAY], 3 * RG_QUOTA_HOUR_NS / 2);
    cr_expect_eq(quota.allowed[RG_QUOTA_HOURS_MONTH], 100 * RG_QUOTA_HOUR_NS);
    cr_expect(rg_quota_limits_hours(&quota));
    cr_assert_eq(parse("{}"), RG_OK);
    cr_expect_not(rg_quota_is_limited(&quota));
    cr_assert_eq(parse("{\"gpus\": 1}"), RG_OK);
    cr_expect(rg_quota_is_limited(&quota));
    cr_expect_not(rg_quota_limits_hours(&quota));
}

Test(quota, mistakes)
{
    static const char *const wrong[][2] = {
        {"{\"gpu\": 1}", "\"gpu\" is not a quota"},
        {"{\"gpus\": -1}", "\"gpus\" must be a whole number"},
        {"{\"gpus\": 1.5}", "\"gpus\" must be a whole number"},
        {"{\"gpus\": \"2\"}", "\"gpus\" must be a whole number"},
        {"{\"memory\": 4096}", "\"memory\" must be a size"},
        {"{\"memory\": \"12Q\"}", "'12Q'"},
        {"{\"gpu-hours-day\": -0.5}", "\"gpu-hours-day\" must be a number of hours"},
        {"{\"gpu-hours-day\": null}", "\"gpu-hours-day\" must be a number of hours"},
        {"[]", "must be an object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(parse(wrong[i][0]), RG_ERR_INVALID, "%s", wrong[i][0]);
        cr_expect(strstr(why, wrong[i][1]), "%s: %s", wrong[i][0], why);
        cr_expect_not(rg_quota_is_limited(&quota), "%s", wrong[i][0]);
    }
}

static struct rg_quota_case decided = {.scope = RG_QUOTA_USER,
                                       .name = "alice",
                                       .quota = &quota,
                                       .used_known = true,
                                       .day_ends = 1790000000,
                                       .month_ends = 1790900000};

static void expect(const uint64_t wanted[RG_QUOTAS], const char *text)
{
    why[0] = 0;
    const enum rg_status status = rg_quota_check(&decided, wanted, why, sizeof why);
    cr_expect_eq(status, *text ? RG_ERR_REFUSED : RG_OK, "%s", why);
    cr_expect_str_eq(why, text);
}

static const uint64_t one[RG_QUOTAS] = {
    [RG_QUOTA_SESSIONS] = 1, [RG_QUOTA_GPUS] = 2, [RG_QUOTA_MEMORY] = 8ull << 30};

/* Operators' scripts and users read these: a change is an entry of the change log. */
Test(quota, texts)
{
    cr_assert_eq(parse("{\"sessions\": 2}"), RG_OK);
    decided.used[RG_QUOTA_SESSIONS] = 1;
    expect(one, "");
    decided.used[RG_QUOTA_SESSIONS] = 2;
    expect(one, "alice has 2 sessions on this server, and may have 2 at once; end one, or ask the server's "
                "operator for "
                "more [quota-sessions]");
    cr_assert_eq(parse("{\"gpus\": 3}"), RG_OK);
    decided.used[RG_QUOTA_GPUS] = 1;
    expect(one, "");
    decided.used[RG_QUOTA_GPUS] = 2;
    expect(one, "alice holds 2 GPUs of this server, asks for 2 more, and may hold 3 at once; ask for fewer "
                "(-n), end a "
                "session, or ask the server's operator for more [quota-gpus]");
    cr_assert_eq(parse("{\"memory\": \"12G\"}"), RG_OK);
    decided.used[RG_QUOTA_MEMORY] = 4ull << 30;
    expect(one, "");
    decided.used[RG_QUOTA_MEMORY]++;
    decided.scope = RG_QUOTA_PROJECT;
    decided.name = "vision";
    expect(one,
           "project vision holds 4294967297 bytes of this server's GPU memory, asks for 8 GiB more, and may "
           "hold 12 GiB "
           "at once; ask for less (-m), end a session, or ask the server's operator for more [quota-memory]");
    cr_assert_eq(parse("{\"gpu-hours-day\": 1, \"gpu-hours-month\": 2}"), RG_OK);
    decided.scope = RG_QUOTA_GROUP;
    decided.name = "students";
    decided.used[RG_QUOTA_HOURS_DAY] = RG_QUOTA_HOUR_NS - 1;
    expect(one, "");
    decided.used[RG_QUOTA_HOURS_DAY]++;
    expect(one, "group students has used up its 1.00 GPU hours of this day; there are more from 2026-09-21 "
                "14:13 UTC on, or "
                "from the server's operator [quota-gpu-hours-day]");
    decided.used[RG_QUOTA_HOURS_DAY] = 0;
    decided.used[RG_QUOTA_HOURS_MONTH] = 2 * RG_QUOTA_HOUR_NS;
    expect(one, "group students has used up its 2.00 GPU hours of this month; there are more from 2026-10-02 "
                "00:13 UTC on, "
                "or from the server's operator [quota-gpu-hours-month]");
    cr_expect(rg_quota_is_exhausted(&decided, why, sizeof why));
}

Test(quota, what_is_not_known_is_not_open)
{
    decided.used_known = false;
    cr_assert_eq(parse("{\"gpus\": 9}"), RG_OK);
    expect(one, "");
    cr_assert_eq(parse("{\"gpu-hours-month\": 9}"), RG_OK);
    expect(one, "how many GPU hours alice has used is not known, as the server cannot read its accounts; ask "
                "the server's "
                "operator to mend them [quota-unknown]");
    cr_expect_not(rg_quota_is_exhausted(&decided, why, sizeof why));
}

Test(quota, nothing_allowed_and_no_limit)
{
    cr_assert_eq(parse("{\"gpus\": 0, \"sessions\": 1}"), RG_OK);
    const uint64_t measurement[RG_QUOTAS] = {[RG_QUOTA_SESSIONS] = 1}; /* it holds no GPU */
    expect(measurement, "");
    cr_expect_eq(rg_quota_check(&decided, one, why, sizeof why), RG_ERR_REFUSED);
    cr_assert_eq(parse("{}"), RG_OK);
    for (int i = 0; i < RG_QUOTAS; i++)
        decided.used[i] = UINT64_MAX - 1;
    expect(one, "");
}

Test(quota, exhausted)
{
    struct rg_quota_exhausted exhausted;
    json_t *json = json_loads("{\"action\": \"end\", \"grace\": \"10min\"}", 0, NULL);
    cr_assert_eq(rg_quota_parse_exhausted(json, &exhausted, why, sizeof why), RG_OK, "%s", why);
    cr_expect(exhausted.end);
    cr_expect_eq(exhausted.grace_ns, 600000000000ull);
    json_decref(json);
    static const char *const wrong[] = {"{\"action\": \"kill\"}", "{\"grace\": 10}", "{\"after\": \"1s\"}",
                                        "[]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json = json_loads(wrong[i], 0, NULL);
        cr_expect_eq(rg_quota_parse_exhausted(json, &exhausted, why, sizeof why), RG_ERR_INVALID, "%s",
                     wrong[i]);
        json_decref(json);
    }
}
