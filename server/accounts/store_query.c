/*
 * store_query.c - reading the accounts: totals of owners for quotas, and answers to questions; see store.h.
 *
 * Statements are made of fixed texts; what somebody chose is bound as a parameter.
 */
#include "server/accounts/store.h"

#include "server/accounts/store_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define QUERY_NS 5000000000ull

static void copy_text(sqlite3_stmt *statement, int column, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    snprintf(out, size, "%s", text ? text : "");
}

static uint64_t count(sqlite3_stmt *statement, int column)
{
    const sqlite3_int64 value = sqlite3_column_int64(statement, column);
    return value > 0 ? (uint64_t)value : 0;
}

static enum rg_usage_kind kind(sqlite3_stmt *statement, int column)
{
    const int value = sqlite3_column_int(statement, column);
    return value >= RG_USAGE_NOBODY && value <= RG_USAGE_CERTIFICATE ? (enum rg_usage_kind)value : 0;
}

static enum rg_sharing sharing(sqlite3_stmt *statement, int column)
{
    const int value = sqlite3_column_int(statement, column);
    return value > 0 && value < RG_SHARINGS ? (enum rg_sharing)value : RG_SHARING_UNKNOWN;
}

/* --- sums ------------------------------------------------------------------------------------------------------- */

/* SQLite's sum() fails beyond INT64_MAX, where memory of a large server times a year is: this one stays there. */
static void add_to_sum(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)n;
    sqlite3_int64 *sum = sqlite3_aggregate_context(context, sizeof *sum);
    const sqlite3_int64 value = sqlite3_value_int64(values[0]);
    if (!sum)
        sqlite3_result_error_nomem(context);
    else if (value > 0)
        *sum = *sum > INT64_MAX - value ? INT64_MAX : *sum + value;
}

static void end_sum(sqlite3_context *context)
{
    const sqlite3_int64 *sum = sqlite3_aggregate_context(context, 0);
    sqlite3_result_int64(context, sum ? *sum : 0);
}

int rg_store_add_functions(struct rg_store *store)
{
    return sqlite3_create_function_v2(store->db, "sum_at_most", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                      NULL, add_to_sum, end_sum, NULL);
}

/* --- totals --------------------------------------------------------------------------------------------------- */

enum rg_status rg_store_totals(struct rg_store *store, const struct rg_accountant_load *load,
                               rg_store_total *each, void *data, char *why, size_t why_size)
{
    static const char sql[] =
        "SELECT kind, user, address, project, sum_at_most(held_ns * (hour >= ?1 AND hour < ?2)),"
        " sum_at_most(held_ns * (hour >= ?3 AND hour < ?4)) FROM part JOIN session ON session.id = "
        "part.session"
        " WHERE hour >= min(?1, ?3) AND hour < max(?2, ?4) GROUP BY kind, user, address, project";
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_int64(statement, 1, load->day.begin);
        sqlite3_bind_int64(statement, 2, load->day.end);
        sqlite3_bind_int64(statement, 3, load->month.begin);
        sqlite3_bind_int64(statement, 4, load->month.end);
        while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
            struct rg_account_owner owner = {.kind = kind(statement, 0)};
            copy_text(statement, 1, owner.user, sizeof owner.user);
            copy_text(statement, 2, owner.address, sizeof owner.address);
            copy_text(statement, 3, owner.project, sizeof owner.project);
            each(data, &owner, count(statement, 4), count(statement, 5));
        }
    }
    const enum rg_status status = code == SQLITE_DONE ? RG_OK : rg_store_explain(store, code, why, why_size);
    sqlite3_finalize(statement);
    return status;
}

/* --- questions ------------------------------------------------------------------------------------------------- */

/* Of each kind of answer: what a row is told by, and the order. The columns are kind, user, address, project, period, sharing, mig. */
static const struct {
    const char *columns, *group;
} kinds_of[] = {
    [RG_USAGE_BY_USER] = {"kind, user, address, project, '', 0, 0", "user, kind, address, project"},
    [RG_USAGE_BY_PROJECT] = {"0, '', '', project, '', 0, 0", "project"},
    [RG_USAGE_BY_DAY] = {"0, '', '', '', strftime('%Y-%m-%d', hour * 3600, 'unixepoch'), 0, 0", "hour / 24"},
    [RG_USAGE_BY_MONTH] = {"0, '', '', '', strftime('%Y-%m', hour * 3600, 'unixepoch'), 0, 0",
                           "strftime('%Y-%m', hour * 3600, 'unixepoch')"},
    [RG_USAGE_BY_SESSION] = {"kind, user, address, project, '', sharing, mig", "started, session.id"},
    [RG_USAGE_BY_SHARING] = {"0, '', '', '', '', sharing, mig", "sharing, mig"},
};

/* Hours that a time lies in; no clock of a machine goes beyond. */
static rg_hour hour_of(int64_t seconds, int64_t more)
{
    const int64_t most = INT64_MAX / 2;
    seconds = seconds < 0 ? 0 : seconds > most ? most : seconds;
    return (seconds + more) / 3600;
}

