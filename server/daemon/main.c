/*
 * main.c - program remote-gpud: the server.
 *
 * Processes: this one is the monitor. It opens the listening sockets and starts the others by exec: one frontend, which talks
 * to clients until it is known what they want and can only ask this one (monitor_protocol.h); one worker for each session; the
 * probe and the manager, which load a driver. It reads nothing that a client sent. All end when it dies. See daemon.c for its
 * life.
 */
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/standard_streams.h"
#include "server/commands/commands.h"
#include "server/daemon/daemon.h"
#include "server/daemon/shared/audit.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Whether an entry of LD_PRELOAD is one that remote-gpu run puts there: by its path, or by its name alone. */
static bool is_client_library(const char *entry, size_t size)
{
    static const char *const ours[] = {"libcuda.so.1", "libnvidia-ml.so.1", "device-files.so"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        const size_t name = strlen(ours[i]), folder = strlen("/remote-gpu/");
        if (size < name || strncmp(entry + size - name, ours[i], name) != 0)
            continue;
        if (size == name ||
            (size > name + folder && strncmp(entry + size - name - folder, "/remote-gpu/", folder) == 0))
            return true;
    }
    return false;
}

/* A server started from within "remote-gpu run" must not hand its drivers and workers the client library. */
static void drop_client_environment(void)
{
    const char *preload = getenv("LD_PRELOAD");
    char *rest = preload ? calloc(1, strlen(preload) + 1) : NULL;
    size_t used = 0;
    for (const char *at = preload; rest && *at;) {
        const size_t size = strcspn(at, ": ");
        if (size && !is_client_library(at, size))
            used += (size_t)sprintf(rest + used, "%s%.*s", used ? ":" : "", (int)size, at);
        at += size;
        at += strspn(at, ": ");
    }
    if (used)
        setenv("LD_PRELOAD", rest, 1);
    else
        unsetenv("LD_PRELOAD");
    free(rest);
    unsetenv("REMOTE_GPU_SERVER");
}

/* Workers read these from their environment. */
static void set_worker_environment(const struct rg_daemon_settings *settings)
{
    char size[24];
    const char *cache = settings->image_cache ? settings->image_cache : getenv("CACHE_DIRECTORY");
    /* a service manager that was asked for several folders names them with colons between */
    RG_CLEANUP_FREE char *folder =
        !cache ? NULL : strndup(cache, settings->image_cache ? strlen(cache) : strcspn(cache, ":"));
    if (settings->wait)
        setenv("REMOTE_GPU_WAIT", settings->wait, 1);
    if (rg_options_is_set(&settings->options, offsetof(struct rg_daemon_settings, log)))
        setenv("REMOTE_GPU_LOG", settings->log, 1);
    if (folder)
        setenv("REMOTE_GPU_IMAGE_CACHE", folder, 1);
    snprintf(size, sizeof size, "%llu", (unsigned long long)settings->image_cache_size);
    setenv("REMOTE_GPU_IMAGE_CACHE_SIZE", size, 1);
    snprintf(size, sizeof size, "%llu", (unsigned long long)settings->session_memory);
    if (rg_options_is_set(&settings->options, offsetof(struct rg_daemon_settings, session_memory)))
        setenv("REMOTE_GPU_SESSION_MEMORY", size, 1);
    snprintf(size, sizeof size, "%llums", (unsigned long long)settings->suspended_ns / 1000000);
    setenv("REMOTE_GPU_SUSPENDED_TIMEOUT", size, 1);
    snprintf(size, sizeof size, "%lld", (long long)settings->keep_alive);
    setenv("REMOTE_GPU_KEEP_ALIVE", size, 1);
    snprintf(size, sizeof size, "%lld", (long long)settings->keep_alive_most);
    setenv("REMOTE_GPU_KEEP_ALIVE_MOST", size, 1);
}

/* Who lets somebody in or keeps somebody out stands beside what the server notes: in the journal where there is one. */
static void note(enum rg_command_deed deed, const char *user, const uint8_t *serial, size_t serial_size)
{
    char from[32];
    snprintf(from, sizeof from, "uid %u", (unsigned)getuid());
    rg_audit(&(struct rg_audit){.event = deed == RG_COMMAND_REVOKED ? RG_AUDIT_REVOKE : RG_AUDIT_TOKEN,
                                .user = user,
                                .serial = serial,
                                .serial_size = serial_size,
                                .from = from});
}

/* On the state folder that the server's configuration names, or the server that runs with it. */
static int run_subcommand(int argc, char **argv)
{
    struct rg_command command;
    struct rg_daemon_settings settings;
    int status;
    if (rg_command_load(&command, argc, argv, &status)) {
        char *words[] = {argv[0], (char *)(uintptr_t) "--config", command.config};
        status = RG_COMMAND_FAILED;
        if (rg_daemon_settings_load(&settings, command.config ? 3 : 1, words) == RG_DAEMON_SERVE) {
            const struct rg_command_server server = {
                .state_dir = settings.state_dir, .is_operators = settings.tls_ca != NULL, .note = note};
            rg_audit_open(RG_AUDIT_JOURNAL);
            status = rg_command_run(&command, &server);
        }
        rg_daemon_settings_fini(&settings);
    }
    rg_command_fini(&command);
    return status;
}

/*
 * The authority's key is in this process's memory. No core dump is to hold it, and no other process of the same user, as
 * workers are where the server is not root's, is to look into it. Again as usual at the end, when it has been wiped: tools that
 * look for leaks then do.
 */
static void close_memory(bool closed)
{
    if (prctl(PR_SET_DUMPABLE, closed ? 0 : 1) != 0)
        rg_warn("this process's memory cannot be closed to others: %s", strerror(errno));
}

static int run_server(int argc, char **argv)
{
    struct rg_daemon_settings settings;
    int status = 0;
    switch (rg_daemon_settings_load(&settings, argc, argv)) {
    case RG_DAEMON_SERVE:
        drop_client_environment();
        set_worker_environment(&settings);
        status = rg_daemon_run(&settings);
        break;
    case RG_DAEMON_EXIT_OK:
        break;
    case RG_DAEMON_EXIT_FAILURE:
        status = 125;
        break;
    }
    rg_daemon_settings_fini(&settings);
    return status;
}

/* The exit status, which is no success where what was to be read could not be written. */
static int with_output(int status)
{
    const bool unwritten = fflush(stdout) != 0;
    if (status != 0 || (!unwritten && !ferror(stdout)))
        return status;
    rg_error("cannot write to standard output%s%s", unwritten ? ": " : "", unwritten ? strerror(errno) : "");
    return RG_COMMAND_FAILED;
}

/* Stacks of a megabyte, for the processes that are started here as well, where this one may have them. */
static bool have_stack(void)
{
    enum { LEAST = 1 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST)
        return true;
    const struct rlimit more = {LEAST, limit.rlim_max > LEAST ? limit.rlim_max : LEAST};
    if (setrlimit(RLIMIT_STACK, &more) == 0)
        return true;
    rg_error("stacks may have %llu KiB here, and need %d: raise the limit (ulimit -s)",
             (unsigned long long)limit.rlim_cur >> 10, LEAST >> 10);
    return false;
}

int main(int argc, char **argv)
{
    rg_standard_streams_take(true);
    rg_log_name("remote-gpud");
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like others */
    if (!have_stack())
        return RG_COMMAND_FAILED;
    close_memory(true);
    const int status =
        with_output(argc > 1 && rg_command_is(argv[1]) ? run_subcommand(argc, argv) : run_server(argc, argv));
    close_memory(false);
    return status;
}
