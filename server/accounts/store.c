/*
 * store.c - writing to the accounts' file: batches of sessions and parts, and what is closed and removed; see store.h. Opening is in
 * store_open.c, reading in store_query.c.
 */
#include "server/accounts/store.h"

#include "server/accounts/store_internal.h"

#include <fcntl.h>
#include <stdio.h>

static const char *const texts[RG_STORE_STATEMENTS] = {
    [RG_STORE_SESSION] = "INSERT INTO session(run, number, kind, user, address, project, started, ended, "
                         "devices, how, sharing,"
                         " mig) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT(run, "
                         "number) DO UPDATE SET"
                         " ended = excluded.ended, devices = excluded.devices, how = excluded.how",
    [RG_STORE_PART] =
        "INSERT INTO part(session, part, hour, until, held_ns, busy_ns, byte_seconds, bytes_in, bytes_out,"
        " launches, peak_bytes) SELECT id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM session"
        " WHERE run = ?1 AND number = ?2 ON CONFLICT(session, part) DO UPDATE SET hour = excluded.hour,"
        " until = excluded.until, held_ns = excluded.held_ns, busy_ns = excluded.busy_ns,"
        " byte_seconds = excluded.byte_seconds, bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out,"
        " launches = excluded.launches, peak_bytes = excluded.peak_bytes",
    [RG_STORE_CLOSE] = "UPDATE session SET how = 'its server ended', ended = max(started, coalesce("
                       "(SELECT max(until) FROM part WHERE part.session = session.id), started)) WHERE run = "
                       "?1 AND ended = 0",
};

/* The file can hold no number above INT64_MAX. */
static sqlite3_int64 number(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (sqlite3_int64)value;
}

int rg_store_prepare(struct rg_store *store)
{
    int code = SQLITE_OK;
    for (int i = 0; i < RG_STORE_STATEMENTS && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &store->statements[i],
                                  NULL);
    return code;
}

/* --- batches -------------------------------------------------------------------------------------------------- */

enum rg_status rg_store_begin(struct rg_store *store, char *why, size_t why_size)
{
    const int code = rg_store_run(store, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return rg_store_explain(store, code, why, why_size);
    store->in_batch = true;
    return RG_OK;
}

void rg_store_rollback(struct rg_store *store)
{
    if (store->in_batch && !sqlite3_get_autocommit(store->db)) /* some failures have done it themselves */
        (void)rg_store_run(store, "ROLLBACK");
    store->in_batch = false;
}

static enum rg_status fail(struct rg_store *store, int code, char *why, size_t why_size)
{
    const enum rg_status status = rg_store_explain(store, code, why, why_size);
    rg_store_rollback(store);
    return status;
}

enum rg_status rg_store_commit(struct rg_store *store, char *why, size_t why_size)
{
    const int code = rg_store_run(store, "COMMIT");
    if (code != SQLITE_OK)
        return fail(store, code, why, why_size);
    store->in_batch = false;
    return RG_OK;
}

/* Runs a statement whose parameters are bound. */
static enum rg_status finish(struct rg_store *store, sqlite3_stmt *statement, char *why, size_t why_size)
{
    const int code = sqlite3_step(statement);
    enum rg_status status = RG_OK;
    if (code != SQLITE_DONE)
        status = fail(store, code, why, why_size);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return status;
}

enum rg_status rg_store_session(struct rg_store *store, const struct rg_accountant_session *session,
                                char *why, size_t why_size)
{
    sqlite3_stmt *statement = store->statements[RG_STORE_SESSION];
    const struct rg_account_owner *owner = &session->owner;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)store->run);
    sqlite3_bind_int64(statement, 2, number(session->number));
    sqlite3_bind_int(statement, 3, (int)owner->kind);
    sqlite3_bind_text(statement, 4, owner->user, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 5, owner->address, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 6, owner->project, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 7, session->started);
    sqlite3_bind_int64(statement, 8, session->ended);
    sqlite3_bind_int64(statement, 9, session->n_devices);
    sqlite3_bind_text(statement, 10, session->end, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 11, (int)session->sharing);
    sqlite3_bind_int(statement, 12, session->mig);
    return finish(store, statement, why, why_size);
}

