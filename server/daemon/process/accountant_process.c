/* accountant_process.c - see accountant_process.h. */
#include "server/daemon/process/accountant_process.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "server/daemon/process/confined.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KNOWN_MS 5000 /* a start waits so long for what was used before */

uint64_t rg_accountant_wall_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* With the files of its folder, and nothing to talk to but the socket. */
static enum rg_status start_process(struct rg_accountant *accountant, int theirs, char *why, size_t why_size)
{
    char path[PATH_MAX], run[24], keep[24], *folder = accountant->folder;
    if (rg_path_library("accountant", path, sizeof path) != RG_OK)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size, "lib/remote-gpu is not beside bin");
    snprintf(run, sizeof run, "%llu", (unsigned long long)accountant->run);
    snprintf(keep, sizeof keep, "%llu", (unsigned long long)accountant->keep_s);
    char *arguments[] = {
        (char *)"accountant", (char *)"--folder", folder, (char *)"--run", run, (char *)"--keep", keep, NULL};
    const struct rg_process process = {.path = path, .arguments = arguments, .fds = {theirs}, .n_fds = 1};
    const struct rg_confined confined = {
        .program = RG_SANDBOX_ACCOUNTANT, .identity = "", .soft = true, .runtime = folder};
    return rg_confined_start(accountant->sandboxes, &confined, &process, &accountant->lease, &accountant->pid,
                             why, why_size);
}

static enum rg_status start(struct rg_accountant *accountant)
{
    char why[512] = "";
    int ends[2];
    accountant->not_before_ns = rg_now_ns() + RG_ACCOUNTANT_PAUSE_NS;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        rg_error("no socket for the accounts: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    const enum rg_status status = start_process(accountant, ends[1], why, sizeof why);
    close(ends[1]);
    if (status == RG_OK) {
        rg_accounts_attach(accountant->accounts, ends[0]);
        (void)rg_accounts_flush(accountant->accounts, rg_now_ns());
        return RG_OK;
    }
    close(ends[0]);
    accountant->pid = 0;
    rg_error("no process can keep the accounts: %s", why);
    return status;
}

/* Answers that come within this time; false: it is over, or the accountant has gone. */
static bool wait_answer(struct rg_accountant *accountant, uint64_t until_ns)
{
    const uint64_t now = rg_now_ns();
    struct pollfd wait = {.fd = rg_accounts_socket(accountant->accounts), .events = POLLIN};
    return wait.fd >= 0 && now < until_ns && poll(&wait, 1, (int)((until_ns - now) / 1000000u) + 1) > 0 &&
           rg_accounts_receive(accountant->accounts);
}

enum rg_status rg_accountant_start(struct rg_accountant *accountant, struct rg_sandboxes *sandboxes,
                                   const char *state_folder, uint64_t keep_s)
{
    const uint64_t until = rg_now_ns() + KNOWN_MS * 1000000ull;
    *accountant = (struct rg_accountant){.sandboxes = sandboxes, .keep_s = keep_s};
    if (snprintf(accountant->folder, sizeof accountant->folder, "%s/accounts", state_folder) >=
        (int)sizeof accountant->folder) {
        rg_error("the name of the state folder is too long for accounts");
        return RG_ERR_INVALID;
    }
    /* before the accountant is confined to it */
    if (mkdir(accountant->folder, 0700) != 0 && errno != EEXIST)
        rg_error("the folder %s for accounts cannot be made: %s", accountant->folder, strerror(errno));
    char whole[PATH_MAX]; /* it has another working directory */
    if (realpath(accountant->folder, whole) && strlen(whole) < sizeof accountant->folder)
        memcpy(accountant->folder, whole, strlen(whole) + 1);
    if (getrandom(&accountant->run, sizeof accountant->run, 0) != (ssize_t)sizeof accountant->run)
        accountant->run = rg_accountant_wall_ns();
    accountant->run = (accountant->run & INT64_MAX) | 1;
    accountant->accounts = rg_accounts_create();
    if (!accountant->accounts) {
        rg_error("no memory for accounts");
        return RG_ERR_NO_MEMORY;
    }
    rg_accounts_tick(accountant->accounts, rg_accountant_wall_ns());
    const enum rg_status status = start(accountant);
    while (status == RG_OK && rg_accounts_is_loading(accountant->accounts) && wait_answer(accountant, until))
        ;
    return status;
}

static void release(struct rg_accountant *accountant)
{
    rg_accounts_detach(accountant->accounts);
    rg_sandbox_release(accountant->lease);
    accountant->lease = NULL;
    accountant->pid = 0;
}

uint64_t rg_accountant_revive(struct rg_accountant *accountant)
{
    if (!accountant->accounts)
        return UINT64_MAX;
    if (accountant->pid == 0 && rg_now_ns() >= accountant->not_before_ns && start(accountant) == RG_OK)
        return UINT64_MAX;
    return accountant->pid ? UINT64_MAX : accountant->not_before_ns;
}

void rg_accountant_reap(struct rg_accountant *accountant)
{
    int end;
    if (accountant->pid == 0 || !rg_process_has_ended(accountant->pid, "the process that keeps the accounts",
                                                      "nothing is lost", &end))
        return;
    if (WIFEXITED(end) && WEXITSTATUS(end) == RG_ACCOUNTANT_CANNOT)
        accountant->not_before_ns = rg_now_ns() + RG_ACCOUNTANT_LATER_NS;
    release(accountant);
}

void rg_accountant_receive(struct rg_accountant *accountant)
{
    /* it will be reaped; until then its socket is of no use */
    if (rg_accounts_socket(accountant->accounts) >= 0 && !rg_accounts_receive(accountant->accounts))
        rg_accounts_detach(accountant->accounts);
}

void rg_accountant_stop(struct rg_accountant *accountant)
{
    int end;
    if (!accountant->accounts)
        return;
    const uint64_t until = rg_now_ns() + RG_ACCOUNTANT_LAST_MS * 1000000ull;
    do {
        (void)rg_accounts_flush(accountant->accounts,
                                UINT64_MAX); /* the socket takes more as soon as it answers */
    } while (!rg_accounts_are_saved(accountant->accounts) && wait_answer(accountant, until) &&
             !rg_accounts_are_failing(accountant->accounts));
    rg_accounts_detach(accountant->accounts); /* which is how it learns of the end */
    if (accountant->pid && !rg_process_end(accountant->pid, RG_ACCOUNTANT_LAST_MS, &end))
        rg_warn("process %d, which keeps the accounts, hangs in the kernel", (int)accountant->pid);
    rg_sandbox_release(accountant->lease);
    rg_accounts_destroy(accountant->accounts);
    *accountant = (struct rg_accountant){0};
}
