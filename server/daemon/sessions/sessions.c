/*
 * sessions.c - the list of sessions: making it, finding one, having its worker do something, and what the board shows; see sessions.h.
 * How sessions begin is in beginning.c, what comes to them in connections.c, how they end in ending.c.
 */
#include "server/daemon/sessions/sessions.h"

#include "server/daemon/sessions/list.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum rg_status rg_sessions_init(struct rg_sessions *sessions, struct rg_board *board, const char *worker)
{
    *sessions =
        (struct rg_sessions){.board = board, .max = board->max_sessions, .next_id = 1, .worker = worker};
    sessions->gauges.began_unix = (uint64_t)time(NULL);
    sessions->entries = calloc(sessions->max, sizeof sessions->entries[0]);
    return sessions->entries ? RG_OK : RG_ERR_NO_MEMORY;
}

void rg_sessions_fini(struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        free(sessions->entries[i]);
    free(sessions->entries);
    *sessions = (struct rg_sessions){0};
}

void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path)
{
    snprintf(sessions->netperf, sizeof sessions->netperf, "%s", path);
}

struct rg_session_entry *rg_sessions_find(const struct rg_sessions *sessions, uint64_t id)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->info.id == id)
            return sessions->entries[i];
    return NULL;
}

bool rg_sessions_belongs(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who)
{
    const struct rg_session_entry *entry = rg_sessions_find(sessions, id);
    return entry && !entry->kill_ns && rg_who_is_same(&entry->who, who);
}

uint64_t rg_sessions_lease(const struct rg_sessions *sessions, uint64_t id, const struct rg_who *who)
{
    return who->proof != RG_PROOF_NONE && rg_sessions_belongs(sessions, id, who)
               ? rg_sessions_find(sessions, id)->pool_lease
               : 0;
}

/* --- suspension ------------------------------------------------------------------------------------------ */

const struct rg_share_slot *rg_sessions_slot(const struct rg_sessions *sessions, uint64_t id)
{
    const struct rg_session_entry *entry = rg_sessions_find(sessions, id);
    return entry ? entry->share.slot : NULL;
}

bool rg_sessions_suspend(const struct rg_sessions *sessions, uint64_t id, enum rg_suspend_command command)
{
    const struct rg_session_entry *entry = rg_sessions_find(sessions, id);
    const union sigval value = {.sival_int = (int)command};
    /* A worker that has attached its share waits for the signal, which would end it before. */
    return entry && entry->share.slot &&
           atomic_load(&entry->share.slot->usage.state) != (uint32_t)RG_SHARE_UNKNOWN &&
           sigqueue(entry->pid, RG_SUSPEND_SIGNAL, value) == 0;
}

uint32_t rg_sessions_of_lease(const struct rg_sessions *sessions, uint64_t lease)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sessions->n; i++)
        n += sessions->entries[i]->pool_lease == lease;
    return n;
}

void rg_sessions_end_waiting(struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++) {
        const struct rg_session_entry *entry = sessions->entries[i];
        if (entry->share.slot && atomic_load(&entry->share.slot->usage.waits))
            kill(entry->pid, SIGTERM);
    }
}

void rg_sessions_signal(struct rg_sessions *sessions, int signal)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        kill(sessions->entries[i]->pid, signal);
}

/* --- on the board --------------------------------------------------------------------------------------- */

void rg_sessions_show(struct rg_sessions *sessions, uint32_t place)
{
    struct rg_board *board = sessions->board;
    rg_board_begin(board);
    if (place < sessions->n)
        board->sessions[place] = sessions->entries[place]->info;
    board->n_sessions = sessions->n;
    rg_board_end(board);
}

void rg_sessions_looked(struct rg_sessions *sessions, const struct rg_driver *driver)
{
    for (uint32_t i = 0; i < sessions->shares.n_devices && i < driver->n_devices; i++) {
        sessions->looked[i].free = driver->devices[i].memory_free;
        sessions->looked[i].held = rg_share_held_by_all(&sessions->shares.devices[i].device);
    }
}

/*
 * What is free of a device now: what was when it was looked at, and what sessions have taken and given back since. Of the software
 * device, of which each process has its own, only sessions tell what is used: the look has seen what the machine has left.
 */
static uint64_t free_now(const struct rg_sessions *sessions, uint32_t i, uint64_t total, bool soft)
{
    const uint64_t held = rg_share_held_by_all(&sessions->shares.devices[i].device);
    const uint64_t left = held < total ? total - held : 0, before = sessions->looked[i].held;
    uint64_t free = sessions->looked[i].free;
    if (soft)
        return left < free ? left : free;
    if (held > before)
        free = held - before < free ? free - (held - before) : 0;
    else
        free += before - held;
    return free < left ? free : left;
}

static void show_device(struct rg_sessions *sessions, uint32_t i)
{
    struct rg_driver *driver = &sessions->board->driver;
    struct rg_device_info *device = &driver->devices[i];
    device->memory_guaranteed = rg_shares_promised(&sessions->shares, i);
    device->warm_workers = rg_warm_of_device(sessions, i, &device->memory_warm);
    if (device->memory_free_known)
        device->memory_free =
            free_now(sessions, i, device->memory_total, strcmp(driver->info.kind, "soft") == 0);
}

void rg_sessions_show_usage(struct rg_sessions *sessions)
{
    rg_board_begin(sessions->board);
    for (uint32_t i = 0; i < sessions->n; i++) {
        struct rg_session_entry *entry = sessions->entries[i];
        if (!entry->share.slot)
            continue;
        rg_share_slot_show(entry->share.slot, &entry->share.grant, &entry->info);
        sessions->board->sessions[i] = entry->info;
    }
    for (uint32_t i = 0; i < sessions->shares.n_devices; i++)
        show_device(sessions, i);
    rg_board_end(sessions->board);
}
