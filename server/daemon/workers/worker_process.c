/*
 * worker_process.c - see worker_process.h.
 *
 * A worker is started as server/main.c says. Where it has a session from its beginning, descriptor 3 is the client's connection,
 * 4 a file with the packed ClientHello, which the worker answers, 5 (--hand-fd) a socket by which it gets connections that the client
 * opens later (server/handshake/handed.h), 6 (--share-fd) the session's slot (server/shares/slot.h), and behind it come the pages of
 * its devices (server/shares/device_page.h); by TLS the last has the connection's keys (--tls-fd). A warm one has as 3 a socket by
 * which it gets its session, and the slot as 4 (server/handshake/warm.h).
 *
 * --devices are the server's ordinals. If they are not all of them in their order, CUDA_VISIBLE_DEVICES names them, so that the
 * worker sees them, and no others, as 0, 1, …. Where the session shares by MPS, its environment has the folder of the control daemon,
 * and its part. The worker gets SIGTERM when the daemon dies, however it dies.
 */
#include "server/daemon/workers/worker_process.h"

#include "common/base/addresses.h"
#include "common/base/cleanup.h"
#include "common/base/uuid_text.h"
#include "common/cuda/mps.h"
#include "server/daemon/process/confined.h"
#include "server/handshake/warm.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void rg_worker_process_devices(const struct rg_session_info *info, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < info->n_devices && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%u", i ? "," : "", info->devices[i]);
}

/*
 * Whether the driver, left alone, would show the worker these devices and no others. Then nothing is set: a
 * driver may know devices by names other than this one (parts of a GPU), and there is no need to find out.
 */
static bool is_all_in_order(const struct rg_driver *driver, const struct rg_session_info *info)
{
    for (uint32_t i = 0; i < info->n_devices; i++)
        if (info->devices[i] != i || driver->devices[info->devices[i]].mig)
            return false;
    return info->n_devices == driver->n_devices;
}

/* "CUDA_VISIBLE_DEVICES=GPU-…,GPU-…"; of an instance "MIG-…" */
static void format_visible(const struct rg_driver *driver, const struct rg_session_info *info, char *out,
                           size_t size)
{
    size_t used = (size_t)snprintf(out, size, "CUDA_VISIBLE_DEVICES=");
    for (uint32_t i = 0; i < info->n_devices && used < size; i++) {
        const struct rg_device_info *device = &driver->devices[info->devices[i]];
        char text[RG_UUID_TEXT];
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "," : "",
                                 rg_uuid_text(device->uuid, device->mig, text, sizeof text));
    }
}

/* The number of a GPU's device file, which NVIDIA's driver tells by PCI function; 64: it does not. */
static unsigned device_number(const struct rg_device_info *device)
{
    char path[96], line[128];
    unsigned number = 64;
    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%.40s/information", device->pci);
    for (char *at = path; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    FILE *file = fopen(path, "re");
    while (file && number == 64 && fgets(line, sizeof line, file))
        if (sscanf(line, "Device Minor: %u", &number) != 1 || number > 64)
            number = 64;
    if (file)
        fclose(file);
    return number;
}

/*
 * The device files of these GPUs. All of them where they are not known, as on the software device, which has none. Asked once
 * for each, as the numbers stay the same and a driver in trouble may let whoever asks wait.
 */
static uint64_t device_files(struct rg_sessions *sessions, const struct rg_driver *driver,
                             const struct rg_session_info *info)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < info->n_devices; i++) {
        uint64_t *known = &sessions->device_files[info->devices[i]];
        const unsigned number = *known ? 64 : device_number(&driver->devices[info->devices[i]]);
        if (number < 64)
            *known = 1ull << number;
        if (!*known)
            return UINT64_MAX;
        found |= *known;
    }
    return found;
}

bool rg_worker_process_may_use_rdma(const struct rg_sessions *sessions, bool encrypted)
{
    return sessions->rdma && (!encrypted || sessions->encrypt_control);
}