static int bind(sqlite3_stmt *statement, const struct rg_accountant_query *query, rg_hour since,
                rg_hour until)
{
    const struct rg_usage_question *question = &query->question;
    const char *user = query->everybody ? question->user : query->owner.user;
    const bool by_address = !query->everybody && query->owner.kind == RG_USAGE_NOBODY;
    sqlite3_bind_int64(statement, 1, since);
    sqlite3_bind_int64(statement, 2, until);
    sqlite3_bind_text(statement, 3, user, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 4, query->everybody ? 0 : (int)query->owner.kind);
    sqlite3_bind_text(statement, 5, by_address ? query->owner.address : "", -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 6, question->has_project);
    sqlite3_bind_text(statement, 7, question->project, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 8, RG_USAGE_ROWS_MAX + 1);
    return sqlite3_bind_int64(statement, 9, (sqlite3_int64)question->skip);
}

static void read_row(sqlite3_stmt *statement, bool of_session, struct rg_usage_row *row)
{
    *row = (struct rg_usage_row){.kind = kind(statement, 0)};
    copy_text(statement, 1, row->user, sizeof row->user);
    copy_text(statement, 2, row->address, sizeof row->address);
    copy_text(statement, 3, row->project, sizeof row->project);
    copy_text(statement, 4, row->period, sizeof row->period);
    row->sharing = sharing(statement, 5);
    row->mig = sqlite3_column_int(statement, 6) != 0;
    row->sessions = count(statement, 7);
    row->held_ns = count(statement, 8);
    row->busy_ns = count(statement, 9);
    row->byte_seconds = count(statement, 10);
    row->bytes_in = count(statement, 11);
    row->bytes_out = count(statement, 12);
    row->launches = count(statement, 13);
    row->peak_bytes = count(statement, 14);
    if (!of_session)
        return;
    row->session = count(statement, 15);
    row->started = sqlite3_column_int64(statement, 16);
    row->ended = sqlite3_column_int64(statement, 17);
    copy_text(statement, 18, row->end, sizeof row->end);
}

/* Whether the question is one that may be asked; if not, the answer says so. */
static bool may_ask(const struct rg_accountant_query *query, struct rg_usage_answer *answer)
{
    const char *user = query->question.user;
    if (query->everybody || !user[0] || strcmp(user, query->owner.user) == 0)
        return true;
    snprintf(answer->why, sizeof answer->why,
             "only the server's operator sees the usage of others: leave --user out for your own "
             "[usage-forbidden]");
    return false;
}

/* Within bounds of time and memory, which SQLite has for the process: nothing else uses it meanwhile. */
static void begin_question(struct rg_store *store)
{
    store->asks = true;
    rg_store_allow(store, QUERY_NS);
    (void)sqlite3_hard_heap_limit64(RG_USAGE_MEMORY_MAX);
}

static void end_question(struct rg_store *store)
{
    (void)sqlite3_hard_heap_limit64(0);
    rg_store_allow(store, 0);
    store->asks = false;
}

enum rg_status rg_store_query(struct rg_store *store, const struct rg_accountant_query *query,
                              struct rg_usage_answer *answer, char *why, size_t why_size)
{
    const struct rg_usage_question *question = &query->question;
    const rg_hour since = hour_of(question->since, 0);
    const rg_hour until = question->until ? hour_of(question->until, 3599) : INT64_MAX;
    sqlite3_stmt *statement = NULL;
    char sql[1024];
    memset(answer, 0, sizeof *answer);
    answer->everybody = query->everybody;
    answer->since = since * 3600;
    answer->until = question->until ? until * 3600 : (int64_t)time(NULL);
    if (!may_ask(query, answer))
        return RG_OK;
    snprintf(
        sql, sizeof sql,
        "SELECT %s, count(DISTINCT session.id), sum_at_most(held_ns), sum_at_most(busy_ns),"
        " sum_at_most(byte_seconds), sum_at_most(bytes_in), sum_at_most(bytes_out), sum_at_most(launches),"
        " max(peak_bytes), number, started, ended, how"
        " FROM part JOIN session ON session.id = part.session WHERE hour >= ?1 AND hour < ?2"
        " AND (?3 = '' OR user = ?3) AND (?4 = 0 OR kind = ?4) AND (?5 = '' OR address = ?5)"
        " AND (?6 = 0 OR project = ?7) GROUP BY %s ORDER BY %s LIMIT ?8 OFFSET ?9",
        kinds_of[question->by].columns, kinds_of[question->by].group, kinds_of[question->by].group);
    begin_question(store);
    int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = bind(statement, query, since, until);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        code = SQLITE_OK;
        if (answer->n == RG_USAGE_ROWS_MAX) {
            answer->more = true;
            code = SQLITE_DONE;
            break;
        }
        read_row(statement, question->by == RG_USAGE_BY_SESSION, &answer->rows[answer->n++]);
    }
    const enum rg_status status = code == SQLITE_DONE ? RG_OK : rg_store_explain(store, code, why, why_size);
    sqlite3_finalize(statement);
    end_question(store);
    return status;
}
