/*
 * store.c - opening the accounts' file, and writing to it; see store.h. Reading is in store_query.c.
 */
#include "server/accounts/store.h"

#include "server/accounts/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define APPLICATION_ID 0x52474143 /* tells the file from other SQLite files: "RGAC" */
#define BUSY_MS        5000
#define CHECK_NS       2000000000ull /* a large file is looked through for so long */

static const char schema[] =
    "PRAGMA application_id = 1380401475;" /* APPLICATION_ID */
    "CREATE TABLE session("
    "  id INTEGER PRIMARY KEY, run INTEGER NOT NULL, number INTEGER NOT NULL, kind INTEGER NOT NULL,"
    "  user TEXT NOT NULL, address TEXT NOT NULL, project TEXT NOT NULL,"
    "  started INTEGER NOT NULL, ended INTEGER NOT NULL, devices INTEGER NOT NULL, how TEXT NOT NULL,"
    "  UNIQUE(run, number));"
    "CREATE INDEX session_runs ON session(run) WHERE ended = 0;"
    "CREATE INDEX session_user ON session(user);"
    "CREATE TABLE part("
    "  session INTEGER NOT NULL, part INTEGER NOT NULL, hour INTEGER NOT NULL, until INTEGER NOT NULL,"
    "  held_ns INTEGER NOT NULL, busy_ns INTEGER NOT NULL, byte_seconds INTEGER NOT NULL,"
    "  bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, launches INTEGER NOT NULL,"
    "  peak_bytes INTEGER NOT NULL, PRIMARY KEY(session, part)) WITHOUT ROWID;"
    "CREATE INDEX part_hour ON part(hour);"
    "CREATE TABLE clock(id INTEGER PRIMARY KEY CHECK(id = 0), seen INTEGER NOT NULL, jumped INTEGER NOT "
    "NULL);"
    "INSERT INTO clock VALUES(0, 0, 0);"
    "PRAGMA user_version = 1;"; /* RG_STORE_VERSION */

static const char *const texts[RG_STORE_STATEMENTS] = {
    [RG_STORE_SESSION] =
        "INSERT INTO session(run, number, kind, user, address, project, started, ended, devices, how)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT(run, number) DO UPDATE SET"
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

/* --- failures ------------------------------------------------------------------------------------------------- */

enum rg_status rg_store_explain(struct rg_store *store, int code, char *why, size_t why_size)
{
    const char *path = store->path;
    const int error = store->db ? sqlite3_system_errno(store->db) : errno;
    const char *what = store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code);
    switch (code & 0xff) {
    case SQLITE_FULL:
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s cannot grow, as the disk is full: make room there",
                         path);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return RG_FAILED(
            RG_ERR_IO, why, why_size,
            "%s cannot be written (%s): it and its folder must belong to the server's user and be "
            "writable",
            path, error ? strerror(error) : what);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s is damaged (%s): move it away, then a new one is begun; 'sqlite3 FILE .recover' may "
            "still read it",
            path, what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return RG_FAILED(RG_ERR_TIMEOUT, why, why_size,
                         "%s is kept locked by another process: end that, or try again", path);
    case SQLITE_INTERRUPT:
        return RG_FAILED(RG_ERR_TIMEOUT, why, why_size, "reading %s takes too long: ask about a shorter time",
                         path);
    case SQLITE_NOMEM:
        if (store->asks)
            return RG_FAILED(
                RG_ERR_NO_MEMORY, why, why_size,
                "the answer takes more than %u MiB of memory: ask about a shorter time (--since, "
                "--until), or about one user or project [usage-too-large]",
                RG_USAGE_MEMORY_MAX >> 20);
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no memory for %s: try again later", path);
    default:
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s cannot be used: %s%s%s", path, what, error ? ": " : "",
                         error ? strerror(error) : "");
    }
}

/* SQLite's code. */
static int run(struct rg_store *store, const char *sql)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL);
}

/* One number, or -1. */
static sqlite3_int64 ask(struct rg_store *store, const char *sql, int *code)
{
    sqlite3_stmt *statement = NULL;
    sqlite3_int64 result = -1;
    *code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (*code == SQLITE_OK) {
        *code = sqlite3_step(statement);
        if (*code == SQLITE_ROW) {
            result = sqlite3_column_int64(statement, 0);
            *code = SQLITE_OK;
        }
    }
    sqlite3_finalize(statement);
    return result;
}

/* --- opening -------------------------------------------------------------------------------------------------- */