/* A process that answers measurements; it needs no driver. */
static enum rg_status start_netperf(const struct rg_sessions *sessions, const struct rg_session_files *files,
                                    const char *identity, const char *id, struct rg_sandbox_lease **lease,
                                    pid_t *pid, char *why, size_t why_size)
{
    const bool tls = files->tls >= 0;
    char rails[RG_DAEMON_RAILS_TEXT];
    const bool tells = tls && rg_daemon_rails_list(&sessions->rails, rails, sizeof rails);
    const char *arguments[] = {"netperf",
                               "--fd",
                               "3",
                               "--hello-fd",
                               "4",
                               "--session",
                               id,
                               "--rdma",
                               rg_worker_process_may_use_rdma(sessions, tls) ? "1" : "0",
                               tls ? "--tls-fd" : NULL,
                               "5",
                               tells ? "--rails" : NULL,
                               rails,
                               NULL};
    struct rg_process process = {
        .path = sessions->netperf,
        .arguments = (char *const *)(uintptr_t)arguments,
        .fds = {files->connection, files->hello, files->tls},
        .n_fds = tls ? 3 : 2,
        .death_signal = SIGTERM,
    };
    const struct rg_confined confined = {.program = RG_SANDBOX_NETPERF, .identity = identity};
    return rg_confined_start(sessions->sandboxes, &confined, &process, lease, pid, why, why_size);
}

/* What the command lines of all workers have in common. */
struct command_line {
    const char *arguments[32]; /* ends with NULL */
    size_t n;
    char devices[RG_DEVICES_MAX * 4], id[24], max[24], grace[24], stack[24],
        visible[64 + RG_DEVICES_MAX * 48], percent[64], /* of MPS */
        rails[RG_DAEMON_RAILS_TEXT];
};

static void add_argument(struct command_line *line, const char *name, const char *value)
{
    line->arguments[line->n++] = name;
    line->arguments[line->n++] = value;
    line->arguments[line->n] = NULL;
}

static void begin_line(struct command_line *line, const struct rg_sessions *sessions,
                       const struct rg_driver *driver, const struct rg_session_info *info, uint64_t id)
{
    struct rlimit own = {.rlim_cur = RLIM_INFINITY};
    rg_worker_process_devices(info, line->devices, sizeof line->devices);
    format_visible(driver, info, line->visible, sizeof line->visible);
    snprintf(line->id, sizeof line->id, "%llu", (unsigned long long)id);
    snprintf(line->max, sizeof line->max, "%u", sessions->max);
    if (sessions->reconnect_automatic)
        snprintf(line->grace, sizeof line->grace, "auto");
    else
        snprintf(line->grace, sizeof line->grace, "%u", sessions->reconnect_s);
    (void)getrlimit(RLIMIT_STACK, &own);
    snprintf(line->stack, sizeof line->stack, "%llu", (unsigned long long)own.rlim_cur);
    line->arguments[0] = "worker";
    line->n = 1;
    add_argument(line, "--driver", driver->info.path);
    add_argument(line, "--driver-kind", driver->info.kind);
    add_argument(line, "--devices", line->devices);
    add_argument(line, "--session", line->id);
    add_argument(line, "--max-sessions", line->max);
    add_argument(line, "--reconnect-grace", line->grace);
    if (rg_daemon_rails_list(&sessions->rails, line->rails, sizeof line->rails))
        add_argument(line, "--rails", line->rails);
    add_argument(line, "--stack-limit", line->stack);
}

/* The session's slot, and the pages of its devices. */
static void add_share(const struct rg_sessions *sessions, const struct rg_shares_session *share,
                      struct rg_process *process)
{
    process->fds[process->n_fds++] = share->slot_fd;
    for (uint32_t i = 0; i < share->grant.n_devices; i++)
        process->fds[process->n_fds++] = sessions->shares.devices[share->grant.devices[i].ordinal].fd;
}

/* Starts a worker with its command line and descriptors; on success it has the slot. */
static enum rg_status start_worker(struct rg_sessions *sessions, const struct rg_driver *driver,
                                   struct command_line *line, const struct rg_session_info *info,
                                   const char *identity, struct rg_process *process,
                                   struct rg_shares_session *share, struct rg_sandbox_lease **lease,
                                   pid_t *pid, char *why, size_t why_size)
{
    process->path = sessions->worker;
    process->arguments = (char *const *)(uintptr_t)line->arguments;
    process->death_signal = SIGTERM;
    process->stack_limit = RG_ADDRESS_STACK_GAP;
    const struct rg_share_grant *grant = &share->grant;
    if (grant->mps)
        snprintf(line->percent, sizeof line->percent, RG_MPS_PERCENT "=%u",
                 grant->compute_millionths ? grant->compute_millionths / 10000 : 100);
    const struct rg_confined confined = {
        .program = RG_SANDBOX_WORKER,
        .identity = identity,
        .driver = driver->info.path,
        .soft = rg_driver_is_own(driver),
        .gpus = device_files(sessions, driver, info),
        .extra = {.variables = {is_all_in_order(driver, info) ? NULL : line->visible,
                                grant->mps ? line->percent : NULL},
                  .mps = grant->mps ? sessions->shares.mps : NULL}};
    RG_TRY(rg_confined_start(sessions->sandboxes, &confined, process, lease, pid, why, why_size));
    close(share->slot_fd);
    share->slot_fd = -1;
    return RG_OK;
}