enum rg_status rg_store_part(struct rg_store *store, const struct rg_accountant_part *part, char *why,
                             size_t why_size)
{
    sqlite3_stmt *statement = store->statements[RG_STORE_PART];
    const struct rg_figures *figures = &part->slice.figures;
    const sqlite3_int64 numbers[] = {(sqlite3_int64)store->run,
                                     number(part->session),
                                     part->part,
                                     part->slice.hour,
                                     part->until,
                                     number(figures->held_ns),
                                     number(figures->busy_ns),
                                     number(figures->byte_seconds),
                                     number(figures->bytes_in),
                                     number(figures->bytes_out),
                                     number(figures->launches),
                                     number(figures->peak_bytes)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sqlite3_bind_int64(statement, (int)i + 1, numbers[i]);
    const enum rg_status status = finish(store, statement, why, why_size);
    if (status != RG_OK || sqlite3_changes(store->db) == 1)
        return status;
    rg_explain(why, why_size, "%s does not know session %llu, of which it was to keep a part", store->path,
               (unsigned long long)part->session);
    rg_store_rollback(store);
    return RG_ERR_INVALID;
}

/* --- runs that are over, and what is old ------------------------------------------------------------------------ */

static bool is_over(struct rg_store *store, uint64_t run)
{
    struct flock lock = rg_store_lock_of(run);
    return run != store->run && fcntl(store->lock, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

enum rg_status rg_store_close_sessions(struct rg_store *store, bool own, char *why, size_t why_size)
{
    enum { RUNS_AT_ONCE = 64 };
    uint64_t runs[RUNS_AT_ONCE];
    int n = 0;
    sqlite3_stmt *statement = NULL;
    RG_TRY(rg_store_begin(store, why, why_size));
    int code = sqlite3_prepare_v2(store->db, "SELECT DISTINCT run FROM session WHERE ended = 0", -1,
                                  &statement, NULL);
    while (code == SQLITE_OK && n < RUNS_AT_ONCE && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        const uint64_t run = (uint64_t)sqlite3_column_int64(statement, 0);
        if (run == store->run ? own : is_over(store, run))
            runs[n++] = run;
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    if (code != SQLITE_OK && code != SQLITE_DONE)
        return fail(store, code, why, why_size);
    for (int i = 0; i < n; i++) {
        sqlite3_bind_int64(store->statements[RG_STORE_CLOSE], 1, (sqlite3_int64)runs[i]);
        RG_TRY(finish(store, store->statements[RG_STORE_CLOSE], why, why_size));
    }
    return rg_store_commit(store, why, why_size);
}

static int note_clock(struct rg_store *store, int64_t now, bool *believed)
{
    int code = SQLITE_OK;
    struct rg_clock_history history = {0};
    char sql[160];
    history.seen = rg_store_ask(store, "SELECT seen FROM clock", &code);
    if (code == SQLITE_OK)
        history.jumped = rg_store_ask(store, "SELECT jumped FROM clock", &code);
    *believed = code == SQLITE_OK && rg_clock_is_believed(&history, now);
    snprintf(sql, sizeof sql, "UPDATE clock SET seen = %lld, jumped = %lld", (long long)history.seen,
             (long long)history.jumped);
    return code == SQLITE_OK ? rg_store_run(store, sql) : code;
}

enum rg_status rg_store_expire(struct rg_store *store, uint64_t keep_s, int64_t now, uint64_t *removed,
                               char *why, size_t why_size)
{
    bool believed = false;
    *removed = 0;
    RG_TRY(rg_store_begin(store, why, why_size));
    int code = note_clock(store, now, &believed);
    if (code == SQLITE_OK && believed && keep_s && keep_s < INT64_MAX && (int64_t)keep_s < now) {
        const long long before = (now - (int64_t)keep_s) / 3600;
        char sql[320];
        /* what runs stays; of long sessions the old parts go */
        snprintf(sql, sizeof sql,
                 "DELETE FROM part WHERE hour < %lld;"
                 "DELETE FROM session WHERE ended <> 0 AND ended < %lld AND NOT EXISTS"
                 " (SELECT 1 FROM part WHERE part.session = session.id)",
                 before, before * 3600);
        code = rg_store_run(store, sql);
        *removed = code == SQLITE_OK ? (uint64_t)sqlite3_changes(store->db) : 0;
    }
    return code == SQLITE_OK ? rg_store_commit(store, why, why_size) : fail(store, code, why, why_size);
}
