/* accounts.c - the monitor's side, against an accountant that is this test: what is told, told again, kept, and given up. */
#include "server/accounts/accounts.h"

#include "common/base/log.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)
#define WALL   (490000 * HOUR + 10 * SECOND)

static struct rg_accounts *accounts;
static int theirs = -1;
static struct rg_accountant_word words[64];
static const struct rg_account_owner alice = {
    .kind = RG_USAGE_CERTIFICATE, .user = "alice", .project = "vision"};
static const struct rg_accountant_session facts = {
    .number = 1,
    .owner = {.kind = RG_USAGE_CERTIFICATE, .user = "alice", .project = "vision"},
    .n_devices = 1,
    .sharing = RG_SHARING_MPS,
    .mig = true};
static const struct rg_figures_sample sample = {.n_devices = 1, .capacity_bytes = 100, .launches = 3};

static void connect_accountant(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    rg_accounts_attach(accounts, ends[0]);
    if (theirs >= 0)
        close(theirs);
    theirs = ends[1];
}

static void begin(void)
{
    accounts = rg_accounts_create();
    rg_accounts_tick(accounts, WALL);
    connect_accountant();
}

TestSuite(accounts, .init = begin);

/* What was told since the last time. */
static unsigned told(void)
{
    unsigned n = 0;
    while (n < 64 && recv(theirs, &words[n], sizeof words[n], MSG_DONTWAIT) == (ssize_t)sizeof words[n])
        n++;
    return n;
}

static void say(const struct rg_accountant_answer *answer)
{
    cr_assert_eq(send(theirs, answer, sizeof *answer, 0), (ssize_t)sizeof *answer);
    cr_assert(rg_accounts_receive(accounts));
}

static void saved(uint64_t number)
{
    say(&(struct rg_accountant_answer){.kind = RG_ACCOUNTANT_SAVED, .number = number});
}

static void total(uint64_t number, uint64_t day, uint64_t month)
{
    say(&(struct rg_accountant_answer){
        .kind = RG_ACCOUNTANT_TOTAL, .number = number, .owner = alice, .day_ns = day, .month_ns = month});
}

static void loaded(uint64_t number, const char *why)
{
    struct rg_accountant_answer answer = {.kind = RG_ACCOUNTANT_LOADED, .number = number};
    snprintf(answer.why, sizeof answer.why, "%s", why);
    say(&answer);
}

static void expect_hours(uint64_t day, uint64_t month)
{
    uint64_t a, b;
    rg_accounts_of_user(accounts, &alice, &a, &b);
    cr_expect_eq(a, day, "%llu", (unsigned long long)a);
    cr_expect_eq(b, month, "%llu", (unsigned long long)b);
    rg_accounts_of_project(accounts, "vision", &a, &b);
    cr_expect_eq(a, day);
    rg_accounts_of_name(accounts, RG_USAGE_CERTIFICATE, "alice", &a, &b);
    cr_expect_eq(b, month);
}

Test(accounts, a_session_is_told_and_forgotten_when_saved)
{
    struct rg_account *account = rg_accounts_begin(accounts, &facts, 0, WALL);
    rg_account_sample(account, &sample, SECOND, WALL + SECOND);
    cr_expect_eq(rg_accounts_flush(accounts, SECOND), UINT64_MAX);
    cr_assert_eq(told(), 3);
    cr_expect_eq(words[0].kind, RG_ACCOUNTANT_SESSION);
    cr_expect_str_eq(words[0].session.owner.user, "alice");
    cr_expect_eq(words[0].session.ended, 0);
    cr_expect(words[0].session.sharing == RG_SHARING_MPS && words[0].session.mig);
    cr_expect_eq(words[1].kind, RG_ACCOUNTANT_PART);
    cr_expect_eq(words[1].part.slice.figures.held_ns, SECOND);
    cr_expect_eq(words[2].kind, RG_ACCOUNTANT_LOAD);
    saved(2);
    cr_expect(rg_accounts_are_saved(accounts));
    rg_accounts_flush(accounts, 2 * SECOND);
    cr_expect_eq(told(), 0); /* nothing has changed */
    rg_account_end(account, &sample, 3 * SECOND, WALL + 3 * SECOND, "ended");
    rg_accounts_flush(accounts, 3 * SECOND);
    cr_assert_eq(told(), 2);
    cr_expect_eq(words[0].session.ended, (int64_t)((WALL + 3 * SECOND) / SECOND));
    cr_expect_eq(words[1].part.part, 0); /* it replaces what was told */
    cr_expect_eq(words[1].part.slice.figures.held_ns, 3 * SECOND);
    cr_expect_eq(words[1].part.slice.figures.launches, 3);
    cr_expect_not(rg_accounts_are_saved(accounts));
    saved(5);
    cr_expect(rg_accounts_are_saved(accounts));
    rg_accounts_destroy(accounts);
}

