/*
 * driver.c - finding the driver by asking the probe about each candidate.
 *
 * The probe is given PROBE_TIMEOUT_MS; a driver that hangs in cuInit is one that does not work. Its report
 * comes through a pipe as descriptor 3, so that what a driver prints disturbs nobody.
 */
#include "server/daemon/driver/driver.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/base/printable.h"
#include "server/daemon/driver/driver_parts.h"
#include "server/daemon/process/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_TIMEOUT_MS 60000
#define END_MS           500 /* from its report to its end */

static void describe_end(int status, char *why, size_t why_size)
{
    if (WIFSIGNALED(status))
        rg_explain(why, why_size, "the driver crashed when it was tried (signal %d, %s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        rg_explain(why, why_size, "the probe ended with status %d and no report", WEXITSTATUS(status));
}

/* `visible`: an assignment of CUDA_VISIBLE_DEVICES, or NULL. */
static enum rg_status begin(struct rg_driver_probe *probe, struct rg_sandboxes *sandboxes,
                            const char *library, bool soft, char *visible, char *why, size_t why_size)
{
    char path[PATH_MAX];
    *probe = (struct rg_driver_probe){.fd = -1};
    if (rg_path_library("probe", path, sizeof path) != RG_OK)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size,
                         "remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
    RG_CLEANUP_FREE struct rg_probe_report *report = calloc(1, sizeof *report);
    int ends[2];
    if (!report || pipe2(ends, O_CLOEXEC) != 0)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "no pipe: %s", strerror(errno));
    char *arguments[] = {path, (char *)"--driver", (char *)(uintptr_t)library, NULL};
    /* It dies with the daemon: one that hangs does not outlive a daemon that was stopped. */
    const struct rg_process process = {
        .path = path, .arguments = arguments, .fds = {ends[1]}, .n_fds = 1, .death_signal = SIGKILL};
    const struct rg_confined confined = {.program = RG_SANDBOX_PROBE,
                                         .identity = "",
                                         .driver = library,
                                         .soft = soft,
                                         .gpus = UINT64_MAX,
                                         .extra = {.variables = {visible}}};
    const enum rg_status status =
        rg_confined_start(sandboxes, &confined, &process, &probe->lease, &probe->pid, why, why_size);
    close(ends[1]);
    if (status != RG_OK) {
        close(ends[0]);
        probe->pid = 0;
        return status;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    probe->fd = ends[0];
    probe->report = RG_TAKE_PTR(report);
    probe->deadline_ns = rg_now_ns() + PROBE_TIMEOUT_MS * 1000000ull;
    return RG_OK;
}

static void forget(struct rg_driver_probe *probe)
{
    probe->pid = 0;
    probe->hangs = false;
    rg_sandbox_release(probe->lease);
    probe->lease = NULL;
}

/* It has said what it had to say, or was killed. */
static void finish(struct rg_driver_probe *probe, int *end)
{
    close(probe->fd);
    probe->fd = -1;
    probe->hangs = !rg_process_end(probe->pid, END_MS, end);
    if (!probe->hangs)
        forget(probe);
}

bool rg_probe_runs(const struct rg_driver_probe *probe)
{
    return probe->pid != 0 && !probe->hangs;
}

void rg_probe_cancel(struct rg_driver_probe *probe)
{
    int end;
    if (!rg_probe_runs(probe))
        return;
    kill(probe->pid, SIGKILL);
    finish(probe, &end);
    free(probe->report);
    probe->report = NULL;
}

static void end_text(char *text, size_t size)
{
    text[size - 1] = 0;
    rg_printable_clean(text);
}

/* What a driver says of itself goes to logs and clients. */
static bool check(struct rg_probe_report *report)
{
    struct rg_driver *driver = &report->driver;
    if (report->size != sizeof *report || driver->n_devices > RG_DEVICES_MAX ||
        report->n_parts > RG_DEVICES_MAX)
        return false;
    end_text(report->why, sizeof report->why);
    end_text(driver->info.path, sizeof driver->info.path);
    end_text(driver->info.release, sizeof driver->info.release);
    end_text(driver->machine.kernel, sizeof driver->machine.kernel);
    end_text(driver->machine.rails, sizeof driver->machine.rails);
    end_text(driver->machine.rdma, sizeof driver->machine.rdma);
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        driver->devices[i].n_attributes = 0;
        end_text(driver->devices[i].name, sizeof driver->devices[i].name);
        end_text(driver->devices[i].pci, sizeof driver->devices[i].pci);
    }
    return true;
}

