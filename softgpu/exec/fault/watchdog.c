/*
 * watchdog.c - grids that run for longer than SOFTGPU_TIMEOUT allows are ended, as a GPU's watchdog ends
 * them.
 *
 * Threads that give way to others see by themselves that their grid is stopped. A loop in generated code sees
 * nothing: the threads that work on the grid are sent a signal, again and again, until each was met in
 * generated code (not in the engine or a library, where it may hold a lock), which the handler then leaves
 * for good. What is generated code is found out outside of the handler: executable memory that is not of a
 * file.
 *
 * One thread for all grids, made when the first grid is watched. The lock is held for short whiles only.
 */
#include "softgpu/exec/fault/watchdog.h"
#include "softgpu/exec/fault/fault.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NUDGE_NS   2000000ull /* between two signals to the same thread */
#define STOP_AFTER 10u        /* signals without effect before threads that switch are told to stop */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sg_grid *grids;
    bool running;
} watchdog = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    uintptr_t first, end;
} code_ranges[SG_CODE_RANGES];
static _Atomic unsigned n_code_ranges;
static _Atomic bool acts;

bool sg_is_generated_code(uintptr_t address)
{
    unsigned count = atomic_load(&n_code_ranges);
    for (unsigned i = 0; i < count; i++)
        if (address >= code_ranges[i].first && address < code_ranges[i].end)
            return true;
    return false;
}

bool sg_watchdog_acts(void)
{
    return atomic_load(&acts);
}

/* While grids are being ended no other grid's code may come into what is read here; it would be met later. */
static void find_generated_code(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], rights[8];
    unsigned long first, end;
    unsigned count = 0;
    if (maps == NULL)
        return;
    atomic_store(&n_code_ranges, 0);
    while (count < SG_CODE_RANGES && fgets(line, sizeof(line), maps) != NULL) {
        int at = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &first, &end, rights, &at) < 3 || rights[2] != 'x')
            continue;
        if (at == 0 || line[at] == '\0' || line[at] == '\n') {
            code_ranges[count].first = first;
            code_ranges[count++].end = end;
        }
    }
    fclose(maps);
    atomic_store(&n_code_ranges, count);
}

static uint64_t timeout_ns(void)
{
    static _Atomic uint64_t known = UINT64_MAX;
    uint64_t value = atomic_load_explicit(&known, memory_order_relaxed);
    if (value != UINT64_MAX)
        return value;
    const char *text = secure_getenv("SOFTGPU_TIMEOUT");
    value = 0;
    if (text != NULL && *text != '\0') {
        char *end;
        errno = 0;
        double seconds = rg_parse_double(text, &end);
        if (errno == 0 && *end == '\0' && seconds >= 0 && seconds < 1e9)
            value = (uint64_t)(seconds * 1e9);
        else
            rg_warn("SOFTGPU_TIMEOUT: \"%s\" is not a number of seconds; kernels may run for ever", text);
    }
    atomic_store_explicit(&known, value, memory_order_relaxed);
    return value;
}

bool sg_exec_has_timeout(void)
{
    return timeout_ns() != 0;
}

/* Nudges the threads that work on a grid whose time is over. Under the lock. */
static void end_grid(struct sg_grid *grid)
{
    if (grid->nudges == 0)
        find_generated_code();
    atomic_store(&acts, true);
    atomic_store(&grid->timed_out, true);
    for (struct sg_slot *slot = grid->watched_slots; slot != NULL; slot = slot->next_watched)
        pthread_kill(slot->os_thread, SIGILL);
    if (++grid->nudges == STOP_AFTER)
        sg_grid_fault(grid, SG_FAULT_TIMEOUT, NULL, NULL, 0);
}

static void *watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&watchdog.lock);
    for (;;) {
        uint64_t now = rg_now_ns(), next = UINT64_MAX;
        for (struct sg_grid *grid = watchdog.grids; grid != NULL; grid = grid->next_watched) {
            if (grid->deadline <= now) {
                end_grid(grid);
                grid->deadline = now + NUDGE_NS;
            }
            next = grid->deadline < next ? grid->deadline : next;
        }
        if (next == UINT64_MAX) {
            pthread_cond_wait(&watchdog.changed, &watchdog.lock);
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};
        pthread_cond_clockwait(&watchdog.changed, &watchdog.lock, CLOCK_MONOTONIC, &until);
    }
    return NULL;
}

static bool start(void)
{
    if (watchdog.running)
        return true;
    watchdog.running = rg_thread_start("softgpu-watch", watch, NULL);
    if (!watchdog.running)
        rg_warn("SOFTGPU_TIMEOUT: no thread to watch kernels with");
    return watchdog.running;
}

void sg_watch_grid(struct sg_grid *grid)
{
    uint64_t limit = timeout_ns();
    if (limit == 0)
        return;
    pthread_mutex_lock(&watchdog.lock);
    if (start()) {
        grid->watched = true;
        grid->deadline = rg_now_ns() + limit;
        grid->next_watched = watchdog.grids;
        watchdog.grids = grid;
        pthread_cond_signal(&watchdog.changed);
    }
    pthread_mutex_unlock(&watchdog.lock);
}

void sg_unwatch_grid(struct sg_grid *grid)
{
    if (!grid->watched)
        return;
    RG_SCOPED_LOCK(&watchdog.lock);
    struct sg_grid **at = &watchdog.grids;
    while (*at != grid)
        at = &(*at)->next_watched;
    *at = grid->next_watched;
}

void sg_watch_slot(struct sg_slot *slot, struct sg_grid *grid)
{
    if (!grid->watched)
        return;
    RG_SCOPED_LOCK(&watchdog.lock);
    slot->os_thread = pthread_self();
    slot->next_watched = grid->watched_slots;
    grid->watched_slots = slot;
}

void sg_unwatch_slot(struct sg_slot *slot, struct sg_grid *grid)
{
    if (!grid->watched)
        return;
    RG_SCOPED_LOCK(&watchdog.lock);
    struct sg_slot **at = &grid->watched_slots;
    while (*at != slot)
        at = &(*at)->next_watched;
    *at = slot->next_watched;
}
