/*
 * warm.c - which workers are warm: the kinds of sessions that were seen, and how many workers each is to have (see warm.h). What is done
 * with one worker's process is in warm_worker.c.
 */
#include "server/daemon/workers/warm.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "server/daemon/process/process.h"
#include "server/daemon/sessions/sessions.h"
#include "server/daemon/workers/warm_worker.h"
#include "server/handshake/warm.h"
#include "server/shares/warm_places.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND      1000000000ull
#define DELAY_NS    100000000ull /* after a session has begun: what it does at first comes first */
#define PAUSE_NS    SECOND       /* after the first failure */
#define PAUSE_MOST  (300 * SECOND)
#define PRESSURE_NS (30 * SECOND) /* after a session has needed the memory */
#define READY_NS    (120 * SECOND)

bool rg_warm_most(const char *text, const struct rg_driver *driver, uint32_t *out)
{
    int64_t number = 0;
    if (strcmp(text, "auto") == 0)
        number = strcmp(driver->info.kind, "nvidia") == 0 ? RG_WARM_AUTO : 0;
    else if (rg_parse_integer(text, 0, RG_WARM_MAX, &number, NULL, 0) != RG_OK)
        return false;
    *out = (uint32_t)number;
    return true;
}

enum rg_status rg_warm_open(struct rg_warm *warm, uint32_t most, uint64_t keep_ns)
{
    *warm = (struct rg_warm){.most = most, .keep_ns = keep_ns, .events = -1, .next_number = RG_WARM_NUMBER};
    if (most && (warm->events = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return RG_ERR_NO_MEMORY;
    return RG_OK;
}

int rg_warm_events(const struct rg_warm *warm)
{
    return warm->most ? warm->events : -1;
}

/* --- kinds ------------------------------------------------------------------------------------------------- */

static bool has_devices(const struct rg_session_info *a, const struct rg_session_info *b)
{
    return a->n_devices == b->n_devices &&
           memcmp(a->devices, b->devices, a->n_devices * sizeof a->devices[0]) == 0;
}

static struct rg_warm_kind *find_kind(struct rg_warm *warm, const char *identity,
                                      const struct rg_session_info *info, const struct rg_shape *shape)
{
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        struct rg_warm_kind *kind = &warm->kinds[i];
        if (*identity && strcmp(kind->identity, identity) == 0 && has_devices(&kind->devices, info) &&
            rg_shape_is(&kind->shape, shape))
            return kind;
    }
    return NULL;
}

static bool is_current(const struct rg_warm *warm, const struct rg_warm_kind *kind, uint64_t now)
{
    return kind->identity[0] && now - kind->seen_ns < warm->keep_ns && !rg_who_has_expired(&kind->who);
}

/* How many workers it is to have: they are dealt out in turns, to those that were seen last first. */
static uint32_t wanted_of(const struct rg_warm *warm, const struct rg_warm_kind *kind, uint64_t now)
{
    uint32_t n = 0, later = 0;
    if (!is_current(warm, kind, now))
        return 0;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        const struct rg_warm_kind *other = &warm->kinds[i];
        const bool current = is_current(warm, other, now);
        n += current;
        later +=
            current && (other->seen_ns > kind->seen_ns || (other->seen_ns == kind->seen_ns && other < kind));
    }
    return warm->most / n + (later < warm->most % n);
}

static uint32_t workers_of(const struct rg_warm *warm, const struct rg_warm_kind *kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++)
        n += warm->workers[i].kind == kind && warm->workers[i].pid && warm->workers[i].socket >= 0;
    return n;
}

/* --- workers ----------------------------------------------------------------------------------------------- */

static void end_kind(struct rg_warm *warm, struct rg_warm_kind *kind)
{
    for (uint32_t i = 0; i < RG_WARM_MAX; i++)
        if (warm->workers[i].kind == kind)
            rg_warm_worker_end(&warm->workers[i]);
}

