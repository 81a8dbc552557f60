/* used_up.c - programs whose GPU hours are used up are told once, and not before their worker can hear it. */
#include "server/daemon/grant/quotas.h"
#include "server/daemon/sessions/sessions.h"
#include "server/handshake/end_reason.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct rg_sessions sessions;
static struct rg_session_entry *entry;
static sigset_t signals;

/* A session of somebody who may use nothing, whose worker is this process. */
static void start(void)
{
    static const char rules[] = "{\"default\":{\"quota\":{\"gpu-hours-day\":0}},"
                                "\"when-used-up\":{\"action\":\"end\",\"grace\":\"1h\"}}";
    const struct rg_share_grant grant = {.weight = 1, .n_devices = 1};
    const struct rg_accountant_session facts = {.owner = {.kind = RG_USAGE_LOCAL, .user = "uid:1000"}};
    char why[512] = "";
    int board_fd = -1;
    struct rg_board *board = rg_board_create(2, &board_fd);
    cr_assert(board && rg_sessions_init(&sessions, board, "worker") == RG_OK);
    rg_quotas_init(true);
    cr_assert_eq(rg_share_rules_parse(rules, sizeof rules - 1, &sessions.shares.rules, why, sizeof why),
                 RG_OK, "%s", why);
    sessions.accounts = rg_accounts_create();
    entry = calloc(1, sizeof *entry);
    entry->info.id = 7;
    entry->pid = getpid();
    entry->owner = facts.owner;
    entry->share.grant = grant;
    entry->share.slot = rg_share_slot_create(&grant, &entry->share.slot_fd);
    entry->account = rg_accounts_begin(sessions.accounts, &facts, 1, 1);
    cr_assert(entry->share.slot && entry->account);
    sessions.entries[sessions.n++] = entry;
    sigemptyset(&signals);
    sigaddset(&signals, RG_SESSION_USED_UP_SIGNAL);
}

/* What the worker is told: seconds until the end; -1: nothing. */
static int told(void)
{
    siginfo_t info;
    return sigtimedwait(&signals, &info, &(struct timespec){0}) > 0 ? info.si_value.sival_int : -1;
}

Test(used_up, a_worker_that_has_just_been_started_is_told_when_it_can_hear_it, .init = start)
{
    rg_sessions_measure(&sessions); /* signals are not blocked there yet, and are nothing to it */
    cr_assert_neq(entry->used_up_ns, 0);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    cr_expect_eq(told(), -1);
    atomic_store(&entry->share.slot->usage.state, (uint32_t)RG_SHARE_IDLE);
    rg_sessions_measure(&sessions);
    const int seconds = told();
    cr_expect(seconds > 3000 && seconds <= 3601, "%d s", seconds);
    rg_sessions_measure(&sessions);
    cr_expect_eq(told(), -1, "once");
    cr_expect_eq(entry->kill_ns, 0);
}
