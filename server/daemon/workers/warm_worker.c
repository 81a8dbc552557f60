/* warm_worker.c - see warm_worker.h. */
#include "server/daemon/workers/warm_worker.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/workers/worker_process.h"
#include "server/handshake/warm.h"
#include "server/shares/warm_places.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- its process ----------------------------------------------------------------------------------------------- */

void rg_warm_worker_end(struct rg_warm_worker *worker)
{
    if (!worker->pid || worker->socket < 0)
        return;
    close(worker->socket);
    worker->socket = -1;
    kill(worker->pid, SIGKILL);
}

void rg_warm_worker_forget(struct rg_sessions *sessions, struct rg_warm_worker *worker)
{
    if (worker->socket >= 0)
        close(worker->socket);
    rg_sandbox_release(worker->lease);
    rg_shares_release(&sessions->shares, &worker->share, worker->number);
    *worker = (struct rg_warm_worker){.socket = -1};
}

/* A place on each device, for what it will hold, and a slot. */
static bool take_places(struct rg_sessions *sessions, struct rg_warm_worker *worker)
{
    const struct rg_session_info *info = &worker->kind->devices;
    struct rg_share_grant *grant = &worker->share.grant;
    worker->share.slot_fd = -1;
    *grant = (struct rg_share_grant){.weight = 1, .priority = RG_SHARE_PRIORITY_LOW, .overcommitted = true};
    for (uint32_t i = 0; i < info->n_devices; i++) {
        struct rg_share_device *device = &sessions->shares.devices[info->devices[i]].device;
        const uint32_t place = rg_share_device_take(device, worker->number);
        if (place == UINT32_MAX)
            break;
        grant->devices[grant->n_devices++] =
            (struct rg_share_grant_device){.ordinal = info->devices[i], .place = place};
    }
    if (grant->n_devices == info->n_devices)
        worker->share.slot = rg_share_slot_create(grant, &worker->share.slot_fd);
    if (worker->share.slot)
        return true;
    for (uint32_t i = 0; i < grant->n_devices; i++)
        rg_share_device_drop(&sessions->shares.devices[grant->devices[i].ordinal].device,
                             grant->devices[i].place, worker->number);
    return false;
}

bool rg_warm_worker_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                          struct rg_warm_worker *worker, struct rg_warm_kind *kind)
{
    struct rg_warm *warm = &sessions->warm;
    char why[512] = "no memory or descriptors";
    int ends[2] = {-1, -1};
    *worker = (struct rg_warm_worker){
        .kind = kind, .number = warm->next_number++, .started_ns = rg_now_ns(), .socket = -1};
    if (!take_places(sessions, worker)) {
        rg_debug("no warm worker: the devices have no place for it");
        return false;
    }
    enum rg_status status = RG_ERR_NO_MEMORY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        worker->socket = ends[0];
        status = rg_worker_process_warm(sessions, driver, worker, ends[1], why, sizeof why);
        close(ends[1]);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(worker - warm->workers)};
    if (status == RG_OK && epoll_ctl(warm->events, EPOLL_CTL_ADD, worker->socket, &event) == 0)
        return true;
    rg_warn("no warm worker for %s: %s", rg_who_text(&kind->who), why);
    if (worker->pid)
        rg_warm_worker_end(worker);
    else
        rg_warm_worker_forget(sessions, worker);
    return false;
}

/* What it says: that it is ready. Whatever else becomes of the socket, it is of no more use. */
static void listen_to(struct rg_warm *warm, struct rg_warm_worker *worker)
{
    struct rg_warm_ready ready;
    const enum rg_status status =
        rg_packet_receive(worker->socket, MSG_DONTWAIT, &ready, sizeof ready, NULL, 0, &(unsigned){0});
    if (status == RG_OK && ready.version == RG_WARM_VERSION) {
        worker->ready = true;
        rg_info("worker %d is warm for %s after %.2f s", (int)worker->pid, rg_who_text(&worker->kind->who),
                (double)(rg_now_ns() - worker->started_ns) / 1e9);
        return;
    }
    /* It is ending: waitpid says how. The socket stays, as nobody told it to end. */
    if (status != RG_ERR_TIMEOUT)
        (void)epoll_ctl(warm->events, EPOLL_CTL_DEL, worker->socket, NULL);
}

void rg_warm_workers_listen(struct rg_warm *warm)
{
    struct epoll_event events[8];
    const int n = epoll_wait(warm->events, events, 8, 0);
    for (int i = 0; i < n; i++) {
        struct rg_warm_worker *worker = &warm->workers[events[i].data.u32 % RG_WARM_MAX];
        if (worker->pid && worker->socket >= 0)
            listen_to(warm, worker);
    }
}