static int is_late(void *data)
{
    const struct rg_store *store = data;
    return store->deadline_ns && rg_now_ns() > store->deadline_ns;
}

void rg_store_allow(struct rg_store *store, uint64_t ns)
{
    store->deadline_ns = ns ? rg_now_ns() + ns : 0;
}

/* Whether it is whole, as far as can be found out soon. */
static int check(struct rg_store *store)
{
    sqlite3_stmt *statement = NULL;
    rg_store_allow(store, CHECK_NS);
    int code = sqlite3_prepare_v2(store->db, "PRAGMA quick_check(1)", -1, &statement, NULL);
    if (code == SQLITE_OK) {
        code = sqlite3_step(statement);
        const char *found = code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
        if (code == SQLITE_ROW)
            code = found && strcmp(found, "ok") == 0 ? SQLITE_OK : SQLITE_CORRUPT;
    }
    sqlite3_finalize(statement);
    rg_store_allow(store, 0);
    return code == SQLITE_INTERRUPT ? SQLITE_OK : code;
}

/* Makes the tables in a file that has none; another server may do so at the same time. */
static int make_tables(struct rg_store *store)
{
    int code = run(store, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return code;
    const sqlite3_int64 version = ask(store, "PRAGMA user_version", &code);
    if (code == SQLITE_OK && version == 0)
        code = run(store, schema);
    if (code == SQLITE_OK)
        code = run(store, "COMMIT");
    if (code != SQLITE_OK)
        (void)run(store, "ROLLBACK");
    return code;
}

static enum rg_status check_version(struct rg_store *store, char *why, size_t why_size)
{
    int code;
    sqlite3_int64 version = ask(store, "PRAGMA user_version", &code);
    sqlite3_int64 tables = code == SQLITE_OK ? ask(store, "SELECT count(*) FROM sqlite_schema", &code) : 0;
    if (code == SQLITE_OK && version == 0 && tables == 0 && store->run) {
        code = run(store, "PRAGMA journal_mode = WAL");
        if (code == SQLITE_OK)
            code = make_tables(store);
        if (code == SQLITE_OK)
            version = ask(store, "PRAGMA user_version", &code);
    }
    const sqlite3_int64 application = code == SQLITE_OK ? ask(store, "PRAGMA application_id", &code) : 0;
    if (code != SQLITE_OK)
        return rg_store_explain(store, code, why, why_size);
    if (version == 0 && tables == 0)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "%s has no accounts yet", store->path);
    if (application != APPLICATION_ID)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "%s is not a file of remote-gpu's accounts: move it away", store->path);
    if (version != RG_STORE_VERSION)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s was written by a newer remote-gpu (its form is number %lld, and this one knows %d): "
            "install that version, or move the file away",
            store->path, (long long)version, RG_STORE_VERSION);
    code = check(store);
    return code == SQLITE_OK ? RG_OK : rg_store_explain(store, code, why, why_size);
}

/* The byte of the lock file that belongs to a run. */
static struct flock lock_of(uint64_t run)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(run & INT64_MAX), .l_len = 1};
}

static enum rg_status take_lock(struct rg_store *store, const char *folder, char *why, size_t why_size)
{
    char path[PATH_MAX];
    struct flock lock = lock_of(store->run);
    if (snprintf(path, sizeof path, "%s/lock", folder) < (int)sizeof path)
        store->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock >= 0 && fcntl(store->lock, F_OFD_SETLK, &lock) == 0)
        return RG_OK;
    return RG_FAILED(RG_ERR_IO, why, why_size, "%s/lock cannot be locked: %s", folder, strerror(errno));
}

static int prepare(struct rg_store *store)
{
    int code = SQLITE_OK;
    for (int i = 0; i < RG_STORE_STATEMENTS && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &store->statements[i],
                                  NULL);
    return code;
}

static enum rg_status open_file(struct rg_store *store, char *why, size_t why_size)
{
    const int flags = store->run ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    struct stat about;
    if (!store->run && stat(store->path, &about) != 0 && errno == ENOENT)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "there are no accounts: %s is not there",
                         store->path);
    int code =
        sqlite3_open_v2(store->path, &store->db, flags | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return rg_store_explain(store, code, why, why_size);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    sqlite3_progress_handler(store->db, 10000, is_late, store);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    code = run(store, "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;"
                      "PRAGMA journal_size_limit = 16777216");
    if (code == SQLITE_OK)
        code = rg_store_add_functions(store);
    return code == SQLITE_OK ? check_version(store, why, why_size)
                             : rg_store_explain(store, code, why, why_size);
}