static void pause_kind(struct rg_warm_kind *kind, uint64_t now)
{
    kind->pause_ns = !kind->pause_ns                   ? PAUSE_NS
                     : kind->pause_ns * 2 < PAUSE_MOST ? kind->pause_ns * 2
                                                       : PAUSE_MOST;
    kind->from_ns = now + kind->pause_ns;
}

bool rg_warm_make_room(struct rg_sessions *sessions, const struct rg_session_info *info)
{
    struct rg_warm *warm = &sessions->warm;
    const uint64_t from = rg_now_ns() + PRESSURE_NS;
    bool any = false;
    for (uint32_t i = 0; i < RG_WARM_MAX && warm->most; i++)
        if (rg_sessions_meet(&warm->kinds[i].devices, info) && warm->kinds[i].from_ns < from)
            warm->kinds[i].from_ns = from;
    for (uint32_t i = 0; i < RG_WARM_MAX && warm->most; i++) {
        struct rg_warm_worker *worker = &warm->workers[i];
        if (!worker->pid || !rg_sessions_meet(&worker->kind->devices, info))
            continue;
        any = true;
        rg_warm_worker_end(worker);
    }
    return any;
}

/* A worker that nobody told to end has ended. */
static void see_to_failure(const struct rg_warm_worker *worker, int end)
{
    const uint64_t now = rg_now_ns();
    pause_kind(worker->kind, now);
    if (WIFSIGNALED(end))
        rg_warn("warm worker %d was killed by signal %d (%s); the next is started in %.0f s",
                (int)worker->pid, WTERMSIG(end), strsignal(WTERMSIG(end)),
                (double)worker->kind->pause_ns / 1e9);
    else
        rg_warn("warm worker %d has ended with status %d; the next is started in %.0f s", (int)worker->pid,
                WEXITSTATUS(end), (double)worker->kind->pause_ns / 1e9);
}

void rg_warm_reap(struct rg_sessions *sessions)
{
    struct rg_warm *warm = &sessions->warm;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        struct rg_warm_worker *worker = &warm->workers[i];
        int end = 0;
        const pid_t got = worker->pid ? waitpid(worker->pid, &end, WNOHANG) : 0;
        if (!worker->pid || got == 0 || (got < 0 && errno == EINTR))
            continue;
        const bool gave_way = WIFEXITED(end) && WEXITSTATUS(end) == RG_WARM_GAVE_WAY;
        const struct rg_session_info devices = worker->kind->devices;
        if (gave_way)
            rg_info("warm worker %d has left its memory to a session", (int)worker->pid);
        else if (worker->socket >= 0)
            see_to_failure(worker, end);
        rg_warm_worker_forget(sessions, worker);
        if (gave_way) /* those that are only about to take some leave as well */
            (void)rg_warm_make_room(sessions, &devices);
    }
}

/* --- as many as are wanted ------------------------------------------------------------------------------------- */

/* Whether a session has one of the devices alone. */
static bool is_alone(const struct rg_sessions *sessions, const struct rg_session_info *info)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->share.grant.exclusive &&
            rg_sessions_meet(&sessions->entries[i]->info, info))
            return true;
    return false;
}

/* The kind that lacks a worker and was seen last; *due: when another may. */
static struct rg_warm_kind *find_lacking(struct rg_sessions *sessions, uint64_t now, uint64_t *due)
{
    struct rg_warm *warm = &sessions->warm;
    struct rg_warm_kind *best = NULL;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        struct rg_warm_kind *kind = &warm->kinds[i];
        if (workers_of(warm, kind) >= wanted_of(warm, kind, now) || is_alone(sessions, &kind->devices))
            continue;
        const uint64_t from =
            kind->from_ns > warm->seen_ns + DELAY_NS ? kind->from_ns : warm->seen_ns + DELAY_NS;
        if (from > now)
            *due = from < *due ? from : *due;
        else if (!best || kind->seen_ns > best->seen_ns)
            best = kind;
    }
    return best;
}

