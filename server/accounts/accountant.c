/*
 * accountant.c - program accountant: the process that alone opens the accounts' file, so that the monitor never waits for a disk.
 *
 *   accountant --folder DIR --run N --keep SECONDS --sandbox POLICY     started by the monitor; the socket is RG_ACCOUNTANT_FD
 *   accountant --read DIR                                               for `remote-gpud usage`: questions on stdin, answers on
 *                                                                       stdout, each a struct rg_accountant_query and a packed answer
 *
 * Happy path: it opens the file, closes what earlier servers have left, and takes words off the socket. All that have come by then
 * are one batch (store.h); SAVED answers it. Where anything fails it says FAILED with the sentence, closes the file, and opens it
 * again with a later batch, as somebody may have mended it. It ends when the monitor has closed the socket, or has died: then it
 * has saved what was in it, and closed the sessions of this server. Signals that are meant for the server do not end it.
 *
 * Questions are answered one at a time, and words that come meanwhile wait. One that takes longer than QUICK_NS is put off when others
 * come that have not been tried yet, and begun again after them: who asks about years holds nobody up who asks about a day.
 */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/parse.h"
#include "server/accounts/protocol.h"
#include "server/accounts/store.h"
#include "server/sandbox/sandbox.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_AT_ONCE = 256, QUESTIONS_AT_ONCE = 64 };

#define QUICK_NS      250000000ull
#define QUESTION_NS   5000000000ull /* in all; who asks waits for little more */
#define EXPIRE_NS     3600000000000ull
#define EXIT_FAILURE_ 125

struct question {
    struct rg_accountant_query query;
    int socket;        /* for the answer */
    uint64_t spent_ns; /* on it; 0: it has not been tried */
};

struct accountant {
    const char *folder;
    uint64_t run, keep_s;
    struct rg_store *store;    /* NULL: it cannot be opened, or was closed after a failure */
    bool failed;               /* words since the last SAVED are lost here; the monitor has them */
    char why[RG_ACCOUNTS_WHY]; /* they are: what was said */
    bool in_batch;
    uint64_t number; /* of the last word */
    uint64_t expire_ns;
    struct rg_accountant_word words[WORDS_AT_ONCE]; /* that have come, and are no questions */
    unsigned n_words;
    struct question
        questions[QUESTIONS_AT_ONCE +
                  1]; /* in the order of their turns; one place is that of the one that is put off */
    unsigned n_questions;
    uint64_t asked_ns; /* when the one under way was begun */
    bool put_off;      /* it is to be */
    bool over;         /* no more words come */
};

