/* measuring.c - connections that are measured: one user leaves room for others, and all of them for sessions. */
#include "server/daemon/sessions/list.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 32 };

static struct rg_sessions sessions;
static struct rg_who alice, bob;

static void start(void)
{
    int board_fd = -1;
    struct rg_board *board = rg_board_create(SESSIONS, &board_fd);
    cr_assert(board && rg_sessions_init(&sessions, board, "worker") == RG_OK);
    rg_sessions_allow_netperf(&sessions, "netperf");
    rg_who_user(1000, &alice);
    rg_who_user(1001, &bob);
}

/* One more, which measures, or has a GPU. */
static void add(const struct rg_who *who, const char *address, uint32_t gpus)
{
    struct rg_session_entry *entry = calloc(1, sizeof *entry);
    cr_assert(entry && sessions.n < SESSIONS);
    entry->who = *who;
    entry->info.n_devices = gpus;
    snprintf(entry->info.peer, sizeof entry->info.peer, "%s", address);
    sessions.entries[sessions.n++] = entry;
}

static bool may(const struct rg_who *who, const char *address)
{
    struct rg_monitor_answer answer = {0};
    const bool good = rg_sessions_admit_netperf(&sessions, who, address, &answer) == RG_OK;
    cr_expect(good || answer.code == RG_REFUSAL_FULL);
    return good;
}

Test(measuring, one_user_leaves_room_for_others, .init = start)
{
    for (unsigned i = 0; i < 8; i++)
        add(&alice, "unix", 1);
    for (unsigned i = 0; i < RG_NETPERF_OF_ONE_MAX; i++) {
        cr_expect(may(&alice, "unix"));
        add(&alice, "unix", 0);
    }
    cr_expect_not(may(&alice, "unix"));
    cr_expect(may(&bob, "unix"));
}

Test(measuring, so_does_one_address, .init = start)
{
    const struct rg_who nobody = {.proof = RG_PROOF_NONE};
    for (unsigned i = 0; i < RG_NETPERF_OF_ONE_MAX; i++)
        add(&nobody, "10.0.0.1:7", 0);
    cr_expect_not(may(&nobody, "10.0.0.1:8"));
    cr_expect(may(&nobody, "10.0.0.2:7"));
}

Test(measuring, many_leave_room_for_sessions, .init = start)
{
    for (unsigned i = 0; i < SESSIONS / RG_NETPERF_PART; i++) {
        struct rg_who user;
        rg_who_user(2000 + i, &user);
        cr_expect(may(&user, "unix"));
        add(&user, "unix", 0);
    }
    cr_expect_not(may(&bob, "unix"));
}