/* One is started at a time. False: one is being. */
static bool none_begins(const struct rg_warm *warm, uint64_t now, uint64_t *due)
{
    bool begins = false;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        const struct rg_warm_worker *worker = &warm->workers[i];
        if (!worker->pid || worker->socket < 0 || worker->ready)
            continue;
        begins = true;
        if (now < worker->started_ns + READY_NS) {
            *due = worker->started_ns + READY_NS < *due ? worker->started_ns + READY_NS : *due;
        } else {
            rg_warn("warm worker %d was not ready in time", (int)worker->pid);
            kill(worker->pid, SIGKILL); /* as a failure: its socket stays open */
        }
    }
    return !begins;
}

/* Those beyond what their kinds are to have, the youngest first. */
static void end_superfluous(struct rg_sessions *sessions, uint64_t now, bool closed, uint64_t *due)
{
    struct rg_warm *warm = &sessions->warm;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        struct rg_warm_kind *kind = &warm->kinds[i];
        const uint32_t wanted = closed || is_alone(sessions, &kind->devices) ? 0 : wanted_of(warm, kind, now);
        for (uint32_t n = workers_of(warm, kind), j = 0; n > wanted && j < RG_WARM_MAX; j++)
            if (warm->workers[j].kind == kind && warm->workers[j].pid && warm->workers[j].socket >= 0) {
                rg_warm_worker_end(&warm->workers[j]);
                n--;
            }
        const uint64_t until = kind->seen_ns + warm->keep_ns;
        if (workers_of(warm, kind) && until < *due)
            *due = until;
    }
}

static struct rg_warm_worker *free_place(struct rg_warm *warm)
{
    uint32_t n = 0;
    struct rg_warm_worker *found = NULL;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        n += warm->workers[i].pid != 0;
        if (!warm->workers[i].pid)
            found = &warm->workers[i];
    }
    return n < warm->most ? found : NULL; /* those that are still ending hold their memory */
}

uint64_t rg_warm_continue(struct rg_sessions *sessions, const struct rg_driver *driver, bool closed)
{
    struct rg_warm *warm = &sessions->warm;
    const uint64_t now = rg_now_ns();
    uint64_t due = UINT64_MAX;
    if (!warm->most)
        return due;
    rg_warm_workers_listen(warm);
    end_superfluous(sessions, now, closed, &due);
    if (closed || !none_begins(warm, now, &due))
        return due;
    struct rg_warm_kind *kind = find_lacking(sessions, now, &due);
    struct rg_warm_worker *worker = kind ? free_place(warm) : NULL;
    if (worker) {
        if (!rg_warm_worker_start(sessions, driver, worker, kind))
            pause_kind(kind, rg_now_ns());
        (void)none_begins(warm, now, &due);
        due = kind->from_ns > now && kind->from_ns < due ? kind->from_ns : due;
    }
    return due;
}

/* --- sessions ---------------------------------------------------------------------------------------------- */

static struct rg_warm_worker *find_worker(struct rg_sessions *sessions, const struct rg_driver *driver,
                                          const struct rg_session_entry *entry,
                                          const struct rg_warm_kind *kind)
{
    struct rg_warm_worker *best = NULL;
    for (uint32_t i = 0; i < RG_WARM_MAX; i++) {
        struct rg_warm_worker *worker = &sessions->warm.workers[i];
        if (worker->pid && worker->socket >= 0 && worker->kind == kind &&
            (!best || worker->started_ns < best->started_ns) &&
            rg_warm_worker_fits(sessions, driver, worker, entry))
            best = worker;
    }
    return best;
}

bool rg_warm_adopt(struct rg_sessions *sessions, const struct rg_driver *driver,
                   struct rg_session_entry *entry, const char *identity, const struct rg_shape *shape,
                   const struct rg_session_files *files, int theirs)
{
    const struct rg_warm_kind *kind = find_kind(&sessions->warm, identity, &entry->info, shape);
    struct rg_warm_worker *worker = kind ? find_worker(sessions, driver, entry, kind) : NULL;
    return worker && rg_warm_worker_adopt(sessions, worker, entry, files, theirs);
}

