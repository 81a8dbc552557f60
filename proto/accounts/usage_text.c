/* usage_text.c - see usage_text.h. */
#include "proto/accounts/usage_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGES_MAX = 100000 };

/* --- times -------------------------------------------------------------------------------------------------- */

const char *rg_usage_time_text(int64_t seconds, char out[32])
{
    const time_t at = (time_t)seconds;
    struct tm date;
    if (seconds <= 0)
        snprintf(out, 32, "the beginning");
    else if (!gmtime_r(&at, &date) || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &date) == 0)
        snprintf(out, 32, "%lld", (long long)seconds);
    return out;
}

/* ISO 8601, for machines; "": none. */
static const char *iso_text(int64_t seconds, char out[32])
{
    const time_t at = (time_t)seconds;
    struct tm date;
    out[0] = 0;
    if (seconds > 0 && gmtime_r(&at, &date))
        strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &date);
    return out;
}

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

/* --- pages -------------------------------------------------------------------------------------------------- */

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

/* --- tables ------------------------------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 13, CELL = 2 * RG_USAGE_TEXT + 8 };

static void bytes_text(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit < 6; unit++)
        value /= 1024;
    snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static const char *const figure_names[] = {"SESSIONS", "GPU HOURS", "BUSY",     "GIB HOURS",
                                           "IN",       "OUT",       "LAUNCHES", "PEAK"};

static unsigned put_figures(const struct rg_usage_row *row, char cells[][CELL], unsigned n)
{
    snprintf(cells[n++], CELL, "%" PRIu64, row->sessions);
    snprintf(cells[n++], CELL, "%.4f", (double)row->held_ns / 3600e9);
    snprintf(cells[n++], CELL, "%.4f", (double)row->busy_ns / 3600e9);
    snprintf(cells[n++], CELL, "%.3f", (double)row->byte_seconds / 3600 / 1073741824.0);
    bytes_text(row->bytes_in, cells[n++], CELL);
    bytes_text(row->bytes_out, cells[n++], CELL);
    snprintf(cells[n++], CELL, "%" PRIu64, row->launches);
    bytes_text(row->peak_bytes, cells[n++], CELL);
    return n;
}

static bool tells_sharing(enum rg_usage_by by)
{
    return by == RG_USAGE_BY_SESSION || by == RG_USAGE_BY_SHARING;
}

/* "turns", "MPS", "alone", on instances with ", MIG"; "-": the server did not keep it. */
static void put_sharing(const struct rg_usage_row *row, char *out)
{
    static const char *const ways[RG_SHARINGS] = {"-", "turns", "MPS", "alone"};
    snprintf(out, CELL, "%s%s", ways[row->sharing], row->mig ? ", MIG" : "");
}

/* What a row is about. Returns how many cells. */
static unsigned put_key(enum rg_usage_by by, const struct rg_usage_row *row, char cells[][CELL])
{
    char time[32];
    unsigned n = 0;
    if (by == RG_USAGE_BY_SESSION) {
        snprintf(cells[n++], CELL, "%" PRIu64, row->session);
        snprintf(cells[n++], CELL, "%s", rg_usage_time_text(row->started, time));
    }
    if (by == RG_USAGE_BY_USER || by == RG_USAGE_BY_SESSION)
        snprintf(cells[n++], CELL, "%s%s%s%s", row->user, row->address[0] ? " (" : "", row->address,
                 row->address[0] ? ")" : "");
    if (by == RG_USAGE_BY_DAY || by == RG_USAGE_BY_MONTH)
        snprintf(cells[n++], CELL, "%s", row->period);
    else if (by != RG_USAGE_BY_SHARING)
        snprintf(cells[n++], CELL, "%s", row->project[0] ? row->project : "-");
    if (tells_sharing(by))
        put_sharing(row, cells[n++]);
    return n;
}

static unsigned put_names(enum rg_usage_by by, char cells[][CELL])
{
    enum { KEYS = 5 };
    static const char *const keys[][KEYS] = {
        [RG_USAGE_BY_USER] = {"USER", "PROJECT"},
        [RG_USAGE_BY_PROJECT] = {"PROJECT"},
        [RG_USAGE_BY_DAY] = {"DAY"},
        [RG_USAGE_BY_MONTH] = {"MONTH"},
        [RG_USAGE_BY_SESSION] = {"SESSION", "STARTED", "USER", "PROJECT", "SHARING"},
        [RG_USAGE_BY_SHARING] = {"SHARING"}};
    unsigned n = 0;
    for (; n < KEYS && keys[by][n]; n++)
        snprintf(cells[n], CELL, "%s", keys[by][n]);
    for (size_t i = 0; i < sizeof figure_names / sizeof *figure_names; i++)
        snprintf(cells[n++], CELL, "%s", figure_names[i]);
    return n;
}

/* Columns that UTF-8 text takes on a terminal, near enough. */
static int columns_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void widen(char cells[][CELL], unsigned n, int widths[COLUMNS_MAX])
{
    for (unsigned i = 0; i < n; i++)
        if (columns_of(cells[i]) > widths[i])
            widths[i] = columns_of(cells[i]);
}

/* Names on the left, figures on the right. */
static void print_cells(char cells[][CELL], unsigned n, unsigned keys, const int widths[COLUMNS_MAX],
                        FILE *out)
{
    for (unsigned i = 0; i < n; i++) {
        const int pad = widths[i] - columns_of(cells[i]);
        if (i < keys)
            fprintf(out, "%s%s%*s", i ? "  " : "", cells[i], i + 1 < n ? pad : 0, "");
        else
            fprintf(out, "  %*s%s", pad, "", cells[i]);
    }
    fputc('\n', out);
}

