/*
 * driver.c - finding the driver by asking the probe about each candidate.
 *
 * The probe is given PROBE_TIMEOUT_MS; a driver that hangs in cuInit is one that does not work. Its report
 * comes through a pipe as descriptor 3, so that what a driver prints disturbs nobody.
 */
#include "server/daemon/driver.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/sync/scoped_lock.h"
#include "server/daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_TIMEOUT_MS 60000
#define REFRESH_NS       1000000000ull

/* Reads until the end of the pipe, or the buffer or the time is used up. Returns bytes, or -1 after the time.
 */
static ssize_t read_report(int fd, unsigned char *buffer, size_t size)
{
    uint64_t deadline = rg_now_ns() + PROBE_TIMEOUT_MS * 1000000ull;
    size_t used = 0;
    while (used < size) {
        uint64_t now = rg_now_ns();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = now < deadline ? poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return -1;
        ssize_t got = read(fd, buffer + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static void describe_end(int status, char *why, size_t why_size)
{
    if (WIFSIGNALED(status))
        rg_explain(why, why_size, "the driver crashed when it was tried (signal %d, %s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        rg_explain(why, why_size, "the probe ended with status %d and no report", WEXITSTATUS(status));
}

/* Runs the probe on `library`; the report is a control message in `buffer`. */
static enum rg_status run_probe(const char *library, unsigned char *buffer, size_t size, size_t *used,
                                char *why, size_t why_size)
{
    char path[PATH_MAX];
    if (rg_path_library("probe", path, sizeof path) != RG_OK) {
        rg_explain(why, why_size,
                   "remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
        return RG_ERR_NOT_FOUND;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        rg_explain(why, why_size, "no pipe: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    char *arguments[] = {path, (char *)"--driver", (char *)library, NULL};
    /* It dies with the thread that waits for it: one that hangs does not outlive a daemon that was stopped.
     */
    struct rg_process process = {.path = path,
                                 .arguments = arguments,
                                 .environment = environ,
                                 .fds = {ends[1]},
                                 .n_fds = 1,
                                 .death_signal = SIGKILL};
    pid_t pid;
    enum rg_status status = rg_process_start(&process, &pid, why, why_size);
    close(ends[1]);
    if (status != RG_OK) {
        close(ends[0]);
        return status;
    }
    ssize_t got = read_report(ends[0], buffer, size);
    close(ends[0]);
    if (got < 0)
        kill(pid, SIGKILL);
    int end = 0;
    while (waitpid(pid, &end, 0) < 0 && errno == EINTR)
        ;
    if (got <= 0) {
        if (got < 0)
            rg_explain(why, why_size, "the driver did not answer within %d s", PROBE_TIMEOUT_MS / 1000);
        else
            describe_end(end, why, why_size);
        return RG_ERR_UNSUPPORTED;
    }
    *used = (size_t)got;
    return RG_OK;
}

static enum rg_status probe(const char *library, const char *kind, struct rg_driver *out, char *why,
                            size_t why_size)
{
    RG_CLEANUP_FREE unsigned char *report = malloc(RG_MESSAGE_MAX);
    size_t size;
    if (!report)
        return RG_ERR_NO_MEMORY;
    enum rg_status status = run_probe(library, report, RG_MESSAGE_MAX, &size, why, why_size);
    if (status != RG_OK)
        return status;
    struct rg_control message;
    if (rg_control_unpack(report, size, &message) != RG_OK) {
        rg_explain(why, why_size, "the probe's report is damaged");
        return RG_ERR_UNSUPPORTED;
    }
    if (message.kind == RG_CONTROL_INVENTORY && message.inventory.n_devices > 0) {
        out->info = message.inventory.driver;
        rg_control_text(out->info.kind, sizeof out->info.kind, kind, strlen(kind));
        out->n_devices = message.inventory.n_devices;
        memcpy(out->devices, message.inventory.devices, out->n_devices * sizeof out->devices[0]);
        status = RG_OK;
    } else {
        rg_explain(why, why_size, "%s",
                   message.kind == RG_CONTROL_REFUSAL ? message.refusal.reason : "it has no device");
        status = RG_ERR_UNSUPPORTED;
    }
    rg_control_fini(&message);
    return status;
}

/* Where NVIDIA's library is: what the loader finds by name, then the usual places outside its search path. */
static enum rg_status find_nvidia(struct rg_driver *out, char *why, size_t why_size)
{
    static const char *const candidates[] = {
        "libcuda.so.1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/run/opengl-driver/lib/libcuda.so.1",
    };
    enum rg_status status = RG_ERR_NOT_FOUND;
    bool told = false;
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        if (i > 0 && access(candidates[i], R_OK) != 0)
            continue;
        char reason[RG_CONTROL_REASON] = "";
        status = probe(candidates[i], "nvidia", out, reason, sizeof reason);
        if (status == RG_OK)
            return RG_OK;
        /* the reason of a library that is there says more than that of a name that is not found */
        if (!told)
            rg_explain(why, why_size, "%s", reason);
        told = i > 0;
    }
    return status;
}

static enum rg_status find_soft(struct rg_driver *out, char *why, size_t why_size)
{
    char path[PATH_MAX];
    if (rg_path_library("soft/libcuda.so.1", path, sizeof path) != RG_OK) {
        rg_explain(why, why_size,
                   "remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
        return RG_ERR_NOT_FOUND;
    }
    char reason[RG_CONTROL_REASON] = "";
    enum rg_status status = probe(path, "soft", out, reason, sizeof reason);
    if (status != RG_OK)
        rg_explain(why, why_size, "the software device does not work: %s", reason);
    return status;
}

static bool is_soft_library(const char *path)
{
    char soft[PATH_MAX], a[PATH_MAX], b[PATH_MAX];
    return rg_path_library("soft/libcuda.so.1", soft, sizeof soft) == RG_OK && realpath(soft, a) &&
           realpath(path, b) && strcmp(a, b) == 0;
}

enum rg_status rg_driver_find(const char *wanted, struct rg_driver *out, char *why, size_t why_size)
{
    memset(out, 0, sizeof *out);
    enum rg_status status;
    char reason[RG_CONTROL_REASON] = "";
    if (strcmp(wanted, "soft") == 0) {
        status = find_soft(out, why, why_size);
    } else if (strcmp(wanted, "auto") == 0) {
        status = find_nvidia(out, reason, sizeof reason);
        if (status != RG_OK) {
            rg_warn("no working NVIDIA driver (%s): using the software device, which computes on the CPU",
                    reason);
            status = find_soft(out, why, why_size);
        }
    } else {
        status = probe(wanted, is_soft_library(wanted) ? "soft" : "nvidia", out, reason, sizeof reason);
        if (status != RG_OK)
            rg_explain(why, why_size, "the driver does not work: %s (%s)", reason, wanted);
    }
    if (status != RG_OK)
        return status;
    rg_info("driver: %s, CUDA %u.%u, %s", out->info.kind, out->info.version / 1000,
            out->info.version % 1000 / 10, out->info.path);
    for (uint32_t i = 0; i < out->n_devices; i++)
        rg_info("GPU %u: %s, compute capability %u.%u, %.1f GiB", out->devices[i].ordinal,
                out->devices[i].name, out->devices[i].compute_major, out->devices[i].compute_minor,
                (double)out->devices[i].memory_total / (1 << 30));
    return RG_OK;
}

/* Free memory is all that changes while a server runs. Under the lock of rg_driver_devices. */
static void refresh(struct rg_driver *driver)
{
    RG_CLEANUP_FREE struct rg_driver *now = calloc(1, sizeof *now);
    char why[RG_CONTROL_REASON] = "no memory";
    if (!now || probe(driver->info.path, driver->info.kind, now, why, sizeof why) != RG_OK ||
        now->n_devices != driver->n_devices) {
        rg_warn("cannot look at the devices now: %s", why);
        for (uint32_t i = 0; i < driver->n_devices; i++)
            driver->devices[i].memory_free_known = false;
        return;
    }
    for (uint32_t i = 0; i < now->n_devices; i++) {
        driver->devices[i].memory_free = now->devices[i].memory_free;
        driver->devices[i].memory_free_known = now->devices[i].memory_free_known;
    }
}

void rg_driver_devices(struct rg_driver *driver, bool fresh, struct rg_device_info *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t fresh_until;
    RG_SCOPED_LOCK(&lock); /* those who wait for a probe take its result */
    if (fresh && rg_now_ns() >= fresh_until) {
        refresh(driver);
        fresh_until = rg_now_ns() + REFRESH_NS;
    }
    memcpy(out, driver->devices, driver->n_devices * sizeof *out);
}
