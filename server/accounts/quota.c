/* quota.c - see quota.h. */
#include "server/accounts/quota.h"

#include "common/base/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define HOURS_MAX 1000000000.0

void rg_quota_init(struct rg_quota *quota)
{
    for (int i = 0; i < RG_QUOTAS; i++)
        quota->allowed[i] = RG_QUOTA_UNLIMITED;
}

bool rg_quota_limits_hours(const struct rg_quota *quota)
{
    return quota->allowed[RG_QUOTA_HOURS_DAY] != RG_QUOTA_UNLIMITED ||
           quota->allowed[RG_QUOTA_HOURS_MONTH] != RG_QUOTA_UNLIMITED;
}

bool rg_quota_is_limited(const struct rg_quota *quota)
{
    for (int i = 0; i < RG_QUOTAS; i++)
        if (quota->allowed[i] != RG_QUOTA_UNLIMITED)
            return true;
    return false;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static enum rg_status parse_count(const char *key, const json_t *value, uint64_t *out, char *why,
                                  size_t why_size)
{
    const json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || number > 1000000)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "\"%s\" must be a whole number from 0 to 1000000",
                         key);
    *out = (uint64_t)number;
    return RG_OK;
}

static enum rg_status parse_memory(const char *key, const json_t *value, uint64_t *out, char *why,
                                   size_t why_size)
{
    char reason[200] = "";
    if (json_is_string(value) && rg_parse_size(json_string_value(value), out, reason, sizeof reason) == RG_OK)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "\"%s\" must be a size in quotation marks, like \"40G\"%s%s", key, reason[0] ? ": " : "",
                     reason);
}

static enum rg_status parse_hours(const char *key, const json_t *value, uint64_t *out, char *why,
                                  size_t why_size)
{
    const double hours = json_is_number(value) ? json_number_value(value) : -1;
    if (!(hours >= 0 && hours <= HOURS_MAX))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "\"%s\" must be a number of hours, 0 or more", key);
    /* beyond what fits it is as good as without a limit, but still one */
    const double ns = hours * (double)RG_QUOTA_HOUR_NS;
    *out = ns < 1e19 ? (uint64_t)llround(ns < 9e18 ? ns : 9e18) : RG_QUOTA_UNLIMITED - 1;
    return RG_OK;
}

enum rg_status rg_quota_parse(const json_t *json, struct rg_quota *quota, char *why, size_t why_size)
{
    static enum rg_status (*const parsers[RG_QUOTAS])(const char *, const json_t *, uint64_t *, char *,
                                                      size_t) = {parse_count, parse_count, parse_memory,
                                                                 parse_hours, parse_hours};
    struct rg_quota read = *quota;
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "a quota must be an object, like {\"gpus\": 2}");
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        int what = 0;
        while (what < RG_QUOTAS && strcmp(rg_quota_what_name((enum rg_quota_what)what), key) != 0)
            what++;
        if (what == RG_QUOTAS)
            return RG_FAILED(
                RG_ERR_INVALID, why, why_size,
                "\"%s\" is not a quota; there are sessions, gpus, memory, gpu-hours-day, gpu-hours-month",
                key);
        RG_TRY(parsers[what](key, value, &read.allowed[what], why, why_size));
    }
    *quota = read;
    return RG_OK;
}

enum rg_status rg_quota_parse_exhausted(const json_t *json, struct rg_quota_exhausted *out, char *why,
                                        size_t why_size)
{
    struct rg_quota_exhausted read = {0};
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "it must be an object, like {\"action\": \"end\", \"grace\": \"10min\"}");
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        const char *text = json_is_string(value) ? json_string_value(value) : "";
        if (strcmp(key, "action") == 0 && (strcmp(text, "warn") == 0 || strcmp(text, "end") == 0)) {
            read.end = text[0] == 'e';
        } else if (strcmp(key, "grace") == 0 && rg_parse_duration(text, &read.grace_ns, NULL, 0) == RG_OK) {
            continue;
        } else {
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "\"%s\" is not \"action\" (\"warn\" or \"end\") or \"grace\" (like \"10min\")",
                             key);
        }
    }
    *out = read;
    return RG_OK;
}

/* --- deciding --------------------------------------------------------------------------------------------------- */

/* "alice", "group students", "project vision" */
static void subject(const struct rg_quota_case *decided, char *out, size_t size)
{
    if (decided->scope == RG_QUOTA_USER)
        snprintf(out, size, "%s", decided->name);
    else
        snprintf(out, size, "%s %s", rg_quota_scope_name(decided->scope), decided->name);
}

static void date_text(int64_t at, char *out, size_t size)
{
    const time_t when = (time_t)at;
    struct tm date;
    if (!gmtime_r(&when, &date) || strftime(out, size, "%Y-%m-%d %H:%M UTC", &date) == 0)
        snprintf(out, size, "%lld", (long long)at);
}