/*
 * SQLITE_OPEN_NOFOLLOW refuses a link anywhere in a path. The folder may be behind one, as a service's state folder is that has a user
 * of its own; the file may not be one.
 */
static bool name_file(struct rg_store *store, const char *folder)
{
    char real[PATH_MAX];
    const char *path = realpath(folder, real) ? real : folder;
    return snprintf(store->path, sizeof store->path, "%s/accounts.db", path) < (int)sizeof store->path;
}

enum rg_status rg_store_open(struct rg_store **out, const char *folder, uint64_t run, char *why,
                             size_t why_size)
{
    struct rg_store *store = calloc(1, sizeof *store);
    enum rg_status status = RG_OK;
    if (!store)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no memory for the accounts");
    store->run = run & INT64_MAX;
    store->lock = -1;
    if (store->run && (mkdir(folder, 0700) != 0 && errno != EEXIST)) {
        rg_explain(why, why_size, "the folder %s cannot be made: %s", folder, strerror(errno));
        status = RG_ERR_IO;
    }
    if (status == RG_OK && !name_file(store, folder)) {
        rg_explain(why, why_size, "the name of the folder %s is too long", folder);
        status = RG_ERR_INVALID;
    }
    if (status == RG_OK)
        status = open_file(store, why, why_size);
    if (status == RG_OK && store->run)
        status = take_lock(store, folder, why, why_size);
    if (status == RG_OK && store->run) {
        const int code = prepare(store);
        status = code == SQLITE_OK ? RG_OK : rg_store_explain(store, code, why, why_size);
    }
    if (status == RG_OK)
        *out = store;
    else
        rg_store_close(store);
    return status;
}

void rg_store_close(struct rg_store *store)
{
    if (!store)
        return;
    rg_store_rollback(store);
    for (int i = 0; i < RG_STORE_STATEMENTS; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    if (store->lock >= 0)
        close(store->lock);
    free(store);
}

/* --- batches -------------------------------------------------------------------------------------------------- */

enum rg_status rg_store_begin(struct rg_store *store, char *why, size_t why_size)
{
    const int code = run(store, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return rg_store_explain(store, code, why, why_size);
    store->in_batch = true;
    return RG_OK;
}

void rg_store_rollback(struct rg_store *store)
{
    if (store->in_batch && !sqlite3_get_autocommit(store->db)) /* some failures have done it themselves */
        (void)run(store, "ROLLBACK");
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
    const int code = run(store, "COMMIT");
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
    struct flock lock = lock_of(run);
    return run != store->run && fcntl(store->lock, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

enum rg_status rg_store_close_sessions(struct rg_store *store, bool own, char *why, size_t why_size)
{
    enum { RUNS_AT_ONCE = 64 };
    uint64_t runs[RUNS_AT_ONCE];
    int n = 0;
    sqlite3_stmt *statement = NULL;
    enum rg_status status = rg_store_begin(store, why, why_size);
    if (status != RG_OK)
        return status;
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
    for (int i = 0; i < n && status == RG_OK; i++) {
        sqlite3_bind_int64(store->statements[RG_STORE_CLOSE], 1, (sqlite3_int64)runs[i]);
        status = finish(store, store->statements[RG_STORE_CLOSE], why, why_size);
    }
    return status == RG_OK ? rg_store_commit(store, why, why_size) : status;
}

static int note_clock(struct rg_store *store, int64_t now, bool *believed)
{
    int code = SQLITE_OK;
    struct rg_clock_history history = {0};
    char sql[160];
    history.seen = ask(store, "SELECT seen FROM clock", &code);
    if (code == SQLITE_OK)
        history.jumped = ask(store, "SELECT jumped FROM clock", &code);
    *believed = code == SQLITE_OK && rg_clock_is_believed(&history, now);
    snprintf(sql, sizeof sql, "UPDATE clock SET seen = %lld, jumped = %lld", (long long)history.seen,
             (long long)history.jumped);
    return code == SQLITE_OK ? run(store, sql) : code;
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
        code = run(store, sql);
        *removed = code == SQLITE_OK ? (uint64_t)sqlite3_changes(store->db) : 0;
    }
    return code == SQLITE_OK ? rg_store_commit(store, why, why_size) : fail(store, code, why, why_size);
}
