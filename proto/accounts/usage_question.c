/*
 * usage_question.c - what somebody wants to know about usage, as options say it, and all pages of the answer; see usage_text.h.
 *
 * A time that cannot be read, and an interval that ends before it begins, are refused with a sentence. One thread.
 */
#include "proto/accounts/usage_text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGES_MAX = 100000 };

static bool parse_date(const char *text, int64_t *out)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm date = {0};
        const char *end = strptime(text, forms[i], &date);
        struct tm meant = date;
        if (!end || *end)
            continue;
        *out = (int64_t)timegm(&meant);
        /* not the 31st of November */
        return meant.tm_mday == date.tm_mday && meant.tm_mon == date.tm_mon;
    }
    return false;
}

static bool parse_ago(const char *text, int64_t now, int64_t *out)
{
    char *end;
    const long long n = strtoll(text, &end, 10);
    const int64_t unit = *end == 'h' ? 3600 : *end == 'd' ? 86400 : *end == 'w' ? 7 * 86400 : 0;
    if (text[0] < '0' || text[0] > '9' || !unit || end[1] || n > 1000000)
        return false;
    *out = now - n * unit;
    return true;
}

/*
 * A time in UTC: "2026-11-27", "2026-11-27 14:00" (or with a T), "today", "month" (its beginning), or so long ago: "12h", "30d", "4w".
 * RG_ERR_INVALID with a phrase that names the text.
 */
static enum rg_status parse_time(const char *text, int64_t now, int64_t *out, char *why, size_t why_size)
{
    const time_t at = (time_t)now;
    struct tm date;
    if ((strcmp(text, "today") == 0 || strcmp(text, "month") == 0) && gmtime_r(&at, &date)) {
        struct tm begin = {
            .tm_year = date.tm_year, .tm_mon = date.tm_mon, .tm_mday = text[0] == 'm' ? 1 : date.tm_mday};
        *out = (int64_t)timegm(&begin);
        return RG_OK;
    }
    if (parse_date(text, out) || parse_ago(text, now, out))
        return RG_OK;
    return RG_FAILED(
        RG_ERR_INVALID, why, why_size,
        "'%s' is not a time (like 2026-11-27, '2026-11-27 14:00', today, month, or so long ago: 12h, "
        "30d, 4w)",
        text);
}

static enum rg_status read_time(const char *option, const char *text, int64_t now, int64_t *out, char *why,
                                size_t why_size)
{
    char reason[300] = "";
    if (!text || parse_time(text, now, out, reason, sizeof reason) == RG_OK)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "--%s: %s", option, reason);
}

enum rg_status rg_usage_read_question(const struct rg_usage_words *words, int64_t now,
                                      struct rg_usage_question *out, char *why, size_t why_size)
{
    *out = (struct rg_usage_question){.by = RG_USAGE_BY_USER, .has_project = words->project != NULL};
    if ((words->user && strlen(words->user) >= sizeof out->user) ||
        (words->project && strlen(words->project) >= sizeof out->project))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "the name of a user or project has at most %d bytes",
                         RG_USAGE_TEXT - 1);
    snprintf(out->user, sizeof out->user, "%s", words->user ? words->user : "");
    snprintf(out->project, sizeof out->project, "%s", words->project ? words->project : "");
    if (words->by)
        (void)rg_usage_by_name(words->by, &out->by); /* one of the choices */
    enum rg_status status =
        read_time("since", words->since ? words->since : "month", now, &out->since, why, why_size);
    if (status == RG_OK)
        status = read_time("until", words->until, now, &out->until, why, why_size);
    if (status == RG_OK && out->until && out->until <= out->since) {
        rg_explain(why, why_size, "--until is not after --since, so nothing can have been used between them");
        status = RG_ERR_INVALID;
    }
    return status;
}

static bool append(struct rg_usage_list *list, const struct rg_usage_answer *answer)
{
    struct rg_usage_row *rows = realloc(list->rows, (list->n + answer->n + 1) * sizeof *rows);
    if (!rows)
        return false;
    memcpy(rows + list->n, answer->rows, answer->n * sizeof *rows);
    list->rows = rows;
    list->n += answer->n;
    list->since = answer->since;
    list->until = answer->until;
    list->everybody = answer->everybody;
    return true;
}

enum rg_status rg_usage_collect(rg_usage_fetch *fetch, void *data, const struct rg_usage_question *question,
                                struct rg_usage_list *list, char *why, size_t why_size)
{
    struct rg_usage_question asked = *question;
    struct rg_usage_answer *answer = malloc(sizeof *answer);
    enum rg_status status = answer ? RG_OK : RG_ERR_NO_MEMORY;
    *list = (struct rg_usage_list){.by = question->by};
    bool more = true;
    for (int page = 0; status == RG_OK && more && page < PAGES_MAX; page++) {
        status = fetch(data, &asked, answer, why, why_size);
        if (status == RG_OK && answer->why[0]) {
            rg_explain(why, why_size, "%s", answer->why);
            status = RG_ERR_REFUSED;
        }
        if (status == RG_OK && !append(list, answer)) {
            rg_explain(why, why_size, "no memory for so many rows; ask about a shorter time");
            status = RG_ERR_NO_MEMORY;
        }
        more = status == RG_OK && answer->more && answer->n > 0;
        asked.skip = list->n;
    }
    free(answer);
    return status;
}

void rg_usage_list_fini(struct rg_usage_list *list)
{
    free(list->rows);
    *list = (struct rg_usage_list){0};
}