Test(accounts, another_accountant_is_told_all_that_is_not_saved)
{
    struct rg_account *account = rg_accounts_begin(accounts, &facts, 0, WALL);
    rg_account_end(account, &sample, 3 * SECOND, WALL + 3 * SECOND, "ended");
    rg_accounts_flush(accounts, 3 * SECOND);
    cr_assert_eq(told(), 3);
    close(theirs);
    theirs = -1;
    cr_expect_not(rg_accounts_receive(accounts));
    rg_accounts_detach(accounts);
    cr_expect_eq(rg_accounts_flush(accounts, 4 * SECOND), UINT64_MAX);
    connect_accountant();
    rg_accounts_flush(accounts, 5 * SECOND);
    cr_assert_eq(told(), 3);
    cr_expect_eq(words[1].part.slice.figures.held_ns, 3 * SECOND);
    saved(words[1].number);
    cr_expect(rg_accounts_are_saved(accounts));
    rg_accounts_destroy(accounts);
}

Test(accounts, what_failed_is_told_again_later, .init = begin)
{
    cr_redirect_stderr();
    cr_assert(rg_log_set_level_by_name("info"));
    struct rg_account *account = rg_accounts_begin(accounts, &facts, 0, WALL);
    rg_account_sample(account, &sample, SECOND, WALL + SECOND);
    rg_accounts_flush(accounts, SECOND);
    cr_assert_eq(told(), 3);
    const struct rg_accountant_answer failed = {
        .kind = RG_ACCOUNTANT_FAILED, .number = 3, .why = "the disk is full"};
    say(&failed);
    say(&failed); /* said once */
    rg_account_sample(account, &sample, 2 * SECOND, WALL + 2 * SECOND);
    cr_expect_neq(rg_accounts_flush(accounts, 2 * SECOND), UINT64_MAX);
    cr_expect_eq(told(), 0);
    rg_accounts_flush(accounts, 2 * SECOND + RG_ACCOUNTS_RETRY_NS);
    cr_assert_eq(told(), 3);
    cr_expect_eq(words[1].part.slice.figures.held_ns, 2 * SECOND);
    cr_expect_eq(words[2].kind, RG_ACCOUNTANT_LOAD); /* what it had begun to read is not believed */
    saved(words[1].number);
    cr_expect(rg_accounts_are_saved(accounts));
    rg_account_end(account, &sample, 3 * SECOND, WALL + 3 * SECOND, "ended");
    rg_accounts_destroy(accounts); /* and what never is, is said */
    fflush(stderr);
    char text[4096] = "";
    FILE *err = cr_get_redirected_stderr();
    const size_t size = fread(text, 1, sizeof text - 1, err);
    text[size] = 0;
    const char *first = strstr(text, "the disk is full");
    cr_expect(first && !strstr(first + 1, "the disk is full"), "%s", text);
    cr_expect(strstr(text, "saved again"), "%s", text);
    cr_expect(
        strstr(
            text,
            "session 1 of alice, project vision is not in the accounts: sharing mps on MIG, held 3.000 GPU "
            "s"),
        "%s", text);
}

