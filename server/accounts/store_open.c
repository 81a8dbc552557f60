/*
 * store_open.c - the accounts' file: its form, opening and closing it, and what is said of failures; see store.h.
 *
 * Happy path: a file of this form opens, is found whole, and its server's number is locked. One that is not there is made; one of an older
 * form is brought to this one by whoever may write, all of it or nothing, and read as it is by whoever may not. A file of a newer form, a
 * damaged one and one of another program are left as they are.
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
    "  sharing INTEGER NOT NULL DEFAULT 0, mig INTEGER NOT NULL DEFAULT 0, UNIQUE(run, number));"
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
    "PRAGMA user_version = 2;"; /* RG_STORE_VERSION */

/* From each form to the next one, by its number; old sessions' way of sharing is not known. */
static const char *const steps[RG_STORE_VERSION] = {
    [1] = "ALTER TABLE session ADD COLUMN sharing INTEGER NOT NULL DEFAULT 0;"
          "ALTER TABLE session ADD COLUMN mig INTEGER NOT NULL DEFAULT 0;"
          "PRAGMA user_version = 2;",
};
/* For those who only read: what an older form lacks, in their own memory. */
static const char *const stand_ins[RG_STORE_VERSION] = {
    [1] = "CREATE TEMP VIEW session AS SELECT *, 0 AS sharing, 0 AS mig FROM main.session",
};

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

int rg_store_run(struct rg_store *store, const char *sql)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL);
}

sqlite3_int64 rg_store_ask(struct rg_store *store, const char *sql, int *code)
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
    return (store->deadline_ns && rg_now_ns() > store->deadline_ns) ||
           (store->asks && store->yields && store->yields(store->yields_data));
}

void rg_store_yield_when(struct rg_store *store, rg_store_yields *yields, void *data)
{
    store->yields = yields;
    store->yields_data = data;
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

/* Makes the tables in a file that has none, and brings those of an older form to this one; another server may do so at the same time. */
static int make_tables(struct rg_store *store)
{
    int code = rg_store_run(store, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return code;
    const sqlite3_int64 version = rg_store_ask(store, "PRAGMA user_version", &code);
    if (code == SQLITE_OK && version == 0)
        code = rg_store_run(store, schema);
    for (sqlite3_int64 i = version; code == SQLITE_OK && i >= 1 && i < RG_STORE_VERSION; i++)
        code = rg_store_run(store, steps[i]);
    if (code == SQLITE_OK)
        code = rg_store_run(store, "COMMIT");
    if (code != SQLITE_OK)
        (void)rg_store_run(store, "ROLLBACK");
    return code;
}

static int stand_in(struct rg_store *store, sqlite3_int64 version)
{
    int code = SQLITE_OK;
    for (; code == SQLITE_OK && version < RG_STORE_VERSION; version++)
        code = rg_store_run(store, stand_ins[version]);
    return code;
}

static enum rg_status check_version(struct rg_store *store, char *why, size_t why_size)
{
    int code;
    sqlite3_int64 version = rg_store_ask(store, "PRAGMA user_version", &code);
    sqlite3_int64 tables =
        code == SQLITE_OK ? rg_store_ask(store, "SELECT count(*) FROM sqlite_schema", &code) : 0;
    if (code == SQLITE_OK && version == 0 && tables == 0 && store->run) {
        code = rg_store_run(store, "PRAGMA journal_mode = WAL");
        if (code == SQLITE_OK)
            code = make_tables(store);
        if (code == SQLITE_OK)
            version = rg_store_ask(store, "PRAGMA user_version", &code);
    }
    const sqlite3_int64 application =
        code == SQLITE_OK ? rg_store_ask(store, "PRAGMA application_id", &code) : 0;
    if (code != SQLITE_OK)
        return rg_store_explain(store, code, why, why_size);
    if (version == 0 && tables == 0)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "%s has no accounts yet", store->path);
    if (application != APPLICATION_ID)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "%s is not a file of remote-gpu's accounts: move it away", store->path);
    if (version < 1 || version > RG_STORE_VERSION)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "%s was written by a newer remote-gpu (its form is number %lld, and this one knows %d): "
            "install that version, or move the file away",
            store->path, (long long)version, RG_STORE_VERSION);
    code = check(store);
    if (code == SQLITE_OK && version < RG_STORE_VERSION)
        code = store->run ? make_tables(store) : stand_in(store, version);
    return code == SQLITE_OK ? RG_OK : rg_store_explain(store, code, why, why_size);
}

struct flock rg_store_lock_of(uint64_t run)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(run & INT64_MAX), .l_len = 1};
}

static enum rg_status take_lock(struct rg_store *store, const char *folder, char *why, size_t why_size)
{
    char path[PATH_MAX];
    struct flock lock = rg_store_lock_of(store->run);
    if (snprintf(path, sizeof path, "%s/lock", folder) < (int)sizeof path)
        store->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock >= 0 && fcntl(store->lock, F_OFD_SETLK, &lock) == 0)
        return RG_OK;
    return RG_FAILED(RG_ERR_IO, why, why_size, "%s/lock cannot be locked: %s", folder, strerror(errno));
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
    code = rg_store_run(
        store, "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;"
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
        const int code = rg_store_prepare(store);
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
