/*
 * sessions.c - admission, and one worker process a session.
 *
 * A worker is started as
 *
 *   worker --fd 3 --hello-fd 4 --hand-fd 5 --driver PATH --driver-kind soft|nvidia --devices 0,1 --session ID --max-sessions N
 *          --reconnect-grace SECONDS
 *
 * Descriptor 3 is the client's connection, 4 a file with the packed ClientHello; the worker answers it. 5
 * (--hand-fd) is a socket by which it gets connections that the client opens later, each with the hello that
 * came by it. --devices are the server's ordinals. If they are not all of them in their order,
 * CUDA_VISIBLE_DEVICES names them, so that the worker sees them, and no others, as 0, 1, …. The worker gets
 * SIGTERM when the daemon dies, however it dies.
 */
#include "server/daemon/sessions.h"

#include "common/base/addresses.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/daemon/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum rg_status rg_sessions_init(struct rg_sessions *sessions, uint32_t max, const char *worker)
{
    *sessions = (struct rg_sessions){.max = max, .next_id = 1, .worker = worker};
    pthread_mutex_init(&sessions->lock, NULL);
    sessions->entries = calloc(max, sizeof sessions->entries[0]);
    return sessions->entries ? RG_OK : RG_ERR_NO_MEMORY;
}

void rg_sessions_fini(struct rg_sessions *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        free(sessions->entries[i]);
    free(sessions->entries);
    pthread_mutex_destroy(&sessions->lock);
    *sessions = (struct rg_sessions){0};
}

void rg_sessions_allow_netperf(struct rg_sessions *sessions, const char *path)
{
    snprintf(sessions->netperf, sizeof sessions->netperf, "%s", path);
}

uint32_t rg_sessions_running(struct rg_sessions *sessions)
{
    RG_SCOPED_LOCK(&sessions->lock);
    uint32_t n = sessions->n;
    return n;
}

uint32_t rg_sessions_list(struct rg_sessions *sessions, struct rg_session_info *out, uint32_t max)
{
    RG_SCOPED_LOCK(&sessions->lock);
    uint32_t n = sessions->n < max ? sessions->n : max;
    for (uint32_t i = 0; i < n; i++)
        out[i] = sessions->entries[i]->info;
    return n;
}

/* --- admission ---------------------------------------------------------------------------------------------
 */

/* Fills in info->n_devices devices: those that the fewest sessions use, in their order. */
static void pick_least_used(const struct rg_sessions *sessions, const struct rg_driver *driver,
                            struct rg_session_info *info)
{
    uint32_t users[RG_DEVICES_MAX] = {0};
    bool picked[RG_DEVICES_MAX] = {false};
    for (uint32_t i = 0; i < sessions->n; i++)
        for (uint32_t j = 0; j < sessions->entries[i]->info.n_devices; j++)
            users[sessions->entries[i]->info.devices[j]]++;
    for (uint32_t n = 0; n < info->n_devices; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < driver->n_devices; i++)
            if (!picked[i] && (best == UINT32_MAX || users[i] < users[best]))
                best = i;
        picked[best] = true;
    }
    for (uint32_t i = 0, n = 0; n < info->n_devices; i++)
        if (picked[i])
            info->devices[n++] = i;
}

/* Which devices the client gets, in its order; false with the refusal set. */
static bool grant_devices(const struct rg_sessions *sessions, const struct rg_driver *driver,
                          const struct rg_client_hello *hello, struct rg_session_info *info,
                          struct rg_control *refusal)
{
    for (uint32_t i = 0; i < hello->n_gpu_indices; i++) {
        uint32_t wanted = hello->gpu_indices[i];
        if (wanted >= driver->n_devices) {
            rg_refusal_init(
                refusal, RG_REFUSAL_NO_SUCH_GPU,
                "GPU %u was asked for, but this server's GPUs are 0 to %u; 'remote-gpu list' shows them",
                wanted, driver->n_devices - 1);
            return false;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (hello->gpu_indices[j] == wanted) {
                rg_refusal_init(refusal, RG_REFUSAL_NO_SUCH_GPU, "GPU %u was asked for twice; name each once",
                                wanted);
                return false;
            }
        }
        info->devices[i] = wanted;
    }
    info->n_devices = hello->n_gpu_indices;
    if (info->n_devices > 0)
        return true;
    if (hello->gpus > driver->n_devices) {
        rg_refusal_init(refusal, RG_REFUSAL_NO_SUCH_GPU,
                        "%u GPUs were asked for, but this server has %u; ask for fewer, or another server",
                        hello->gpus, driver->n_devices);
        return false;
    }
    info->n_devices = hello->gpus ? hello->gpus : driver->n_devices;
    pick_least_used(sessions, driver, info);
    return true;
}

