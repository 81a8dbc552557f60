/* usage.c - see usage.h: the bytes of questions and answers. */
#include "proto/accounts/usage.h"

#include "proto/codec.h"
#include "proto/control/control.h"

#include <string.h>

enum { ROW_NUMBERS = 11, ROW_LATER = 4 };

#define ON_MIG 0x100u /* in the number of the way of sharing */

_Static_assert(RG_QUOTA_SCOPES_MAX *(16 + RG_USAGE_TEXT + 2 * 8 * RG_QUOTAS) + 1024 <= RG_ANSWER_SIZE_MAX,
               "all quotas fit into an answer");
_Static_assert(2 * RG_USAGE_TEXT + 128 <= RG_QUESTION_SIZE_MAX, "a question fits");

static const char *name_of(const char *const *names, size_t n, unsigned value)
{
    return value < n && names[value] ? names[value] : "";
}

const char *rg_usage_kind_name(enum rg_usage_kind kind)
{
    static const char *const names[] = {[RG_USAGE_NOBODY] = RG_USAGE_UNAUTHENTICATED,
                                        [RG_USAGE_LOCAL] = "local",
                                        [RG_USAGE_CERTIFICATE] = "certificate"};
    return name_of(names, sizeof names / sizeof *names, kind);
}

static const char *const by_names[] = {
    [RG_USAGE_BY_USER] = "user",   [RG_USAGE_BY_PROJECT] = "project", [RG_USAGE_BY_DAY] = "day",
    [RG_USAGE_BY_MONTH] = "month", [RG_USAGE_BY_SESSION] = "session", [RG_USAGE_BY_SHARING] = "sharing"};

const char *rg_usage_by_text(enum rg_usage_by by)
{
    return name_of(by_names, sizeof by_names / sizeof *by_names, by);
}

bool rg_usage_by_name(const char *name, enum rg_usage_by *out)
{
    for (unsigned i = RG_USAGE_BY_USER; i <= RG_USAGE_BY_LAST; i++)
        if (strcmp(by_names[i], name) == 0) {
            *out = (enum rg_usage_by)i;
            return true;
        }
    return false;
}

const char *rg_quota_what_name(enum rg_quota_what what)
{
    static const char *const names[] = {"sessions", "gpus", "memory", "gpu-hours-day", "gpu-hours-month"};
    return name_of(names, sizeof names / sizeof *names, what);
}

const char *rg_quota_scope_name(enum rg_quota_scope scope)
{
    static const char *const names[] = {
        [RG_QUOTA_USER] = "user", [RG_QUOTA_GROUP] = "group", [RG_QUOTA_PROJECT] = "project"};
    return name_of(names, sizeof names / sizeof *names, scope);
}

static void get_text(struct rg_reader *r, char *out, size_t size)
{
    const char *text = rg_get_string(r, size);
    out[0] = 0;
    if (text)
        rg_control_text(out, size, text, strlen(text));
}

static enum rg_status status_of(const struct rg_reader *r)
{
    return r->bad ? RG_ERR_PROTOCOL : RG_OK;
}

static size_t size_of(const struct rg_writer *w, const void *begin)
{
    return (size_t)(w->at - (const unsigned char *)begin);
}

/* --- usage -------------------------------------------------------------------------------------------------- */

size_t rg_usage_pack_question(const struct rg_usage_question *question, void *out)
{
    struct rg_writer w = {out};
    rg_put_u32(&w, question->by);
    rg_put_u32(&w, question->has_project);
    rg_put_u64(&w, (uint64_t)question->since);
    rg_put_u64(&w, (uint64_t)question->until);
    rg_put_u64(&w, question->skip);
    rg_put_string(&w, question->user);
    rg_put_string(&w, question->project);
    return size_of(&w, out);
}

/* What is behind is of a newer client, and does not matter. */
enum rg_status rg_usage_unpack_question(const void *data, size_t size, struct rg_usage_question *out)
{
    struct rg_reader r = rg_reader_of(data, size);
    *out = (struct rg_usage_question){0};
    const uint32_t by = rg_get_u32(&r);
    out->has_project = rg_get_u32(&r) != 0;
    out->since = (int64_t)rg_get_u64(&r);
    out->until = (int64_t)rg_get_u64(&r);
    out->skip = rg_get_u64(&r);
    get_text(&r, out->user, sizeof out->user);
    get_text(&r, out->project, sizeof out->project);
    if (by < RG_USAGE_BY_USER || by > RG_USAGE_BY_LAST || out->skip > INT64_MAX)
        return RG_ERR_PROTOCOL;
    out->by = (enum rg_usage_by)by;
    return status_of(&r);
}

static void put_row(struct rg_writer *w, const struct rg_usage_row *row)
{
    rg_put_u32(w, row->kind);
    rg_put_string(w, row->user);
    rg_put_string(w, row->address);
    rg_put_string(w, row->project);
    rg_put_string(w, row->period);
    rg_put_string(w, row->end);
    const uint64_t numbers[ROW_NUMBERS] = {row->session,      (uint64_t)row->started, (uint64_t)row->ended,
                                           row->sessions,     row->held_ns,           row->busy_ns,
                                           row->byte_seconds, row->bytes_in,          row->bytes_out,
                                           row->launches,     row->peak_bytes};
    rg_put(w, numbers, sizeof numbers);
}