Test(accounts, hours_of_before_and_of_now_are_put_together)
{
    struct rg_account *account = rg_accounts_begin(accounts, &facts, 0, WALL);
    cr_expect_not(rg_accounts_known(accounts));
    rg_account_sample(account, &sample, SECOND, WALL + SECOND);
    rg_accounts_flush(accounts, SECOND);
    cr_assert_eq(told(), 3);
    saved(2);
    total(words[2].number, 100, 1000); /* the second that was saved is in it */
    rg_account_sample(account, &sample, 3 * SECOND, WALL + 3 * SECOND);
    loaded(words[2].number, "");
    cr_expect(rg_accounts_known(accounts));
    expect_hours(100 + 2 * SECOND, 1000 + 2 * SECOND);
    rg_account_end(account, &sample, 3 * SECOND, WALL + 3 * SECOND, "ended");
    saved(2);
    rg_accounts_destroy(accounts);
}

Test(accounts, a_new_day_begins_at_nothing)
{
    struct rg_account *account = rg_accounts_begin(accounts, &facts, 0, WALL);
    const uint64_t midnight = (uint64_t)rg_accounts_day(accounts).end * HOUR;
    rg_accounts_flush(accounts, 0);
    cr_assert_eq(told(), 2);
    loaded(words[1].number, "");
    rg_account_sample(account, &sample, 10 * SECOND, WALL + 10 * SECOND);
    expect_hours(10 * SECOND, 10 * SECOND);
    rg_accounts_tick(accounts, midnight + 5 * SECOND);
    rg_account_sample(account, &sample, 20 * SECOND, midnight + 5 * SECOND);
    expect_hours(5 * SECOND, 20 * SECOND);
    /* the clock goes back: the file knows what was used then */
    rg_accounts_tick(accounts, WALL + 20 * SECOND);
    rg_account_sample(account, &sample, 21 * SECOND, WALL + 21 * SECOND);
    rg_accounts_flush(accounts, 21 * SECOND);
    unsigned n = told();
    cr_assert_eq(words[n - 1].kind, RG_ACCOUNTANT_LOAD);
    total(words[n - 1].number, 16 * SECOND, 21 * SECOND);
    loaded(words[n - 1].number, "");
    expect_hours(16 * SECOND, 21 * SECOND);
    cr_expect(rg_accounts_known(accounts));
    rg_accounts_destroy(accounts);
}

Test(accounts, hours_that_cannot_be_read_stay_unknown)
{
    rg_accounts_flush(accounts, 0);
    cr_assert_eq(told(), 1);
    loaded(words[0].number, "the file is damaged");
    cr_expect_not(rg_accounts_known(accounts));
    rg_accounts_flush(accounts, SECOND);
    cr_expect_eq(told(), 0);
    rg_accounts_flush(accounts, SECOND + RG_ACCOUNTS_RETRY_NS);
    cr_assert_eq(told(), 1);
    loaded(words[0].number, "");
    cr_expect(rg_accounts_known(accounts));
    rg_accounts_destroy(accounts);
}

/* An accountant that hangs: the monitor does not wait, and nothing is lost. */
Test(accounts, one_that_does_not_read)
{
    struct rg_account *all[400];
    for (unsigned i = 0; i < 400; i++) {
        struct rg_accountant_session one = facts;
        one.number = i + 1;
        all[i] = rg_accounts_begin(accounts, &one, 0, WALL);
        rg_account_end(all[i], &sample, SECOND, WALL + SECOND, "ended");
    }
    uint64_t again = 0, seen = 0;
    for (int round = 0; round < 100 && again != UINT64_MAX; round++) {
        again = rg_accounts_flush(accounts, 2 * SECOND);
        for (unsigned n; (n = told()) > 0;)
            for (unsigned i = 0; i < n; i++)
                seen += words[i].kind == RG_ACCOUNTANT_PART;
    }
    cr_expect_eq(again, UINT64_MAX);
    cr_expect_eq(seen, 400);
    saved(801);
    cr_expect(rg_accounts_are_saved(accounts));
    rg_accounts_destroy(accounts);
}