static bool admit(struct rg_sessions *sessions, const struct rg_driver *driver,
                  const struct rg_client_hello *hello, struct rg_session_info *info,
                  struct rg_control *refusal)
{
    if (sessions->n >= sessions->max) {
        rg_refusal_init(
            refusal, RG_REFUSAL_FULL,
            "the server runs %u sessions and takes no more at once; try again later, or raise its "
            "--max-sessions",
            sessions->n);
        return false;
    }
    if (hello->purpose == RG_PURPOSE_NETPERF) {
        if (!sessions->netperf[0])
            rg_refusal_init(refusal, RG_REFUSAL_UNSUPPORTED,
                            "this server does not answer measurements (--no-netperf, or its installation is "
                            "incomplete)");
        return sessions->netperf[0] != 0;
    }
    if (hello->memory_bytes || hello->memory_millionths) {
        rg_refusal_init(refusal, RG_REFUSAL_UNSUPPORTED,
                        "this server cannot share a GPU by memory yet; run without a memory limit");
        return false;
    }
    return grant_devices(sessions, driver, hello, info, refusal);
}

/* --- starting ----------------------------------------------------------------------------------------------
 */

/* A file that holds the packed hello, at its beginning. */
static int hello_file(const struct rg_control *hello)
{
    void *data;
    size_t size;
    if (rg_control_pack(hello, &data, &size) != RG_OK)
        return -1;
    int fd = memfd_create("client-hello", MFD_CLOEXEC);
    if (fd >= 0 && (write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        fd = -1;
    }
    free(data);
    return fd;
}

static void format_devices(const struct rg_session_info *info, char *out, size_t size)
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

/* The daemon's environment with one variable replaced or added; the array alone is to be freed. */
static char **environment_with(char *assignment)
{
    size_t name = strcspn(assignment, "=") + 1, n = 0;
    while (environ[n])
        n++;
    char **out = calloc(n + 2, sizeof *out);
    if (!out)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], assignment, name) != 0)
            out[used++] = environ[i];
    out[used] = assignment;
    return out;
}

/* A process that answers measurements; it needs no driver. */
static enum rg_status start_netperf(const struct rg_sessions *sessions, int fd, int file, const char *id,
                                    pid_t *pid, char *why, size_t why_size)
{
    const char *arguments[] = {"netperf", "--fd", "3", "--hello-fd", "4", "--session", id, NULL};
    struct rg_process process = {
        .path = sessions->netperf,
        .arguments = (char *const *)(uintptr_t)arguments,
        .environment = environ,
        .fds = {fd, file},
        .n_fds = 2,
        .death_signal = SIGTERM,
    };
    return rg_process_start(&process, pid, why, why_size);
}