static enum rg_status start_cold(struct rg_sessions *sessions, const struct rg_driver *driver,
                                 struct rg_session_entry *entry, const struct rg_session_files *files,
                                 const char *identity, int hand, char *why, size_t why_size)
{
    const bool tls = files->tls >= 0;
    char keys[24];
    struct command_line line;
    struct rg_process process = {.fds = {files->connection, files->hello, hand}, .n_fds = 3};
    begin_line(&line, sessions, driver, &entry->info, entry->info.id);
    add_argument(&line, "--fd", "3");
    add_argument(&line, "--hello-fd", "4");
    add_argument(&line, "--hand-fd", "5");
    add_argument(&line, "--share-fd", "6");
    add_argument(&line, "--rdma", rg_worker_process_may_use_rdma(sessions, tls) ? "1" : "0");
    add_share(sessions, &entry->share, &process);
    if (tls) {
        snprintf(keys, sizeof keys, "%d", 3 + process.n_fds);
        add_argument(&line, "--tls-fd", keys);
        process.fds[process.n_fds++] = files->tls;
    }
    return start_worker(sessions, driver, &line, &entry->info, identity, &process, &entry->share,
                        &entry->lease, &entry->pid, why, why_size);
}

enum rg_status rg_worker_process_warm(struct rg_sessions *sessions, const struct rg_driver *driver,
                                      struct rg_warm_worker *worker, int socket, char *why, size_t why_size)
{
    const struct rg_warm_kind *kind = worker->kind;
    char expected[RG_WARM_TEXT];
    struct command_line line;
    struct rg_process process = {.fds = {socket}, .n_fds = 1};
    begin_line(&line, sessions, driver, &kind->devices, worker->number);
    rg_warm_format(&kind->shape, kind->contexts, expected);
    add_argument(&line, "--warm-fd", "3");
    add_argument(&line, "--warm", expected);
    add_argument(&line, "--share-fd", "4");
    add_share(sessions, &worker->share, &process);
    return start_worker(sessions, driver, &line, &kind->devices, kind->identity, &process, &worker->share,
                        &worker->lease, &worker->pid, why, why_size);
}

/* A worker that is warm, or another. */
static enum rg_status start_session(struct rg_sessions *sessions, const struct rg_driver *driver,
                                    struct rg_session_entry *entry, const struct rg_shape *shape,
                                    const struct rg_session_files *files, const char *identity, char *why,
                                    size_t why_size)
{
    int hands[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hands) != 0)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no socket: %s", strerror(errno));
    RG_CLEANUP_FD int ours = hands[0];
    RG_CLEANUP_FD int theirs = hands[1];
    /* a warm worker's driver does not go through MPS */
    entry->warm =
        !entry->share.grant.mps && rg_warm_adopt(sessions, driver, entry, identity, shape, files, theirs);
    if (!entry->warm)
        RG_TRY(start_cold(sessions, driver, entry, files, identity, theirs, why, why_size));
    entry->hand = ours;
    ours = -1;
    return RG_OK;
}

enum rg_status rg_worker_process_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                       struct rg_session_entry *entry, const struct rg_monitor_start *wanted,
                                       const struct rg_session_files *files, char *why, size_t why_size)
{
    char identity[2 * RG_CONTROL_TEXT], id[24];
    /* whose sessions have a sandbox in common; of those who have proved nothing, the ones of one machine are one */
    rg_who_key(&entry->who, entry->info.peer, identity, sizeof identity);
    snprintf(id, sizeof id, "%llu", (unsigned long long)entry->info.id);
    if (wanted->purpose == RG_PURPOSE_NETPERF)
        return start_netperf(sessions, files, identity, id, &entry->lease, &entry->pid, why, why_size);
    RG_TRY(start_session(sessions, driver, entry, &wanted->shape, files, identity, why, why_size));
    if (!entry->share.grant.mps)
        rg_warm_begun(sessions, entry, identity, &wanted->shape, wanted->contexts);
    return RG_OK;
}