static void get_row(struct rg_reader *r, struct rg_usage_row *row)
{
    uint64_t numbers[ROW_NUMBERS];
    const uint32_t kind = rg_get_u32(r);
    if (kind > RG_USAGE_CERTIFICATE)
        r->bad = true;
    row->kind = (enum rg_usage_kind)kind;
    get_text(r, row->user, sizeof row->user);
    get_text(r, row->address, sizeof row->address);
    get_text(r, row->project, sizeof row->project);
    get_text(r, row->period, sizeof row->period);
    get_text(r, row->end, sizeof row->end);
    rg_get_into(r, numbers, sizeof numbers);
    row->session = numbers[0];
    row->started = (int64_t)numbers[1];
    row->ended = (int64_t)numbers[2];
    row->sessions = numbers[3];
    row->held_ns = numbers[4];
    row->busy_ns = numbers[5];
    row->byte_seconds = numbers[6];
    row->bytes_in = numbers[7];
    row->bytes_out = numbers[8];
    row->launches = numbers[9];
    row->peak_bytes = numbers[10];
}

/* A way of a newer server is not known. */
static void get_sharing(struct rg_reader *r, struct rg_usage_row *row)
{
    const uint32_t word = rg_get_u32(r), sharing = word & ~ON_MIG;
    row->sharing = sharing < RG_SHARINGS ? (enum rg_sharing)sharing : RG_SHARING_UNKNOWN;
    row->mig = word & ON_MIG;
}

static size_t size_of_row(const struct rg_usage_row *row)
{
    return 4 + rg_size_of_string(row->user) + rg_size_of_string(row->address) +
           rg_size_of_string(row->project) + rg_size_of_string(row->period) + rg_size_of_string(row->end) +
           ROW_NUMBERS * 8 + ROW_LATER;
}

size_t rg_usage_pack_answer(const struct rg_usage_answer *answer, void *out)
{
    struct rg_writer w = {out};
    size_t size = 2 * 4 + 2 * 8 + rg_size_of_string(answer->why) + 8;
    uint32_t n = 0;
    while (n < answer->n && size + size_of_row(&answer->rows[n]) <= RG_ANSWER_SIZE_MAX)
        size += size_of_row(&answer->rows[n++]);
    rg_put_u32(&w, answer->everybody);
    rg_put_u32(&w, answer->more || n < answer->n);
    rg_put_u64(&w, (uint64_t)answer->since);
    rg_put_u64(&w, (uint64_t)answer->until);
    rg_put_string(&w, answer->why);
    rg_put_u64(&w, n);
    for (uint32_t i = 0; i < n; i++)
        put_row(&w, &answer->rows[i]);
    for (uint32_t i = 0; i < n; i++)
        rg_put_u32(&w, answer->rows[i].sharing | (answer->rows[i].mig ? ON_MIG : 0));
    return size_of(&w, out);
}

enum rg_status rg_usage_unpack_answer(const void *data, size_t size, struct rg_usage_answer *out)
{
    struct rg_reader r = rg_reader_of(data, size);
    memset(out, 0, sizeof *out);
    out->everybody = rg_get_u32(&r) != 0;
    out->more = rg_get_u32(&r) != 0;
    out->since = (int64_t)rg_get_u64(&r);
    out->until = (int64_t)rg_get_u64(&r);
    get_text(&r, out->why, sizeof out->why);
    out->n = (uint32_t)rg_get_count(&r, RG_USAGE_ROWS_MAX, 1);
    for (uint32_t i = 0; i < out->n && !r.bad; i++)
        get_row(&r, &out->rows[i]);
    for (uint32_t i = 0; i < out->n && rg_left(&r) > 0; i++) /* an older server says no more */
        get_sharing(&r, &out->rows[i]);
    return status_of(&r);
}

/* --- quotas ------------------------------------------------------------------------------------------------- */

size_t rg_quota_pack_answer(const struct rg_quota_answer *answer, void *out)
{
    struct rg_writer w = {out};
    rg_put_u32(&w, answer->used_known);
    rg_put_u64(&w, (uint64_t)answer->now);
    rg_put_u64(&w, (uint64_t)answer->day_ends);
    rg_put_u64(&w, (uint64_t)answer->month_ends);
    rg_put_string(&w, answer->user);
    rg_put_u64(&w, answer->n);
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct rg_quota_row *row = &answer->rows[i];
        rg_put_u32(&w, row->scope);
        rg_put_string(&w, row->name);
        rg_put(&w, row->allowed, sizeof row->allowed);
        rg_put(&w, row->used, sizeof row->used);
    }
    return size_of(&w, out);
}

enum rg_status rg_quota_unpack_answer(const void *data, size_t size, struct rg_quota_answer *out)
{
    struct rg_reader r = rg_reader_of(data, size);
    memset(out, 0, sizeof *out);
    out->used_known = rg_get_u32(&r) != 0;
    out->now = (int64_t)rg_get_u64(&r);
    out->day_ends = (int64_t)rg_get_u64(&r);
    out->month_ends = (int64_t)rg_get_u64(&r);
    get_text(&r, out->user, sizeof out->user);
    out->n = (uint32_t)rg_get_count(&r, RG_QUOTA_SCOPES_MAX, 1);
    for (uint32_t i = 0; i < out->n && !r.bad; i++) {
        struct rg_quota_row *row = &out->rows[i];
        const uint32_t scope = rg_get_u32(&r);
        if (scope < RG_QUOTA_USER || scope > RG_QUOTA_PROJECT)
            r.bad = true;
        row->scope = (enum rg_quota_scope)scope;
        get_text(&r, row->name, sizeof row->name);
        rg_get_into(&r, row->allowed, sizeof row->allowed);
        rg_get_into(&r, row->used, sizeof row->used);
    }
    return status_of(&r);
}