static enum rg_status start_worker(const struct rg_sessions *sessions, const struct rg_driver *driver,
                                   const struct rg_control *hello, const struct rg_session_info *info, int fd,
                                   int *hand, pid_t *pid, char *why, size_t why_size)
{
    RG_CLEANUP_FD int file = hello_file(hello);
    if (file < 0) {
        rg_explain(why, why_size, "no memory for its start: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    struct rlimit own = {.rlim_cur = RLIM_INFINITY};
    char devices[RG_DEVICES_MAX * 4], id[24], max[24], grace[24], stack[24],
        visible[64 + RG_DEVICES_MAX * 48];
    format_devices(info, devices, sizeof devices);
    format_visible(driver, info, visible, sizeof visible);
    snprintf(id, sizeof id, "%llu", (unsigned long long)info->id);
    snprintf(max, sizeof max, "%u", sessions->max);
    snprintf(grace, sizeof grace, "%u", sessions->reconnect_s);
    (void)getrlimit(RLIMIT_STACK, &own);
    snprintf(stack, sizeof stack, "%llu", (unsigned long long)own.rlim_cur);
    if (hello->client_hello.purpose == RG_PURPOSE_NETPERF)
        return start_netperf(sessions, fd, file, id, pid, why, why_size);
    int hands[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hands) != 0) {
        rg_explain(why, why_size, "no socket: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    RG_CLEANUP_FD int ours = hands[0];
    RG_CLEANUP_FD int theirs = hands[1];
    const char *arguments[] = {"worker",
                               "--fd",
                               "3",
                               "--hello-fd",
                               "4",
                               "--hand-fd",
                               "5",
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
                               NULL};
    bool part = !is_all_in_order(driver, info);
    RG_CLEANUP_FREE char **environment = part ? environment_with(visible) : NULL;
    if (part && !environment)
        return RG_ERR_NO_MEMORY;
    struct rg_process process = {
        .path = sessions->worker,
        .arguments = (char *const *)(uintptr_t)arguments,
        .environment = part ? environment : environ,
        .fds = {fd, file, theirs},
        .n_fds = 3,
        .death_signal = SIGTERM,
        .stack_limit = RG_ADDRESS_STACK_GAP,
    };
    enum rg_status status = rg_process_start(&process, pid, why, why_size);
    if (status == RG_OK) {
        *hand = ours;
        ours = -1;
    }
    return status;
}

enum rg_status rg_sessions_start(struct rg_sessions *sessions, const struct rg_driver *driver,
                                 const struct rg_control *hello, const char *peer, int fd,
                                 struct rg_control *refusal)
{
    RG_CLEANUP_FREE struct rg_session_entry *entry = calloc(1, sizeof *entry);
    if (!entry) {
        rg_refusal_init(refusal, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
        return RG_ERR_NO_MEMORY;
    }
    struct rg_session_info *info = &entry->info;
    const struct rg_client_hello *client = &hello->client_hello;
    if (!admit(sessions, driver, client, info, refusal))
        return RG_ERR_REFUSED;
    info->id = sessions->next_id++;
    info->identity = client->identity;
    info->since_unix = (uint64_t)time(NULL);
    rg_control_text(info->peer, sizeof info->peer, peer, strlen(peer));
    entry->started_ns = rg_now_ns();
    entry->hand = -1;

    char why[512] = "";
    enum rg_status status =
        start_worker(sessions, driver, hello, info, fd, &entry->hand, &entry->pid, why, sizeof why);
    if (status != RG_OK) {
        rg_error("session %llu: no worker: %s", (unsigned long long)info->id, why);
        rg_refusal_init(refusal, RG_REFUSAL_INTERNAL,
                        "the server could not start a worker (%s); its log says more", why);
        return status;
    }
    char devices[RG_DEVICES_MAX * 4];
    format_devices(info, devices, sizeof devices);
    if (info->n_devices == 0)
        snprintf(devices, sizeof devices, "none (netperf)");
    rg_info("session %llu starts: %s@%s, process %u, from %s, GPU %s, worker %d: %s",
            (unsigned long long)info->id, info->identity.user, info->identity.host, info->identity.pid,
            info->peer, devices, (int)entry->pid, info->identity.command);
    RG_SCOPED_LOCK(&sessions->lock);
    sessions->entries[sessions->n++] = RG_TAKE_PTR(entry);
    return RG_OK;
}

/* --- further connections -------------------------------------------------------------------------------- */

/* Sends `size` bytes and a descriptor as one packet, without waiting; errno tells why not. */
static bool send_with_fd(int socket, const void *data, size_t size, int fd)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

enum rg_status rg_sessions_hand_over(struct rg_sessions *sessions, uint64_t id,
                                     const struct rg_control *hello, int fd, struct rg_control *refusal)
{
    const struct rg_session_entry *entry = NULL;
    for (uint32_t i = 0; i < sessions->n; i++)
        if (sessions->entries[i]->info.id == id)
            entry = sessions->entries[i];
    void *data = NULL;
    size_t size = 0;
    errno = 0;
    const bool given = entry && entry->hand >= 0 && rg_control_pack(hello, &data, &size) == RG_OK &&
                       send_with_fd(entry->hand, data, size, fd);
    /* the worker is behind with taking them: others, without a token, may send it as many as they like */
    const bool later = !given && (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS);
    free(data);
    if (given)
        return RG_OK;
    if (later) {
        rg_refusal_init(refusal, RG_REFUSAL_FULL, "session %llu has too much to do just now; try again",
                        (unsigned long long)id);
        return RG_ERR_TIMEOUT;
    }
    rg_refusal_init(refusal, RG_REFUSAL_UNSUPPORTED,
                    "there is no session %llu that accepts another connection", (unsigned long long)id);
    return RG_ERR_REFUSED;
}

/* --- ending ------------------------------------------------------------------------------------------------
 */

static void say_end(const struct rg_session_entry *entry, int end)
{
    double seconds = (double)(rg_now_ns() - entry->started_ns) / 1e9;
    unsigned long long id = entry->info.id;
    if (WIFSIGNALED(end))
        rg_log(WTERMSIG(end) == SIGTERM || WTERMSIG(end) == SIGKILL ? RG_LOG_INFO : RG_LOG_WARN,
               "session %llu ended after %.1f s: its worker was killed by signal %d (%s)", id, seconds,
               WTERMSIG(end), strsignal(WTERMSIG(end)));
    else if (WEXITSTATUS(end) != 0)
        rg_warn("session %llu ended after %.1f s: its worker failed with status %d", id, seconds,
                WEXITSTATUS(end));
    else
        rg_info("session %llu ended after %.1f s", id, seconds);
}

void rg_sessions_reap(struct rg_sessions *sessions)
{
    /* By process id, never by -1: the probes of other threads are theirs to reap. */
    for (uint32_t i = 0; i < sessions->n;) {
        struct rg_session_entry *entry = sessions->entries[i];
        int end = 0;
        pid_t got = waitpid(entry->pid, &end, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR)) {
            i++;
            continue;
        }
        say_end(entry, end);
        pthread_mutex_lock(&sessions->lock);
        sessions->entries[i] = sessions->entries[--sessions->n];
        pthread_mutex_unlock(&sessions->lock);
        if (entry->hand >= 0)
            close(entry->hand);
        free(entry);
    }
}

void rg_sessions_signal(struct rg_sessions *sessions, int signal)
{
    for (uint32_t i = 0; i < sessions->n; i++)
        kill(sessions->entries[i]->pid, signal);
}
