/* leaving.c - workers that say that they leave: others wait for what these have, and not for ever. */
#include "common/base/clock.h"
#include "server/daemon/sessions/list.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct rg_sessions sessions;
static struct rg_session_entry *entry;

/* A session with GPU 1. */
static void start(void)
{
    const struct rg_share_grant grant = {.weight = 1, .n_devices = 1};
    int board_fd = -1;
    struct rg_board *board = rg_board_create(2, &board_fd);
    cr_assert(board && rg_sessions_init(&sessions, board, "worker") == RG_OK);
    entry = calloc(1, sizeof *entry);
    entry->info = (struct rg_session_info){.id = 7, .n_devices = 1, .devices = {1}};
    entry->share.grant = grant;
    entry->share.slot = rg_share_slot_create(&grant, &entry->share.slot_fd);
    cr_assert_not_null(entry->share.slot);
    sessions.entries[sessions.n++] = entry;
}

Test(leaving, who_wants_another_gpu_waits_for_nobody, .init = start)
{
    const struct rg_session_info same = {.n_devices = 2, .devices = {0, 1}},
                                 other = {.n_devices = 1, .devices = {0}};
    cr_expect(!rg_sessions_any_leaves(&sessions, NULL));
    atomic_store(&entry->share.slot->usage.leaves, 1);
    cr_expect(rg_sessions_any_leaves(&sessions, NULL));
    cr_expect(rg_sessions_any_leaves(&sessions, &same));
    cr_expect(!rg_sessions_any_leaves(&sessions, &other));
}

Test(leaving, a_worker_that_says_so_for_ever_is_not_believed, .init = start)
{
    atomic_store(&entry->share.slot->usage.leaves, 1);
    cr_expect(rg_sessions_any_leaves(&sessions, NULL));
    entry->leaves_ns = rg_now_ns() - RG_SESSION_LEAVES_NS;
    cr_expect(!rg_sessions_any_leaves(&sessions, NULL));
    atomic_store(&entry->share.slot->usage.leaves, 0); /* which begins nothing anew */
    cr_expect(!rg_sessions_any_leaves(&sessions, NULL));
    atomic_store(&entry->share.slot->usage.leaves, 1);
    cr_expect(!rg_sessions_any_leaves(&sessions, NULL));
}