static bool answer(const struct rg_accountant_answer *answered)
{
    ssize_t sent;
    while ((sent = send(RG_ACCOUNTANT_FD, answered, sizeof *answered, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return sent == (ssize_t)sizeof *answered;
}

/* --- the file ------------------------------------------------------------------------------------------------- */

static enum rg_status open_store(struct accountant *accountant, char *why, size_t why_size)
{
    if (accountant->store)
        return RG_OK;
    enum rg_status status =
        rg_store_open(&accountant->store, accountant->folder, accountant->run, why, why_size);
    if (status == RG_OK)
        status = rg_store_close_sessions(accountant->store, false, why, why_size);
    return status;
}

/* What was said since the last SAVED is not kept. */
static void fail(struct accountant *accountant, const char *why)
{
    struct rg_accountant_answer answered = {.kind = RG_ACCOUNTANT_FAILED, .number = accountant->number};
    snprintf(accountant->why, sizeof accountant->why, "%s", why);
    snprintf(answered.why, sizeof answered.why, "%s", why);
    rg_store_close(accountant->store);
    accountant->store = NULL;
    accountant->in_batch = false;
    if (!accountant->failed)
        (void)answer(&answered);
    accountant->failed = true;
}

static void keep(struct accountant *accountant, const struct rg_accountant_word *word)
{
    char why[RG_ACCOUNTS_WHY] = "";
    if (accountant->failed)
        return;
    enum rg_status status = open_store(accountant, why, sizeof why);
    if (status == RG_OK && !accountant->in_batch) {
        status = rg_store_begin(accountant->store, why, sizeof why);
        accountant->in_batch = status == RG_OK;
    }
    if (status == RG_OK)
        status = word->kind == RG_ACCOUNTANT_SESSION
                     ? rg_store_session(accountant->store, &word->session, why, sizeof why)
                     : rg_store_part(accountant->store, &word->part, why, sizeof why);
    if (status != RG_OK)
        fail(accountant, why);
}

static void commit(struct accountant *accountant)
{
    char why[RG_ACCOUNTS_WHY] = "";
    if (!accountant->in_batch)
        return;
    if (rg_store_commit(accountant->store, why, sizeof why) != RG_OK) {
        fail(accountant, why);
        return;
    }
    accountant->in_batch = false;
    (void)answer(&(struct rg_accountant_answer){.kind = RG_ACCOUNTANT_SAVED, .number = accountant->number});
}

/* Once an hour: closes what servers that were killed have left, and removes what is older than it is to be kept. */
static void expire(struct accountant *accountant)
{
    char why[RG_ACCOUNTS_WHY] = "";
    uint64_t removed = 0;
    if (rg_now_ns() < accountant->expire_ns || !accountant->store || accountant->in_batch)
        return;
    accountant->expire_ns = rg_now_ns() + EXPIRE_NS;
    if (rg_store_close_sessions(accountant->store, false, why, sizeof why) != RG_OK)
        rg_warn("sessions of servers that have ended stay open in the accounts: %s", why);
    if (rg_store_expire(accountant->store, accountant->keep_s, (int64_t)time(NULL), &removed, why,
                        sizeof why) != RG_OK)
        rg_warn("old accounts are not removed: %s", why);
    else if (removed)
        rg_info("removed the accounts of %" PRIu64 " sessions that are older than they are to be kept",
                removed);
}

/* --- questions -------------------------------------------------------------------------------------------------- */

struct loading {
    uint64_t number;
    bool broken;
};

static void tell_total(void *data, const struct rg_account_owner *owner, uint64_t day_ns, uint64_t month_ns)
{
    struct loading *loading = data;
    loading->broken = loading->broken || !answer(&(struct rg_accountant_answer){.kind = RG_ACCOUNTANT_TOTAL,
                                                                                .number = loading->number,
                                                                                .owner = *owner,
                                                                                .day_ns = day_ns,
                                                                                .month_ns = month_ns});
}

static void load(struct accountant *accountant, const struct rg_accountant_word *word)
{
    struct rg_accountant_answer done = {.kind = RG_ACCOUNTANT_LOADED, .number = word->number};
    struct loading loading = {.number = word->number};
    if (open_store(accountant, done.why, sizeof done.why) == RG_OK) {
        if (accountant->failed) /* what is not kept is not in the sums */
            snprintf(done.why, sizeof done.why, "%s", accountant->why);
        else if (rg_store_totals(accountant->store, &word->load, tell_total, &loading, done.why,
                                 sizeof done.why) == RG_OK)
            done.why[0] = 0;
    }
    (void)answer(&done);
}

/* The packed answer to one question: its size. */
static size_t look_up(struct rg_store *store, const struct rg_accountant_query *query, const char *why_not,
                      void *out)
{
    static struct rg_usage_answer answered;
    char why[RG_ACCOUNTS_WHY] = "";
    if (!store || rg_store_query(store, query, &answered, why, sizeof why) != RG_OK) {
        memset(&answered, 0, sizeof answered);
        snprintf(answered.why, sizeof answered.why, "%s", store ? why : why_not);
    }
    return rg_usage_pack_answer(&answered, out);
}

/* Takes off the socket what is there. */
static void gather(struct accountant *accountant)
{
    while (!accountant->over && accountant->n_words < WORDS_AT_ONCE &&
           accountant->n_questions < QUESTIONS_AT_ONCE) {
        struct rg_accountant_word *word = &accountant->words[accountant->n_words];
        int fds[RG_PACKET_FDS_MAX];
        unsigned n_fds = 0;
        const enum rg_status status =
            rg_packet_receive(RG_ACCOUNTANT_FD, MSG_DONTWAIT, word, sizeof *word, fds, 1, &n_fds);
        accountant->over = status != RG_OK && status != RG_ERR_TIMEOUT;
        if (status != RG_OK)
            return;
        if (word->kind != RG_ACCOUNTANT_QUERY) {
            accountant->n_words++;
        } else if (n_fds == 1) {
            accountant->questions[accountant->n_questions++] =
                (struct question){.query = word->query, .socket = fds[0]};
            n_fds = 0;
        }
        rg_packet_close(fds, n_fds);
    }
}

/* The place of the first that has not been tried; n_questions: all have been. */
static unsigned untried(const struct accountant *accountant)
{
    unsigned i = 0;
    while (i < accountant->n_questions && accountant->questions[i].spent_ns)
        i++;
    return i;
}

/* While a question is answered. */
static bool yields(void *data)
{
    struct accountant *accountant = data;
    gather(accountant);
    accountant->put_off =
        untried(accountant) < accountant->n_questions && rg_now_ns() - accountant->asked_ns >= QUICK_NS;
    return accountant->put_off;
}

/* Answers one, or puts it off. */
static void answer_next(struct accountant *accountant)
{
    static unsigned char out[RG_ANSWER_SIZE_MAX];
    char why[RG_ACCOUNTS_WHY] = "";
    const unsigned first = untried(accountant), at = first < accountant->n_questions ? first : 0;
    struct question question = accountant->questions[at];
    memmove(&accountant->questions[at], &accountant->questions[at + 1],
            (--accountant->n_questions - at) * sizeof question);
    (void)open_store(accountant, why, sizeof why);
    /* who asks is not the operator, and need not know the server's folders */
    if (why[0])
        snprintf(why, sizeof why,
                 "the server's accounts cannot be read now; its operator finds why in its log");
    if (accountant->store)
        rg_store_yield_when(accountant->store, yields, accountant);
    accountant->asked_ns = rg_now_ns();
    accountant->put_off = false;
    const size_t size = look_up(accountant->store, &question.query, why, out);
    question.spent_ns += rg_now_ns() - accountant->asked_ns;
    if (accountant->put_off && question.spent_ns < QUESTION_NS) {
        accountant->questions[accountant->n_questions++] = question;
        return;
    }
    (void)send(question.socket, out, size, MSG_DONTWAIT | MSG_NOSIGNAL); /* who asked may have left */
    close(question.socket);
}

/* --- serving ---------------------------------------------------------------------------------------------------- */

/* All that have come are one batch. */
static void take_words(struct accountant *accountant)
{
    accountant->failed = false; /* the monitor says again what was not kept */
    for (unsigned i = 0; i < accountant->n_words; i++) {
        const struct rg_accountant_word *word = &accountant->words[i];
        accountant->number = word->number;
        if (word->kind == RG_ACCOUNTANT_LOAD) {
            commit(accountant);
            load(accountant, word);
        } else {
            keep(accountant, word);
        }
    }
    accountant->n_words = 0;
    commit(accountant);
}

/* Takes what is there; false: there will be no more. */
static bool serve(struct accountant *accountant)
{
    gather(accountant);
    while (accountant->n_words || (accountant->n_questions && !accountant->over)) {
        take_words(accountant);
        if (accountant->n_questions)
            answer_next(accountant);
        gather(accountant);
    }
    return !accountant->over;
}

static int run(struct accountant *accountant)
{
    char why[RG_ACCOUNTS_WHY] = "";
    struct pollfd wait = {.fd = RG_ACCOUNTANT_FD, .events = POLLIN};
    bool goes_on = true;
    while (goes_on) {
        const int ready = poll(&wait, 1, 60000);
        if (ready > 0)
            goes_on = serve(accountant);
        expire(accountant);
    }
    /* the server has ended, however */
    if (accountant->store && rg_store_close_sessions(accountant->store, true, why, sizeof why) != RG_OK)
        rg_error("sessions are still open in the accounts: %s", why);
    rg_store_close(accountant->store);
    return 0;
}

/* For `remote-gpud usage`, which is its own user's: it reads as far as that may. */
static int read_only(const char *folder)
{
    static unsigned char out[RG_ANSWER_SIZE_MAX];
    static struct rg_accountant_query query;
    struct rg_store *store = NULL;
    char why[RG_ACCOUNTS_WHY] = "";
    if (rg_store_open(&store, folder, 0, why, sizeof why) != RG_OK)
        store = NULL; /* each answer says why */
    while (rg_file_read(STDIN_FILENO, &query, sizeof query)) {
        const uint64_t size = look_up(store, &query, why, out);
        if (!rg_file_write(STDOUT_FILENO, &size, sizeof size) || !rg_file_write(STDOUT_FILENO, out, size))
            break;
    }
    rg_store_close(store);
    return 0;
}

int main(int argc, char **argv)
{
    static struct rg_sandbox_policy policy;
    static struct accountant accountant;
    int64_t run_number, keep_s;
    rg_log_name("remote-gpud");
    if (argc == 3 && strcmp(argv[1], "--read") == 0)
        return read_only(argv[2]);
    if (argc != 9 || strcmp(argv[1], "--folder") != 0 || strcmp(argv[3], "--run") != 0 ||
        strcmp(argv[5], "--keep") != 0 || strcmp(argv[7], "--sandbox") != 0 ||
        rg_parse_integer(argv[4], 1, INT64_MAX, &run_number, NULL, 0) != RG_OK ||
        rg_parse_integer(argv[6], 0, INT64_MAX, &keep_s, NULL, 0) != RG_OK) {
        rg_error("accountant is a part of remote-gpud; usage: accountant --folder DIR --run N --keep SECONDS "
                 "--sandbox POLICY");
        return EXIT_FAILURE_;
    }
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    if (!rg_sandbox_begin(argv[8], &policy))
        return RG_ACCOUNTANT_CANNOT;
    accountant.folder = argv[2];
    accountant.run = (uint64_t)run_number;
    accountant.keep_s = (uint64_t)keep_s;
    return run(&accountant);
}
