/* accountant.c - the process that has the accounts' file: a question that takes long lets others pass. */
#include "common/base/clock.h"
#include "common/base/packet.h"
#include "server/accounts/store.h"
#include "server/sandbox/sandbox.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOUR        490000
#define PARTS       150000 /* a second or so to add them up */
#define QUICK_NS    250000000ull
#define PATIENCE_MS 60000

static const char *folder;

/* Accounts of a session with so many parts that it takes a moment to add them up. */
static void fill(void)
{
    char path[128], sql[512], why[RG_ACCOUNTS_WHY] = "";
    struct rg_store *store = NULL;
    sqlite3 *db = NULL;
    folder = temporary_folder();
    cr_assert_eq(rg_store_open(&store, folder, 7, why, sizeof why), RG_OK, "%s", why);
    rg_store_close(store);
    snprintf(path, sizeof path, "%s/accounts.db", folder);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    snprintf(sql, sizeof sql,
             "BEGIN; INSERT INTO session(id, run, number, kind, user, address, project, started, ended, "
             "devices, how)"
             " VALUES(1, 1, 1, 3, 'alice', '', '', 1, 1, 1, '');"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO part SELECT 1, i, %d + i %% 100, 0, 1, 1, 1, 1, 1, 1, 1 FROM n; COMMIT",
             PARTS, HOUR);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static pid_t start(int theirs)
{
    char sandbox[RG_SANDBOX_TEXT];
    rg_sandbox_format(&(struct rg_sandbox_policy){0}, sandbox);
    const pid_t pid = fork();
    if (pid == 0) {
        if (theirs == RG_ACCOUNTANT_FD ? fcntl(theirs, F_SETFD, 0) : dup2(theirs, RG_ACCOUNTANT_FD) < 0)
            _exit(126);
        execl(ACCOUNTANT, "accountant", "--folder", folder, "--run", "9", "--keep", "0", "--sandbox", sandbox,
              (char *)NULL);
        _exit(126);
    }
    return pid;
}

/* Asks; where the answer comes. */
static int ask(int to, uint64_t number, int64_t since)
{
    static struct rg_accountant_word word;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    memset(&word, 0, sizeof word);
    word.kind = RG_ACCOUNTANT_QUERY;
    word.number = number;
    word.query.everybody = true;
    word.query.question.by = RG_USAGE_BY_MONTH;
    word.query.question.since = since;
    cr_assert(rg_packet_send(to, &word, sizeof word, &ends[1], 1));
    close(ends[1]);
    return ends[0];
}

/* How many rows came as the answer; UINT32_MAX: a machine with other things to do has not found it in time. */
static uint32_t rows_of(int socket)
{
    static unsigned char data[RG_ANSWER_SIZE_MAX];
    static struct rg_usage_answer answer;
    const ssize_t size = recv(socket, data, sizeof data, 0);
    cr_assert_gt(size, 0, "no answer");
    cr_assert_eq(rg_usage_unpack_answer(data, (size_t)size, &answer), RG_OK);
    if (strstr(answer.why, "takes too long"))
        return UINT32_MAX;
    cr_expect_str_eq(answer.why, "");
    return answer.n;
}

Test(accountant, who_asks_about_years_holds_nobody_up)
{
    int ends[2], end = 0;
    fill();
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const int slow = ask(ends[0], 1, 0), quick = ask(ends[0], 2, (HOUR + 1000) * 3600ll);
    const pid_t pid = start(ends[1]);
    close(ends[1]);
    const uint64_t began = rg_now_ns();
    struct pollfd first[] = {{.fd = slow, .events = POLLIN}, {.fd = quick, .events = POLLIN}};
    cr_assert_gt(poll(first, 2, PATIENCE_MS), 0);
    cr_expect(first[1].revents || rg_now_ns() - began < QUICK_NS, "the slow one was answered first");
    cr_expect_eq(rows_of(quick), 0);
    cr_expect_geq(rows_of(slow), 1, "and it is answered, too");
    close(ends[0]);
    cr_expect_eq(waitpid(pid, &end, 0), pid);
    cr_expect(WIFEXITED(end) && WEXITSTATUS(end) == 0);
}