/* Reads what there is. RG_ERR_TIMEOUT: there will be more; else the probe is over, and RG_OK: with a report that is sound. */
static enum rg_status proceed(struct rg_driver_probe *probe, char *why, size_t why_size)
{
    ssize_t got;
    while ((got = read(probe->fd, (char *)probe->report + probe->used, sizeof *probe->report - probe->used)) >
               0 ||
           (got < 0 && errno == EINTR))
        probe->used += got > 0 ? (size_t)got : 0;
    const bool whole = probe->used == sizeof *probe->report;
    if (got < 0 && !whole && rg_now_ns() < probe->deadline_ns)
        return RG_ERR_TIMEOUT;
    int end = 0;
    if (got < 0 && !whole)
        kill(probe->pid, SIGKILL);
    finish(probe, &end);
    if (whole && check(probe->report)) {
        if (probe->report->works && probe->report->driver.n_devices > 0)
            return RG_OK;
        rg_explain(why, why_size, "%s", probe->report->works ? "it has no device" : probe->report->why);
    } else if (got < 0) {
        rg_explain(why, why_size, "the driver did not answer within %d s", PROBE_TIMEOUT_MS / 1000);
    } else if (probe->used == 0) {
        describe_end(end, why, why_size);
    } else {
        rg_explain(why, why_size, "the probe's report is damaged");
    }
    return RG_ERR_UNSUPPORTED;
}

/*
 * The software device says so in its devices' numbers (softgpu/driver/core/device.c), wherever a copy of its library is and
 * however it was found: "softgp", as the next byte has a UUID's version. To take it for NVIDIA's would leave kernels unconfined.
 */
static bool is_software_device(const struct rg_driver *driver)
{
    static const char mark[] = {'s', 'o', 'f', 't', 'g', 'p'};
    return driver->n_devices > 0 && memcmp(driver->devices[0].uuid, mark, sizeof mark) == 0;
}

struct look {
    struct rg_sandboxes *sandboxes;
    const char *library;
    bool soft;
};

/* The whole of it, while nothing else is to be done. RG_OK: *out is the caller's to free. */
static enum rg_status look_once(const struct look *look, char *visible, struct rg_probe_report **out,
                                char *why, size_t why_size)
{
    struct rg_driver_probe run;
    enum rg_status status;
    RG_TRY(begin(&run, look->sandboxes, look->library, look->soft, visible, why, why_size));
    while ((status = proceed(&run, why, why_size)) == RG_ERR_TIMEOUT) {
        const uint64_t now = rg_now_ns();
        struct pollfd wait = {.fd = run.fd, .events = POLLIN};
        (void)poll(&wait, 1, now < run.deadline_ns ? (int)((run.deadline_ns - now) / 1000000u) + 1 : 0);
    }
    if (status == RG_OK)
        *out = run.report;
    else
        free(run.report);
    return status;
}

static enum rg_status look_at_part(void *data, char *visible, struct rg_driver *out, char *why,
                                   size_t why_size)
{
    RG_CLEANUP_FREE struct rg_probe_report *report = NULL;
    const enum rg_status status = look_once(data, visible, &report, why, why_size);
    if (status == RG_OK)
        *out = report->driver;
    return status;
}

