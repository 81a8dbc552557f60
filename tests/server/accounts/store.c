/* store.c - the accounts' file: what is kept, what is answered, and what happens to a file that is damaged, full, newer or not to be written. */
#include "server/accounts/store.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOUR 490000
#define GIB  (1ull << 30)

static const char *folder;
static char why[RG_ACCOUNTS_WHY];
static struct rg_store *store;
static struct rg_usage_answer answer;

static void open_folder(void)
{
    folder = temporary_folder();
    cr_assert_eq(rg_store_open(&store, folder, 7, why, sizeof why), RG_OK, "%s", why);
}

static void close_store(void)
{
    rg_store_close(store);
}

TestSuite(store, .init = open_folder, .fini = close_store);

static void file_name(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", folder, name);
}

static struct rg_accountant_session session_of(uint64_t number, const char *user, const char *project)
{
    struct rg_accountant_session session = {.number = number, .started = HOUR * 3600ll, .n_devices = 1};
    session.owner.kind = RG_USAGE_CERTIFICATE;
    snprintf(session.owner.user, sizeof session.owner.user, "%s", user);
    snprintf(session.owner.project, sizeof session.owner.project, "%s", project);
    return session;
}

static void put(const struct rg_accountant_session *session, uint32_t part, rg_hour hour, uint64_t held)
{
    const struct rg_accountant_part told = {
        .session = session->number,
        .part = part,
        .until = hour * 3600 + 60,
        .slice = {
            .hour = hour,
            .figures = {
                .held_ns = held, .busy_ns = held / 2, .bytes_in = 10, .launches = 3, .peak_bytes = held}}};
    cr_assert_eq(rg_store_begin(store, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_store_session(store, session, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_store_part(store, &told, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_store_commit(store, why, sizeof why), RG_OK, "%s", why);
}

static void ask(enum rg_usage_by by, const char *user)
{
    struct rg_accountant_query query = {.everybody = true, .question = {.by = by}};
    snprintf(query.question.user, sizeof query.question.user, "%s", user);
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK, "%s", why);
    cr_assert_str_empty(answer.why);
}

Test(store, what_is_said_again_replaces)
{
    const struct rg_accountant_session session = session_of(1, "alice", "");
    put(&session, 0, HOUR, 100);
    put(&session, 0, HOUR, 150);
    put(&session, 1, HOUR + 1, 30);
    ask(RG_USAGE_BY_USER, "");
    cr_assert_eq(answer.n, 1);
    cr_expect_eq(answer.rows[0].held_ns, 180);
    cr_expect_eq(answer.rows[0].busy_ns, 90);
    cr_expect_eq(answer.rows[0].launches, 6);
    cr_expect_eq(answer.rows[0].bytes_in, 20);
    cr_expect_eq(answer.rows[0].peak_bytes, 150);
    cr_expect_eq(answer.rows[0].sessions, 1);
}

Test(store, answers_by_what_is_asked)
{
    const struct rg_accountant_session a = session_of(1, "alice", "vision"),
                                       b = session_of(2, "bob", "vision"), c = session_of(3, "alice", "");
    put(&a, 0, HOUR, 1000);
    put(&b, 0, HOUR + 24, 200);
    put(&c, 0, HOUR + 24, 30);
    ask(RG_USAGE_BY_USER, "");
    cr_assert_eq(answer.n, 3);
    cr_expect_str_eq(answer.rows[0].user, "alice");
    cr_expect_str_eq(answer.rows[0].project, "");
    cr_expect_eq(answer.rows[0].held_ns, 30);
    cr_expect_eq(answer.rows[1].held_ns, 1000);
    cr_expect_str_eq(answer.rows[2].user, "bob");
    ask(RG_USAGE_BY_PROJECT, "");
    cr_assert_eq(answer.n, 2);
    cr_expect_eq(answer.rows[1].held_ns, 1200);
    cr_expect_eq(answer.rows[1].sessions, 2);
    ask(RG_USAGE_BY_DAY, "");
    cr_assert_eq(answer.n, 2);
    cr_expect_str_eq(answer.rows[0].period, "2025-11-24");
    cr_expect_eq(answer.rows[1].held_ns, 230);
    ask(RG_USAGE_BY_MONTH, "");
    cr_assert_eq(answer.n, 1);
    cr_expect_str_eq(answer.rows[0].period, "2025-11");
    ask(RG_USAGE_BY_SESSION, "alice");
    cr_assert_eq(answer.n, 2);
    cr_expect_eq(answer.rows[0].session, 1);
    cr_expect_eq(answer.rows[0].ended, 0);
}

Test(store, how_sessions_shared_their_gpus)
{
    struct rg_accountant_session a = session_of(1, "alice", ""), b = session_of(2, "bob", ""),
                                 c = session_of(3, "carol", "");
    a.sharing = b.sharing = RG_SHARING_TURNS;
    b.mig = true;
    c.sharing = RG_SHARING_EXCLUSIVE;
    put(&a, 0, HOUR, 100);
    put(&b, 0, HOUR, 20);
    put(&c, 0, HOUR, 3);
    put(&c, 1, HOUR + 1, 4);
    ask(RG_USAGE_BY_SESSION, "");
    cr_assert_eq(answer.n, 3);
    cr_expect(answer.rows[0].sharing == RG_SHARING_TURNS && !answer.rows[0].mig);
    cr_expect(answer.rows[1].sharing == RG_SHARING_TURNS && answer.rows[1].mig);
    cr_expect(answer.rows[2].sharing == RG_SHARING_EXCLUSIVE && !answer.rows[2].mig);
    ask(RG_USAGE_BY_SHARING, "");
    cr_assert_eq(answer.n, 3);
    cr_expect(answer.rows[1].mig && answer.rows[1].held_ns == 20);
    cr_expect(answer.rows[2].sharing == RG_SHARING_EXCLUSIVE && answer.rows[2].held_ns == 7);
    ask(RG_USAGE_BY_USER, "");
    cr_expect(answer.rows[1].sharing == RG_SHARING_UNKNOWN && !answer.rows[1].mig);
}

Test(store, whole_hours_and_users_of_ones_own)
{
    const struct rg_accountant_session a = session_of(1, "alice", ""), b = session_of(2, "bob", "");
    put(&a, 0, HOUR, 1000);
    put(&a, 1, HOUR + 1, 200);
    put(&b, 0, HOUR + 1, 30);
    struct rg_accountant_query query = {
        .everybody = false, .owner = a.owner, .question = {.by = RG_USAGE_BY_USER}};
    query.question.since = (HOUR + 1) * 3600ll + 5;
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK);
    cr_assert_eq(answer.n, 1);
    cr_expect_eq(answer.rows[0].held_ns, 200);
    cr_expect_eq(answer.since, (HOUR + 1) * 3600ll);
    query.question.since = 0;
    query.question.until = HOUR * 3600ll + 5;
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK);
    cr_expect_eq(answer.rows[0].held_ns, 1000);
    cr_expect_eq(answer.until, (HOUR + 1) * 3600ll);
    /* another's name */
    snprintf(query.question.user, sizeof query.question.user, "bob");
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK);
    cr_expect_eq(answer.n, 0);
    cr_expect(strstr(answer.why, "[usage-forbidden]"));
    /* a user of another kind with the same name is another user */
    query.question.user[0] = 0;
    query.owner.kind = RG_USAGE_LOCAL;
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK);
    cr_expect_eq(answer.n, 0);
}