static void bytes_text(uint64_t bytes, char *out, size_t size)
{
    if (bytes && bytes % (1u << 30) == 0)
        snprintf(out, size, "%llu GiB", (unsigned long long)(bytes >> 30));
    else if (bytes && bytes % (1u << 20) == 0)
        snprintf(out, size, "%llu MiB", (unsigned long long)(bytes >> 20));
    else
        snprintf(out, size, "%llu bytes", (unsigned long long)bytes);
}

static bool is_used_up(const struct rg_quota_case *decided, enum rg_quota_what what)
{
    const uint64_t allowed = decided->quota->allowed[what];
    return allowed != RG_QUOTA_UNLIMITED && decided->used[what] >= allowed;
}

bool rg_quota_is_exhausted(const struct rg_quota_case *decided, char *why, size_t why_size)
{
    char who[RG_USAGE_TEXT + 16], until[40];
    for (int what = RG_QUOTA_HOURS_DAY; what <= RG_QUOTA_HOURS_MONTH; what++) {
        if (!is_used_up(decided, (enum rg_quota_what)what))
            continue;
        const bool day = what == RG_QUOTA_HOURS_DAY;
        subject(decided, who, sizeof who);
        date_text(day ? decided->day_ends : decided->month_ends, until, sizeof until);
        rg_explain(
            why, why_size,
            "%s has used up its %.2f GPU hours of this %s; there are more from %s on, or from the server's "
            "operator [quota-%s]",
            who, (double)decided->quota->allowed[what] / (double)RG_QUOTA_HOUR_NS, day ? "day" : "month",
            until, rg_quota_what_name((enum rg_quota_what)what));
        return true;
    }
    return false;
}

/* Whether that much more fits. */
static bool fits(const struct rg_quota_case *decided, const uint64_t *wanted, enum rg_quota_what what)
{
    const uint64_t allowed = decided->quota->allowed[what], used = decided->used[what];
    return allowed == RG_QUOTA_UNLIMITED || wanted[what] == 0 ||
           (used <= allowed && wanted[what] <= allowed - used);
}

enum rg_status rg_quota_check(const struct rg_quota_case *decided, const uint64_t wanted[RG_QUOTAS],
                              char *why, size_t why_size)
{
    char who[RG_USAGE_TEXT + 16], used[40], more[40], most[40];
    const uint64_t *allowed = decided->quota->allowed;
    const char *place = decided->of_pool ? "the pool" : "this server";
    const char *end = decided->of_pool ? "release a lease" : "end a session";
    subject(decided, who, sizeof who);
    if (!fits(decided, wanted, RG_QUOTA_SESSIONS)) {
        rg_explain(
            why, why_size,
            "%s has %llu session%s on this server, and may have %llu at once; end one, or ask the server's "
            "operator for more [quota-sessions]",
            who, (unsigned long long)decided->used[RG_QUOTA_SESSIONS],
            decided->used[RG_QUOTA_SESSIONS] == 1 ? "" : "s", (unsigned long long)allowed[RG_QUOTA_SESSIONS]);
    } else if (!fits(decided, wanted, RG_QUOTA_GPUS)) {
        rg_explain(why, why_size,
                   "%s holds %llu GPU%s of %s, asks for %llu more, and may hold %llu at once; ask "
                   "for fewer (-n), %s, or ask the server's operator for more [quota-gpus]",
                   who, (unsigned long long)decided->used[RG_QUOTA_GPUS],
                   decided->used[RG_QUOTA_GPUS] == 1 ? "" : "s", place,
                   (unsigned long long)wanted[RG_QUOTA_GPUS], (unsigned long long)allowed[RG_QUOTA_GPUS],
                   end);
    } else if (!fits(decided, wanted, RG_QUOTA_MEMORY)) {
        bytes_text(decided->used[RG_QUOTA_MEMORY], used, sizeof used);
        bytes_text(wanted[RG_QUOTA_MEMORY], more, sizeof more);
        bytes_text(allowed[RG_QUOTA_MEMORY], most, sizeof most);
        rg_explain(why, why_size,
                   "%s holds %s of %s's GPU memory, asks for %s more, and may hold %s at once; ask "
                   "for less (-m), %s, or ask the server's operator for more [quota-memory]",
                   who, used, place, more, most, end);
    } else if (rg_quota_is_exhausted(decided, why, why_size)) {
        return RG_ERR_REFUSED;
    } else if (rg_quota_limits_hours(decided->quota) && !decided->used_known) {
        rg_explain(
            why, why_size,
            "how many GPU hours %s has used is not known, as the server cannot read its accounts; ask the "
            "server's operator to mend them [quota-unknown]",
            who);
    } else {
        return RG_OK;
    }
    return RG_ERR_REFUSED;
}