static enum rg_status probe(struct rg_sandboxes *sandboxes, const char *library, const char *kind,
                            struct rg_driver *out, char *why, size_t why_size)
{
    struct look look = {sandboxes, library, strcmp(kind, "soft") == 0};
    RG_CLEANUP_FREE struct rg_probe_report *report = NULL;
    enum rg_status status = look_once(&look, NULL, &report, why, why_size);
    if (status == RG_OK && report->divided)
        status = rg_driver_of_parts(report->parts, report->n_parts, look_at_part, &look, out, why, why_size);
    else if (status == RG_OK)
        *out = report->driver;
    if (status == RG_OK)
        snprintf(out->info.kind, sizeof out->info.kind, "%s", is_software_device(out) ? "soft" : kind);
    return status;
}

/*
 * The same, at the start. What NVIDIA's driver needs is known for the drivers of today. One that works only without a
 * sandbox is used so, which is said, unless that is to be refused. An attempt without it may also have made the device files
 * that were missing, so the sandbox gets another chance then.
 */
static enum rg_status try_driver(struct rg_sandboxes *sandboxes, const char *library, const char *kind,
                                 struct rg_driver *out, char *why, size_t why_size)
{
    char confined[RG_CONTROL_REASON] = "", again[RG_CONTROL_REASON] = "";
    enum rg_status status = probe(sandboxes, library, kind, out, confined, sizeof confined);
    if (status == RG_OK)
        return status;
    rg_explain(why, why_size, "%s", confined);
    if (rg_sandboxes_mode(sandboxes) != RG_SANDBOX_AUTO)
        return status;
    rg_sandboxes_give_up(sandboxes, true);
    const enum rg_status free_status = probe(sandboxes, library, kind, out, again, sizeof again);
    rg_sandboxes_give_up(sandboxes, false);
    if (free_status != RG_OK)
        return status;
    if (probe(sandboxes, library, kind, out, again, sizeof again) == RG_OK)
        return RG_OK;
    rg_warn("sandbox: the driver works only without it (%s): its workers are not confined; --sandbox=log "
            "shows what is missing, --sandbox=strict refuses this",
            confined);
    rg_sandboxes_give_up(sandboxes, true);
    return probe(sandboxes, library, kind, out, why, why_size);
}

/* Where NVIDIA's library is: what the loader finds by name, then the usual places outside its search path. */
static enum rg_status find_nvidia(struct rg_sandboxes *sandboxes, struct rg_driver *out, char *why,
                                  size_t why_size)
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
        status = try_driver(sandboxes, candidates[i], "nvidia", out, reason, sizeof reason);
        if (status == RG_OK && strcmp(out->info.kind, "soft") == 0) {
            rg_explain(reason, sizeof reason, "%s is the software device", out->info.path);
            status = RG_ERR_NOT_FOUND;
        }
        if (status == RG_OK)
            return RG_OK;
        /* the reason of a library that is there says more than that of a name that is not found */
        if (!told)
            rg_explain(why, why_size, "%s", reason);
        told = i > 0;
    }
    return status;
}