Test(store, pages)
{
    struct rg_accountant_query query = {.everybody = true, .question = {.by = RG_USAGE_BY_SESSION}};
    unsigned pages = 0;
    cr_assert_eq(rg_store_begin(store, why, sizeof why), RG_OK);
    for (uint64_t i = 1; i <= 600; i++) {
        const struct rg_accountant_session session = session_of(i, "alice", "");
        const struct rg_accountant_part part = {.session = i,
                                                .slice = {.hour = HOUR, .figures = {.held_ns = 1}}};
        cr_assert_eq(rg_store_session(store, &session, why, sizeof why), RG_OK);
        cr_assert_eq(rg_store_part(store, &part, why, sizeof why), RG_OK);
    }
    cr_assert_eq(rg_store_commit(store, why, sizeof why), RG_OK);
    do {
        cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK);
        cr_expect_eq(answer.rows[0].session, query.question.skip + 1);
        query.question.skip += answer.n;
        pages++;
    } while (answer.more);
    cr_expect_eq(query.question.skip, 600);
    cr_expect_eq(pages, 3);
}

/* Many sessions by names as long as can be, put in by SQL, which takes a moment where one by one would take minutes. */
static void put_many(unsigned n)
{
    char path[128], sql[1024];
    sqlite3 *db = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    snprintf(
        sql, sizeof sql,
        "BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %u)"
        " INSERT INTO session(id, run, number, kind, user, address, project, started, ended, devices, how)"
        " SELECT i, 1, i, 3, printf('%%0250d', i), '', printf('%%0250d', i), i, i, 1, '' FROM n;"
        "INSERT INTO part SELECT id, 0, %d, 0, 1, 1, 1, 1, 1, 1, 1 FROM session; COMMIT",
        n, HOUR);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

Test(store, a_question_takes_so_much_memory_and_no_more)
{
    struct rg_accountant_query query = {.everybody = true, .question = {.by = RG_USAGE_BY_USER}};
    put_many(RG_USAGE_MEMORY_MAX / 400);
    const sqlite3_int64 before = sqlite3_memory_highwater(1);
    cr_assert_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_ERR_NO_MEMORY);
    cr_expect(strstr(why, "[usage-too-large]"), "%s", why);
    cr_expect(sqlite3_memory_highwater(0) <= before + RG_USAGE_MEMORY_MAX);
    /* less is answered, and what is written is not held to it */
    query.question.since = HOUR * 3600ll + 3600;
    cr_expect_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK, "%s", why);
    const struct rg_accountant_session session = session_of(1u << 30, "alice", "");
    put(&session, 0, HOUR + 1, 5);
    cr_expect_eq(rg_store_query(store, &query, &answer, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(answer.n, 1);
}

static void sum_total(void *data, const struct rg_account_owner *owner, uint64_t day_ns, uint64_t month_ns)
{
    uint64_t *sums = data;
    cr_expect_str_eq(owner->user, "alice");
    sums[0] += day_ns;
    sums[1] += month_ns;
}

Test(store, totals)
{
    const struct rg_accountant_session session = session_of(1, "alice", "");
    const struct rg_accountant_load load = {rg_period_day(HOUR), rg_period_month(HOUR)};
    uint64_t sums[2] = {0};
    put(&session, 0, load.day.begin - 1, 5);
    put(&session, 1, HOUR, 70);
    put(&session, 2, load.month.begin - 1, 1000);
    cr_assert_eq(rg_store_totals(store, &load, sum_total, sums, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(sums[0], 70);
    cr_expect_eq(sums[1], 75);
}

Test(store, sums_stay_at_the_largest_number)
{
    const struct rg_accountant_session session = session_of(1, "alice", "");
    put(&session, 0, HOUR, UINT64_MAX);
    put(&session, 1, HOUR + 1, UINT64_MAX);
    ask(RG_USAGE_BY_USER, "");
    cr_assert_eq(answer.n, 1);
    cr_expect_eq(answer.rows[0].held_ns, INT64_MAX);
    cr_expect_eq(answer.rows[0].bytes_in, 20);
}

Test(store, sessions_of_a_dead_server_are_closed)
{
    struct rg_store *other = NULL;
    const struct rg_accountant_session session = session_of(1, "alice", "");
    put(&session, 0, HOUR, 100);
    cr_assert_eq(rg_store_open(&other, folder, 8, why, sizeof why), RG_OK, "%s", why);
    /* a server that lives has its own */
    cr_assert_eq(rg_store_close_sessions(other, false, why, sizeof why), RG_OK, "%s", why);
    ask(RG_USAGE_BY_SESSION, "");
    cr_expect_eq(answer.rows[0].ended, 0);
    rg_store_close(store);
    cr_assert_eq(rg_store_close_sessions(other, false, why, sizeof why), RG_OK, "%s", why);
    store = other;
    ask(RG_USAGE_BY_SESSION, "");
    cr_expect_eq(answer.rows[0].ended, HOUR * 3600ll + 60);
    cr_expect_str_eq(answer.rows[0].end, "its server ended");
}

Test(store, old_ones_go)
{
    struct rg_accountant_session a = session_of(1, "alice", ""), b = session_of(2, "bob", "");
    const int64_t now = (HOUR + 48) * 3600ll;
    uint64_t removed = 9;
    a.ended = a.started + 60;
    put(&a, 0, HOUR, 100);
    put(&b, 0, HOUR, 100); /* runs */
    put(&b, 1, HOUR + 47, 100);
    cr_assert_eq(rg_store_expire(store, 0, now, &removed, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(removed, 0);
    cr_assert_eq(rg_store_expire(store, 86400, now, &removed, why, sizeof why), RG_OK, "%s", why);
    cr_expect_eq(removed, 1);
    ask(RG_USAGE_BY_SESSION, "");
    cr_assert_eq(answer.n, 1);
    cr_expect_eq(answer.rows[0].session, 2);
    cr_expect_eq(answer.rows[0].held_ns, 100);
    /* a clock that goes wrong removes nothing */
    cr_assert_eq(rg_store_expire(store, 86400, now + 3650 * 86400ll, &removed, why, sizeof why), RG_OK, "%s",
                 why);
    cr_expect_eq(removed, 0);
    ask(RG_USAGE_BY_SESSION, "");
    cr_expect_eq(answer.n, 1);
}

/* --- files that cannot be used ---------------------------------------------------------------------------------- */

static void reopen(enum rg_status expected, const char *word)
{
    rg_store_close(store);
    store = NULL;
    why[0] = 0;
    const enum rg_status status = rg_store_open(&store, folder, 7, why, sizeof why);
    cr_expect_eq(status, expected, "%d %s", status, why);
    cr_expect(strstr(why, word), "%s", why);
    if (status != RG_OK)
        store = NULL;
}

/* What another program does to the file. */
static void change(const char *sql)
{
    char path[96];
    sqlite3 *file = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(sqlite3_open(path, &file), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(file);
}

/* A file as the first form had it, with a session that has ended and one that runs. */
static void put_first_form(void)
{
    char path[96];
    rg_store_close(store);
    store = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(unlink(path), 0);
    change(
        "PRAGMA journal_mode = WAL; PRAGMA application_id = 1380401475;"
        "CREATE TABLE session(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, number INTEGER NOT NULL,"
        " kind INTEGER NOT NULL, user TEXT NOT NULL, address TEXT NOT NULL, project TEXT NOT NULL,"
        " started INTEGER NOT NULL, ended INTEGER NOT NULL, devices INTEGER NOT NULL, how TEXT NOT NULL,"
        " UNIQUE(run, number));"
        "CREATE INDEX session_runs ON session(run) WHERE ended = 0;"
        "CREATE INDEX session_user ON session(user);"
        "CREATE TABLE part(session INTEGER NOT NULL, part INTEGER NOT NULL, hour INTEGER NOT NULL,"
        " until INTEGER NOT NULL, held_ns INTEGER NOT NULL, busy_ns INTEGER NOT NULL,"
        " byte_seconds INTEGER NOT NULL, bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL,"
        " launches INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, PRIMARY KEY(session, part)) WITHOUT ROWID;"
        "CREATE INDEX part_hour ON part(hour);"
        "CREATE TABLE clock(id INTEGER PRIMARY KEY CHECK(id = 0), seen INTEGER NOT NULL,"
        " jumped INTEGER NOT NULL);"
        "INSERT INTO clock VALUES(0, 1764000000, 0); PRAGMA user_version = 1;"
        "INSERT INTO session VALUES(1, 7, 1, 3, 'alice', '', 'vision', 1764000000, 1764000100, 1, 'ended'),"
        " (2, 7, 2, 3, 'bob', '', '', 1764000000, 0, 2, '');"
        "INSERT INTO part VALUES(1, 0, 490000, 1764000100, 100, 50, 7, 1, 2, 3, 4),"
        " (2, 0, 490000, 1764000200, 30, 10, 7, 1, 2, 3, 4)");
}

static void expect_first_form(void)
{
    ask(RG_USAGE_BY_SESSION, "");
    cr_assert_eq(answer.n, 2);
    cr_expect_str_eq(answer.rows[0].user, "alice");
    cr_expect_eq(answer.rows[0].held_ns, 100);
    cr_expect_eq(answer.rows[1].held_ns, 30);
    cr_expect_eq(answer.rows[0].sharing, RG_SHARING_UNKNOWN);
    cr_expect_not(answer.rows[0].mig);
    ask(RG_USAGE_BY_SHARING, "");
    cr_assert_eq(answer.n, 1);
    cr_expect_eq(answer.rows[0].held_ns, 130);
}

static int form_of_file(void)
{
    char path[96];
    sqlite3 *file = NULL;
    sqlite3_stmt *statement = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(sqlite3_open(path, &file), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(file, "PRAGMA user_version", -1, &statement, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    const int form = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(file);
    return form;
}

Test(store, an_older_form_is_brought_to_this_one)
{
    put_first_form();
    reopen(RG_OK, "");
    cr_expect_eq(form_of_file(), RG_STORE_VERSION);
    expect_first_form();
    struct rg_accountant_session session = session_of(3, "carol", "");
    session.sharing = RG_SHARING_MPS;
    put(&session, 0, HOUR, 5);
    session = session_of(2, "bob", "");
    session.ended = session.started + 60;
    put(&session, 0, HOUR, 40);
    reopen(RG_OK, "");
    ask(RG_USAGE_BY_SHARING, "");
    cr_assert_eq(answer.n, 2);
    cr_expect_eq(answer.rows[0].held_ns, 140);
    cr_expect(answer.rows[1].sharing == RG_SHARING_MPS && answer.rows[1].held_ns == 5);
    /* a server of the version before, which still runs in the same folder */
    change("INSERT INTO session(run, number, kind, user, address, project, started, ended, devices, how)"
           " VALUES(9, 1, 3, 'old', '', '', 5, 6, 1, '')");
}

/* Who may not write reads it as it is. */
Test(store, an_older_form_is_read)
{
    put_first_form();
    cr_assert_eq(rg_store_open(&store, folder, 0, why, sizeof why), RG_OK, "%s", why);
    expect_first_form();
    cr_expect_eq(form_of_file(), 1);
}

Test(store, a_newer_form)
{
    put(&(struct rg_accountant_session){.number = 1}, 0, HOUR, 1);
    rg_store_close(store);
    store = NULL;
    change("PRAGMA user_version = 3");
    reopen(RG_ERR_INVALID, "newer remote-gpu");
}

Test(store, a_file_of_another_program)
{
    char path[96];
    rg_store_close(store);
    store = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(unlink(path), 0);
    change("CREATE TABLE t(x)");
    reopen(RG_ERR_INVALID, "is not a file of remote-gpu's accounts");
}

Test(store, a_damaged_file_is_left_alone)
{
    char path[96], before[64], after[64];
    file_name(path, sizeof path, "accounts.db");
    const struct rg_accountant_session session = session_of(1, "alice", "");
    for (uint32_t i = 0; i < 200; i++)
        put(&session, i, HOUR + i, 1);
    rg_store_close(store);
    store = NULL;
    const int file = open(path, O_RDWR);
    memset(before, 0xa5, sizeof before);
    for (off_t at = 4096; at < lseek(file, 0, SEEK_END); at += 2048)
        cr_assert_eq(pwrite(file, before, sizeof before, at), (ssize_t)sizeof before);
    reopen(RG_ERR_INVALID, "is damaged");
    cr_assert_eq(pread(file, after, sizeof after, 4096), (ssize_t)sizeof after);
    cr_expect_eq(memcmp(before, after, sizeof after), 0);
    close(file);
    /* moved away, a new one is begun */
    cr_assert_eq(unlink(path), 0);
    reopen(RG_OK, "");
}

Test(store, no_database_at_all)
{
    char path[96];
    file_name(path, sizeof path, "accounts.db");
    rg_store_close(store);
    store = NULL;
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("no database\n", file);
    fclose(file);
    reopen(RG_ERR_INVALID, "is damaged");
}

/* A file that may not grow stands for a full disk; what was committed stays, and once there is room all goes on. */
Test(store, a_full_disk)
{
    struct rlimit limit = {.rlim_cur = 256 * 1024, .rlim_max = RLIM_INFINITY};
    const struct rg_accountant_session session = session_of(1, "alice", "");
    uint64_t kept = 0;
    enum rg_status status = RG_OK;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint32_t i = 0; i < 20000 && status == RG_OK; i++) {
        const struct rg_accountant_part part = {
            .session = 1, .part = i, .slice = {.hour = HOUR, .figures = {.held_ns = 1}}};
        status = rg_store_begin(store, why, sizeof why);
        if (status == RG_OK)
            status = rg_store_session(store, &session, why, sizeof why);
        if (status == RG_OK)
            status = rg_store_part(store, &part, why, sizeof why);
        if (status == RG_OK)
            status = rg_store_commit(store, why, sizeof why);
        kept += status == RG_OK;
    }
    cr_expect_eq(status, RG_ERR_IO, "%d after %llu", status, (unsigned long long)kept);
    cr_expect(strstr(why, "accounts.db"), "%s", why);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    reopen(RG_OK, "");
    ask(RG_USAGE_BY_USER, "");
    cr_expect_eq(answer.rows[0].held_ns, kept);
    put(&session, 30000, HOUR, 5);
}

Test(store, readers_make_nothing)
{
    char path[96];
    rg_store_close(store);
    store = NULL;
    file_name(path, sizeof path, "accounts.db");
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(rg_store_open(&store, folder, 0, why, sizeof why), RG_ERR_NOT_FOUND);
    cr_expect(strstr(why, "there are no accounts"), "%s", why);
    cr_expect_neq(access(path, F_OK), 0);
    store = NULL;
}

/* As a user without rights: root may write everything. */
Test(store, a_folder_that_cannot_be_written)
{
    int status;
    cr_assert_eq(chmod(folder, 0555), 0);
    char command[200];
    snprintf(command, sizeof command, "rm '%s'/accounts.db* '%s/lock'", folder, folder);
    rg_store_close(store);
    store = NULL;
    (void)!system(command);
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(2);
        _exit(rg_store_open(&store, folder, 7, why, sizeof why) == RG_ERR_IO &&
                      strstr(why, "cannot be written")
                  ? 0
                  : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    cr_assert_eq(chmod(folder, 0755), 0);
}

/* A writer that is killed at any point: each batch is in the file as a whole, or not at all, and those before are there. */
Test(store, killed_at_any_point, .timeout = 60)
{
    uint64_t least = 0;
    rg_store_close(store);
    store = NULL;
    for (unsigned round = 0; round < 12; round++) {
        int progress[2], status;
        cr_assert_eq(pipe(progress), 0);
        const pid_t child = fork();
        if (child == 0) {
            struct rg_store *own = NULL;
            close(progress[0]);
            if (rg_store_open(&own, folder, 100 + round, why, sizeof why) != RG_OK)
                _exit(1);
            const struct rg_accountant_session session = session_of(1, "alice", "");
            for (uint32_t i = 0;; i++) {
                struct rg_accountant_part part = {
                    .session = 1, .part = i, .slice = {.hour = HOUR + i, .figures = {.held_ns = 1}}};
                if (rg_store_begin(own, why, sizeof why) != RG_OK ||
                    rg_store_session(own, &session, why, sizeof why) != RG_OK ||
                    rg_store_part(own, &part, why, sizeof why) != RG_OK)
                    _exit(1);
                part.part += 1u << 20; /* two a batch */
                if (rg_store_part(own, &part, why, sizeof why) != RG_OK ||
                    rg_store_commit(own, why, sizeof why) != RG_OK)
                    _exit(1);
                if (write(progress[1], "", 1) != 1)
                    _exit(1);
            }
        }
        close(progress[1]);
        char byte;
        cr_assert_eq(read(progress[0], &byte, 1), 1);
        least++;
        usleep((unsigned)(random() % 30000));
        kill(child, SIGKILL);
        while (read(progress[0], &byte, 1) == 1)
            least++;
        close(progress[0]);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status));
        cr_assert_eq(rg_store_open(&store, folder, 7, why, sizeof why), RG_OK, "%s", why);
        ask(RG_USAGE_BY_USER, "");
        const uint64_t held = answer.rows[0].held_ns;
        cr_expect(held % 2 == 0 && held >= 2 * least && held <= 2 * (least + 1), "%llu of %llu",
                  (unsigned long long)held, (unsigned long long)least);
        least = held / 2;
        rg_store_close(store);
        store = NULL;
    }
    cr_assert_eq(rg_store_open(&store, folder, 7, why, sizeof why), RG_OK, "%s", why);
}

/* A service that has a user of its own has its state folder behind a link (systemd's DynamicUser=). */
Test(store, a_folder_behind_a_link)
{
    char link[80], inside[96], file[112];
    struct rg_store *other;
    snprintf(link, sizeof link, "%s.link", folder);
    snprintf(inside, sizeof inside, "%s/accounts", link);
    cr_assert_eq(symlink(folder, link), 0);
    cr_expect_eq(rg_store_open(&other, inside, 8, why, sizeof why), RG_OK, "%s", why);
    rg_store_close(other);
    /* the file itself is no link */
    snprintf(file, sizeof file, "%s/accounts.db", inside);
    cr_expect_eq(unlink(file), 0);
    cr_expect_eq(symlink("elsewhere.db", file), 0);
    cr_expect_neq(rg_store_open(&other, inside, 9, why, sizeof why), RG_OK);
    cr_expect_eq(unlink(link), 0);
}