/* --- its session ------------------------------------------------------------------------------------------------- */

bool rg_warm_worker_fits(const struct rg_sessions *sessions, const struct rg_driver *driver,
                         const struct rg_warm_worker *worker, const struct rg_session_entry *entry)
{
    const struct rg_share_grant *grant = &entry->share.grant;
    const bool soft = strcmp(driver->info.kind, "soft") == 0;
    for (uint32_t i = 0; i < grant->n_devices; i++) {
        const struct rg_share_grant_device *device = &worker->share.grant.devices[i];
        const uint64_t limit = grant->devices[i].memory_limit;
        const uint64_t held =
            atomic_load(&sessions->shares.devices[device->ordinal].device.page->places[device->place].held);
        /* the software device is told its limit before it is loaded */
        if (limit && (soft || held > limit))
            return false;
    }
    return true;
}

/* Of the first `n`, the place: without a guarantee it always succeeds. */
static void return_places(struct rg_sessions *sessions, const struct rg_share_grant *places, uint32_t n,
                          uint64_t session, uint64_t number)
{
    for (uint32_t i = 0; i < n; i++) {
        struct rg_share_device *device = &sessions->shares.devices[places->devices[i].ordinal].device;
        if (!rg_warm_place_adopt(device, places->devices[i].place, session, number, 0))
            rg_error("a place of session %llu is lost", (unsigned long long)session);
    }
}

/* Makes the places of a warm worker those of a session, with the guarantees of `grant`, or none of them. */
static bool pass_places(struct rg_sessions *sessions, const struct rg_warm_worker *worker, uint64_t session,
                        const struct rg_share_grant *grant)
{
    const struct rg_share_grant *places = &worker->share.grant;
    for (uint32_t i = 0; i < places->n_devices; i++) {
        struct rg_share_device *device = &sessions->shares.devices[places->devices[i].ordinal].device;
        const uint64_t guaranteed = grant->overcommitted ? 0 : grant->devices[i].memory_limit;
        if (rg_warm_place_adopt(device, places->devices[i].place, worker->number, session, guaranteed))
            continue;
        return_places(sessions, places, i, session, worker->number);
        return false;
    }
    return true;
}

static bool send_session(const struct rg_warm_worker *worker, const struct rg_session_entry *entry,
                         const struct rg_session_files *files, int theirs, bool rdma)
{
    const int fds[RG_WARM_FDS] = {files->connection, files->hello, theirs, entry->share.slot_fd, files->tls};
    const struct rg_warm_adoption adoption = {.version = RG_WARM_VERSION,
                                              .n_fds = files->tls >= 0 ? RG_WARM_FDS : RG_WARM_KEYS,
                                              .session = entry->info.id,
                                              .rdma = rdma};
    return rg_packet_send(worker->socket, &adoption, sizeof adoption, fds, adoption.n_fds);
}

bool rg_warm_worker_adopt(struct rg_sessions *sessions, struct rg_warm_worker *worker,
                          struct rg_session_entry *entry, const struct rg_session_files *files, int theirs)
{
    const struct rg_share_grant before = entry->share.grant;
    if (!pass_places(sessions, worker, entry->info.id, &before))
        return false;
    for (uint32_t i = 0; i < before.n_devices; i++)
        entry->share.grant.devices[i].place = worker->share.grant.devices[i].place;
    rg_share_slot_set(entry->share.slot, &entry->share.grant);
    if (!send_session(worker, entry, files, theirs,
                      rg_worker_process_may_use_rdma(sessions, files->tls >= 0))) {
        /* it has just gone, or is about to: SIGCHLD says how */
        return_places(sessions, &worker->share.grant, before.n_devices, entry->info.id, worker->number);
        entry->share.grant = before;
        rg_share_slot_set(entry->share.slot, &before);
        return false;
    }
    for (uint32_t i = 0; i < before.n_devices; i++)
        rg_share_device_drop(&sessions->shares.devices[before.devices[i].ordinal].device,
                             before.devices[i].place, entry->info.id);
    entry->pid = worker->pid;
    entry->lease = worker->lease;
    worker->kind->pause_ns = 0; /* they can be relied on */
    close(worker->socket);
    rg_share_slot_close(worker->share.slot);
    *worker = (struct rg_warm_worker){.socket = -1};
    return true;
}