static enum rg_status find_soft(struct rg_sandboxes *sandboxes, struct rg_driver *out, char *why,
                                size_t why_size)
{
    char path[PATH_MAX];
    if (rg_path_library("soft/libcuda.so.1", path, sizeof path) != RG_OK)
        return RG_FAILED(RG_ERR_NOT_FOUND, why, why_size,
                         "remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
    char reason[RG_CONTROL_REASON] = "";
    enum rg_status status = try_driver(sandboxes, path, "soft", out, reason, sizeof reason);
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

bool rg_driver_is_own(const struct rg_driver *driver)
{
    return strcmp(driver->info.kind, "soft") == 0 && is_soft_library(driver->info.path);
}

static enum rg_status find_named(const char *library, struct rg_sandboxes *sandboxes, struct rg_driver *out,
                                 char *why, size_t why_size)
{
    char reason[RG_CONTROL_REASON] = "";
    const enum rg_status status = try_driver(sandboxes, library, is_soft_library(library) ? "soft" : "nvidia",
                                             out, reason, sizeof reason);
    if (status != RG_OK)
        rg_explain(why, why_size, "the driver does not work: %s (%s)", reason, library);
    return status;
}

static enum rg_status find_any(struct rg_sandboxes *sandboxes, struct rg_driver *out, char *why,
                               size_t why_size)
{
    char reason[RG_CONTROL_REASON] = "";
    if (find_nvidia(sandboxes, out, reason, sizeof reason) == RG_OK)
        return RG_OK;
    rg_warn("no working NVIDIA driver (%s): using the software device, which computes on the CPU", reason);
    return find_soft(sandboxes, out, why, why_size);
}

enum rg_status rg_driver_find(const char *wanted, struct rg_sandboxes *sandboxes, struct rg_driver *out,
                              char *why, size_t why_size)
{
    memset(out, 0, sizeof *out);
    RG_TRY(strcmp(wanted, "soft") == 0   ? find_soft(sandboxes, out, why, why_size)
           : strcmp(wanted, "auto") == 0 ? find_any(sandboxes, out, why, why_size)
                                         : find_named(wanted, sandboxes, out, why, why_size));
    rg_info("driver: %s, CUDA %u.%u, %s", out->info.kind, out->info.version / 1000,
            out->info.version % 1000 / 10, out->info.path);
    for (uint32_t i = 0; i < out->n_devices; i++)
        rg_info("GPU %u: %s, compute capability %u.%u, %.1f GiB", out->devices[i].ordinal,
                out->devices[i].name, out->devices[i].compute_major, out->devices[i].compute_minor,
                (double)out->devices[i].memory_total / (1 << 30));
    return RG_OK;
}

bool rg_probe_begin(struct rg_driver_probe *probe, struct rg_sandboxes *sandboxes,
                    const struct rg_driver *driver)
{
    char why[RG_CONTROL_REASON] = "";
    if (probe->hangs && waitpid(probe->pid, NULL, WNOHANG) == 0) {
        rg_debug("the process that looked at the devices before still hangs");
        return false;
    }
    if (probe->hangs)
        forget(probe);
    if (begin(probe, sandboxes, driver->info.path, rg_driver_is_own(driver), NULL, why, sizeof why) == RG_OK)
        return true;
    rg_warn("cannot look at the devices now: %s", why);
    return false;
}

/* Free memory is all that changes of devices while a server runs. */
static void take_over(const struct rg_probe_report *report, struct rg_driver *driver)
{
    const struct rg_driver *now = &report->driver;
    if (report->divided)
        rg_driver_take_parts(report->parts, report->n_parts, driver);
    for (uint32_t i = 0; i < now->n_devices && !report->divided; i++) {
        driver->devices[i].memory_free = now->devices[i].memory_free;
        driver->devices[i].memory_free_known = now->devices[i].memory_free_known;
    }
    driver->machine = now->machine;
}

enum rg_status rg_probe_continue(struct rg_driver_probe *probe, struct rg_driver *driver)
{
    char why[RG_CONTROL_REASON] = "there are not as many as there were";
    enum rg_status status = proceed(probe, why, sizeof why);
    if (status == RG_ERR_TIMEOUT)
        return status;
    if (status == RG_OK && !probe->report->divided && probe->report->driver.n_devices != driver->n_devices)
        status = RG_ERR_UNSUPPORTED;
    if (status == RG_OK) {
        take_over(probe->report, driver);
    } else {
        rg_warn("cannot look at the devices now: %s%s", why,
                probe->hangs ? "; its process hangs in the kernel, and nobody looks again before that ends"
                             : "");
        for (uint32_t i = 0; i < driver->n_devices; i++)
            driver->devices[i].memory_free_known = false;
    }
    free(probe->report);
    probe->report = NULL;
    return status;
}
