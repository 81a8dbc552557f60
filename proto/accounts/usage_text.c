/* usage_text.c - usage as a table, CSV and JSON; see usage_text.h. */
#include "proto/accounts/usage_text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

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