void rg_usage_print_table(const struct rg_usage_list *list, FILE *out)
{
    static char cells[COLUMNS_MAX][CELL];
    int widths[COLUMNS_MAX] = {0};
    struct rg_usage_row sum = {0};
    char since[32], until[32];
    fprintf(out, "Usage from %s to %s, by %s%s\n", rg_usage_time_text(list->since, since),
            rg_usage_time_text(list->until, until), rg_usage_by_text(list->by),
            list->everybody ? ", of all users" : "");
    if (list->n == 0) {
        fputs("None.\n", out);
        return;
    }
    widen(cells, put_names(list->by, cells), widths);
    const unsigned figures = sizeof figure_names / sizeof *figure_names;
    for (size_t i = 0; i < list->n; i++) {
        const struct rg_usage_row *row = &list->rows[i];
        widen(cells, put_figures(row, cells, put_key(list->by, row, cells)), widths);
    }
    unsigned n = put_names(list->by, cells);
    print_cells(cells, n, n - figures, widths, out);
    for (size_t i = 0; i < list->n; i++) {
        const struct rg_usage_row *row = &list->rows[i];
        n = put_figures(row, cells, put_key(list->by, row, cells));
        print_cells(cells, n, n - figures, widths, out);
        sum.held_ns += row->held_ns;
        sum.busy_ns += row->busy_ns;
    }
    if (list->n > 1)
        fprintf(out, "Together %.4f GPU hours held, %.4f busy.\n", (double)sum.held_ns / 3600e9,
                (double)sum.busy_ns / 3600e9);
}

/* --- CSV ---------------------------------------------------------------------------------------------------- */

static void print_field(const char *text, FILE *out)
{
    const bool formula = text[0] && strchr("=+-@\t\r", text[0]);
    fputs(formula ? "\"'" : "\"", out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputs("\",", out);
}

void rg_usage_print_csv_head(FILE *out)
{
    fputs("server,user,kind,address,project,period,session,started,ended,end,sessions,gpu_seconds_held,"
          "gpu_seconds_busy,memory_byte_seconds,bytes_in,bytes_out,launches,peak_memory_bytes,sharing,mig\n",
          out);
}

void rg_usage_print_csv(const struct rg_usage_list *list, const char *server, FILE *out)
{
    char started[32], ended[32];
    for (size_t i = 0; i < list->n; i++) {
        const struct rg_usage_row *row = &list->rows[i];
        print_field(server, out);
        print_field(row->user, out);
        fprintf(out, "%s,", rg_usage_kind_name(row->kind));
        print_field(row->address, out);
        print_field(row->project, out);
        fprintf(out, "%s,", row->period);
        if (list->by == RG_USAGE_BY_SESSION)
            fprintf(out, "%" PRIu64, row->session);
        fprintf(out, ",%s,%s,", iso_text(row->started, started), iso_text(row->ended, ended));
        print_field(row->end, out);
        fprintf(out, "%" PRIu64 ",%.3f,%.3f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
                row->sessions, (double)row->held_ns / 1e9, (double)row->busy_ns / 1e9, row->byte_seconds,
                row->bytes_in, row->bytes_out, row->launches, row->peak_bytes);
        if (tells_sharing(list->by))
            fprintf(out, ",%s,%d\n", row->sharing ? rg_sharing_name(row->sharing) : "", row->mig);
        else
            fputs(",,\n", out);
    }
}

/* --- JSON --------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *row_json(const struct rg_usage_row *row, enum rg_usage_by by)
{
    char started[32], ended[32];
    json_t *out = json_object();
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"sessions", row->sessions}, {"memory_byte_seconds", row->byte_seconds},
                   {"bytes_in", row->bytes_in}, {"bytes_out", row->bytes_out},
                   {"launches", row->launches}, {"peak_memory_bytes", row->peak_bytes}};
    if (by == RG_USAGE_BY_USER || by == RG_USAGE_BY_SESSION) {
        json_object_set_new(out, "user", json_string(row->user));
        json_object_set_new(out, "kind", json_string(rg_usage_kind_name(row->kind)));
        json_object_set_new(out, "address", text_or_null(row->address));
    }
    if (by == RG_USAGE_BY_DAY || by == RG_USAGE_BY_MONTH)
        json_object_set_new(out, "period", json_string(row->period));
    else if (by != RG_USAGE_BY_SHARING)
        json_object_set_new(out, "project", text_or_null(row->project));
    if (by == RG_USAGE_BY_SESSION) {
        json_object_set_new(out, "session", json_integer((json_int_t)row->session));
        json_object_set_new(out, "started", text_or_null(iso_text(row->started, started)));
        json_object_set_new(out, "ended", text_or_null(iso_text(row->ended, ended)));
        json_object_set_new(out, "end", text_or_null(row->end));
    }
    if (tells_sharing(by)) {
        json_object_set_new(out, "sharing", text_or_null(row->sharing ? rg_sharing_name(row->sharing) : ""));
        json_object_set_new(out, "mig", json_boolean(row->mig));
    }
    json_object_set_new(out, "gpu_seconds_held", json_real((double)row->held_ns / 1e9));
    json_object_set_new(out, "gpu_seconds_busy", json_real((double)row->busy_ns / 1e9));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(out, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    return out;
}

json_t *rg_usage_json(const struct rg_usage_list *list)
{
    char since[32], until[32];
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < list->n; i++)
        if (json_array_append_new(rows, row_json(&list->rows[i], list->by)) != 0) {
            json_decref(rows);
            rows = NULL;
        }
    return json_pack("{s:o, s:o, s:b, s:s, s:o}", "since", text_or_null(iso_text(list->since, since)),
                     "until", text_or_null(iso_text(list->until, until)), "everybody", (int)list->everybody,
                     "by", rg_usage_by_text(list->by), "rows", rows);
}
