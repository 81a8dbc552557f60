/*
 * worker_process.c - see worker_process.h.
 *
 * A worker is started as server/main.c says. Descriptor 3 is the client's connection, 4 a file with the packed ClientHello; the
 * worker answers it. By TLS the last has the connection's keys (--tls-fd). 5
 * (--hand-fd) is a socket by which it gets connections that the client opens later
 * (server/handshake/handed.h). 6 (--share-fd) is the session's slot (server/shares/slot.h), and behind it come the pages of its
 * devices (server/shares/device_page.h). --devices are the server's ordinals. If they are not all of them in their order,
 * CUDA_VISIBLE_DEVICES names them, so that the worker sees them, and no others, as 0, 1, …. The worker gets
 * SIGTERM when the daemon dies, however it dies.
 */
#include "server/daemon/worker_process.h"

#include "common/base/addresses.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "server/daemon/confined.h"

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
        if (info->devices[i] != i)
            return false;
    return info->n_devices == driver->n_devices;
}

/* "CUDA_VISIBLE_DEVICES=GPU-…,GPU-…" */
static void format_visible(const struct rg_driver *driver, const struct rg_session_info *info, char *out,
                           size_t size)
{
    size_t used = (size_t)snprintf(out, size, "CUDA_VISIBLE_DEVICES=");
    for (uint32_t i = 0; i < info->n_devices && used < size; i++) {
        const uint8_t *u = driver->devices[info->devices[i]].uuid;
        used += (size_t)snprintf(out + used, size - used,
                                 "%sGPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                                 i ? "," : "", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
                                 u[10], u[11], u[12], u[13], u[14], u[15]);
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

/* What goes by RDMA is not encrypted. */
static bool may_use_rdma(const struct rg_sessions *sessions, bool encrypted)
{
    return sessions->rdma && (!encrypted || sessions->encrypt_control);
}

/* A process that answers measurements; it needs no driver. */
static enum rg_status start_netperf(const struct rg_sessions *sessions, const struct rg_session_files *files,
                                    const char *identity, const char *id, struct rg_sandbox_lease **lease,
                                    pid_t *pid, char *why, size_t why_size)
{
    const bool tls = files->tls >= 0;
    const char *arguments[] = {"netperf",
                               "--fd",
                               "3",
                               "--hello-fd",
                               "4",
                               "--session",
                               id,
                               "--rdma",
                               may_use_rdma(sessions, tls) ? "1" : "0",
                               tls ? "--tls-fd" : NULL,
                               "5",
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

/* The descriptors of a worker, from its number 3 on; returns the number of the connection's keys, which come last. */
static int worker_files(const struct rg_sessions *sessions, const struct rg_session_files *files,
                        const struct rg_session_entry *entry, int hand, struct rg_process *process)
{
    const struct rg_share_grant *grant = &entry->share.grant;
    int n = 0;
    process->fds[n++] = files->connection;
    process->fds[n++] = files->hello;
    process->fds[n++] = hand;
    process->fds[n++] = entry->share.slot_fd;
    for (uint32_t i = 0; i < grant->n_devices; i++)
        process->fds[n++] = sessions->shares.devices[grant->devices[i].ordinal].fd;
    if (files->tls >= 0)
        process->fds[n++] = files->tls;
    process->n_fds = n;
    return 3 + n - 1;
}

static enum rg_status start_worker(struct rg_sessions *sessions, const struct rg_driver *driver,
                                   struct rg_session_entry *entry, const struct rg_session_files *files,
                                   const char *identity, char *why, size_t why_size)
{
    const struct rg_session_info *info = &entry->info;
    const bool tls = files->tls >= 0;
    struct rlimit own = {.rlim_cur = RLIM_INFINITY};
    char devices[RG_DEVICES_MAX * 4], id[24], max[24], grace[24], stack[24], keys[24],
        visible[64 + RG_DEVICES_MAX * 48];
    rg_worker_process_devices(info, devices, sizeof devices);
    format_visible(driver, info, visible, sizeof visible);
    snprintf(id, sizeof id, "%llu", (unsigned long long)info->id);
    snprintf(max, sizeof max, "%u", sessions->max);
    snprintf(grace, sizeof grace, "%u", sessions->reconnect_s);
    (void)getrlimit(RLIMIT_STACK, &own);
    snprintf(stack, sizeof stack, "%llu", (unsigned long long)own.rlim_cur);
    int hands[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hands) != 0) {
        rg_explain(why, why_size, "no socket: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    RG_CLEANUP_FD int ours = hands[0];
    RG_CLEANUP_FD int theirs = hands[1];
    struct rg_process process = {
        .path = sessions->worker,
        .death_signal = SIGTERM,
        .stack_limit = RG_ADDRESS_STACK_GAP,
    };
    snprintf(keys, sizeof keys, "%d", worker_files(sessions, files, entry, theirs, &process));
    const char *arguments[] = {"worker",
                               "--fd",
                               "3",
                               "--hello-fd",
                               "4",
                               "--hand-fd",
                               "5",
                               "--share-fd",
                               "6",
                               "--driver",
                               driver->info.path,
                               "--driver-kind",
                               driver->info.kind,
                               "--devices",
                               devices,
                               "--session",
                               id,
                               "--max-sessions",
                               max,
                               "--reconnect-grace",
                               grace,
                               "--stack-limit",
                               stack,
                               "--rdma",
                               may_use_rdma(sessions, tls) ? "1" : "0",
                               tls ? "--tls-fd" : NULL,
                               keys,
                               NULL};
    process.arguments = (char *const *)(uintptr_t)arguments;
    const struct rg_confined confined = {.program = RG_SANDBOX_WORKER,
                                         .identity = identity,
                                         .driver = driver->info.path,
                                         .soft = rg_driver_is_own(driver),
                                         .gpus = device_files(sessions, driver, info),
                                         .variable = is_all_in_order(driver, info) ? NULL : visible};
    enum rg_status status = rg_confined_start(sessions->sandboxes, &confined, &process, &entry->lease,
                                              &entry->pid, why, why_size);
    if (status == RG_OK) {
        entry->hand = ours;
        ours = -1;
        close(entry->share.slot_fd);
        entry->share.slot_fd = -1;
    }
    return status;
}

enum rg_status rg_worker_process_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                       struct rg_session_entry *entry, enum rg_purpose purpose,
                                       const struct rg_session_files *files, char *why, size_t why_size)
{
    char identity[2 * RG_CONTROL_TEXT], id[24];
    /* whose sessions have a sandbox in common; of those who have proved nothing, the ones of one machine are one */
    rg_who_key(&entry->who, entry->info.peer, identity, sizeof identity);
    snprintf(id, sizeof id, "%llu", (unsigned long long)entry->info.id);
    if (purpose == RG_PURPOSE_NETPERF)
        return start_netperf(sessions, files, identity, id, &entry->lease, &entry->pid, why, why_size);
    return start_worker(sessions, driver, entry, files, identity, why, why_size);
}