void rg_warm_begun(struct rg_sessions *sessions, const struct rg_session_entry *entry, const char *identity,
                   const struct rg_shape *shape, uint64_t contexts)
{
    struct rg_warm *warm = &sessions->warm;
    if (!warm->most || entry->info.n_devices == 0)
        return;
    struct rg_warm_kind *kind = find_kind(warm, identity, &entry->info, shape), *oldest = &warm->kinds[0];
    for (uint32_t i = 0; !kind && i < RG_WARM_MAX; i++)
        if (warm->kinds[i].seen_ns < oldest->seen_ns && !workers_of(warm, &warm->kinds[i]))
            oldest = &warm->kinds[i];
    if (!kind) {
        kind = oldest;
        end_kind(warm, kind);
        *kind = (struct rg_warm_kind){.shape = *shape};
        snprintf(kind->identity, sizeof kind->identity, "%s", identity);
        kind->devices.n_devices = entry->info.n_devices;
        memcpy(kind->devices.devices, entry->info.devices, sizeof kind->devices.devices);
    }
    kind->who = entry->who;
    kind->contexts = contexts ? contexts : 1; /* of the first device: what nearly every program uses */
    kind->seen_ns = warm->seen_ns = rg_now_ns();
}

void rg_warm_ended(struct rg_sessions *sessions, const char *identity)
{
    for (uint32_t i = 0; i < RG_WARM_MAX && sessions->warm.most; i++)
        if (*identity && strcmp(sessions->warm.kinds[i].identity, identity) == 0)
            sessions->warm.kinds[i].seen_ns = rg_now_ns();
}

void rg_warm_recheck(struct rg_sessions *sessions, const struct rg_who_policy *policy)
{
    char why[512];
    for (uint32_t i = 0; i < RG_WARM_MAX && sessions->warm.most; i++) {
        struct rg_warm_kind *kind = &sessions->warm.kinds[i];
        if (!kind->identity[0] || rg_who_may_stay(policy, &kind->who, why, sizeof why))
            continue;
        end_kind(&sessions->warm, kind);
        kind->identity[0] = 0;
    }
}

uint32_t rg_warm_of_device(const struct rg_sessions *sessions, uint32_t device, uint64_t *held)
{
    const struct rg_shares_device *of = &sessions->shares.devices[device];
    uint32_t n = 0;
    *held = 0;
    for (uint32_t i = 0; i < RG_WARM_MAX && sessions->warm.most; i++) {
        const struct rg_warm_worker *worker = &sessions->warm.workers[i];
        for (uint32_t j = 0; worker->pid && worker->ready && j < worker->share.grant.n_devices; j++) {
            const struct rg_share_grant_device *at = &worker->share.grant.devices[j];
            if (at->ordinal != device)
                continue;
            const uint64_t bytes = atomic_load(&of->device.page->places[at->place].held);
            *held += bytes < of->total ? bytes : of->total; /* whatever stands on the page */
            n++;
        }
    }
    return n;
}

void rg_warm_close(struct rg_sessions *sessions)
{
    struct rg_warm *warm = &sessions->warm;
    for (uint32_t i = 0; i < RG_WARM_MAX && warm->most; i++)
        rg_warm_worker_end(&warm->workers[i]);
    for (uint32_t i = 0; i < RG_WARM_MAX && warm->most; i++) {
        int end;
        if (!warm->workers[i].pid)
            continue;
        if (!rg_process_end(warm->workers[i].pid, 0, &end))
            rg_warn("warm worker %d hangs in the kernel", (int)warm->workers[i].pid);
        rg_warm_worker_forget(sessions, &warm->workers[i]);
    }
    if (warm->most)
        close(warm->events);
    warm->most = 0;
}
