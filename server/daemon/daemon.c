/*
 * daemon.c - the life of remote-gpud, the monitor, which has one thread.
 *
 * Start: startup.h's steps, the last of which is the frontend (which alone talks to clients); then it says that it is ready.
 * Then one poll(2) over signals, the frontend's questions (monitor.c), the accountant's answers, the operator's commands and a
 * probe that may run: an idle server wakes up only to hear that the frontend lives. Stop: the first SIGTERM or SIGINT shuts the
 * listeners and waits for the running sessions; after the grace time or a second signal the workers get SIGTERM (each tells its
 * client), two seconds later SIGKILL. After SIGUSR1 it stops when there is no session: an upgrade asks for that, and the service
 * manager starts the new program.
 */
#include "server/daemon/daemon.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/daemon/monitor/requests.h"
#include "server/daemon/notify.h"
#include "server/daemon/pool/job_map.h"
#include "server/daemon/sessions/gauges.h"
#include "server/daemon/shared/audit.h"
#include "server/daemon/startup.h"
#include "server/identity/identity.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define KILL_AFTER_NS     2000000000ull
#define WAITING_LOOK_NS   500000000ull /* while the server stops: at sessions that wait for their clients */
#define RELOAD_NS         (86400ull * 1000000000u)
#define EXIT_START_AGAIN  75 /* EX_TEMPFAIL; the unit has it started again */
#define EXIT_CANNOT_START 125

enum phase {
    SERVING,
    WAITING, /* asked to stop; sessions may finish */
    ENDING,  /* workers have SIGTERM */
    KILLING, /* workers have SIGKILL */
};

struct daemon {
    const struct rg_daemon_settings *settings;
    struct rg_monitor monitor;
    struct rg_startup startup;
    int signals;
    struct rg_requests requests; /* of the operator's commands */
    struct rg_job_map job_map;
    uint64_t requests_ns; /* when to look what has come of them */
    uint64_t measure_ns;  /* when sessions are measured next */
    uint64_t reload_ns;   /* when certificates are looked at by themselves */
    bool replaced;        /* SIGUSR1: another program is to take its place when there is no session */
    int status;
    enum phase phase;
    uint64_t phase_ends_ns; /* WAITING, ENDING: when the next one begins */
};

/* --- start ------------------------------------------------------------------------------------------------------- */

static bool open_signals(struct daemon *daemon)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* all threads come from this one */
    signal(SIGCHLD, SIG_DFL);               /* it may be inherited that nobody learns of children that end */
    signal(SIGPIPE, SIG_IGN);
    daemon->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (daemon->signals < 0)
        rg_error("signalfd: %s", strerror(errno));
    return daemon->signals >= 0;
}

/* Sessions and handshakes each take descriptors; the soft limit is often low for the sake of select(2) alone. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool start(struct daemon *daemon)
{
    struct rg_startup *startup = &daemon->startup;
    /* While a driver is tried, signals end us as usual. */
    if (!rg_startup_check(startup) || !rg_startup_find_driver(startup))
        return false;
    const struct rg_identity_store *identity = daemon->monitor.policy.identity;
    if (identity) {
        daemon->reload_ns = rg_now_ns() + RELOAD_NS;
        (void)rg_requests_open(&daemon->requests, rg_identity_folder(identity));
    }
    if (!rg_job_map_open(&daemon->job_map, daemon->settings->job_mapping_dir, &daemon->monitor.driver))
        return false;
    rg_audit_open(NULL);
    if (daemon->settings->no_grants)
        rg_audit_no_grants();
    raise_descriptor_limit();
    if (!open_signals(daemon) || !rg_startup_serve(startup) ||
        !rg_listeners_announce(&startup->listeners, daemon->settings))
        return false;
    rg_notify("READY=1");
    return true;
}

/* --- serving ----------------------------------------------------------------------------------------------------- */

static void enter(struct daemon *daemon, enum phase phase)
{
    uint64_t now = rg_now_ns();
    const uint32_t running = daemon->monitor.sessions.n;
    daemon->phase = phase;
    switch (phase) {
    case SERVING:
        break;
    case WAITING:
        rg_notify("STOPPING=1");
        rg_listeners_close(&daemon->startup.listeners);
        rg_monitor_drain(&daemon->monitor);
        rg_sessions_end_waiting(&daemon->monitor.sessions);
        if (running)
            rg_info("stopping: no new sessions; waiting up to %.0f s for %u running (a second signal ends "
                    "them now)",
                    (double)daemon->settings->grace_ns / 1e9, running);
        daemon->phase_ends_ns = now + daemon->settings->grace_ns;
        break;
    case ENDING:
        if (running)
            rg_info("ending %u session%s", running, running == 1 ? "" : "s");
        rg_sessions_signal(&daemon->monitor.sessions, SIGTERM);
        daemon->phase_ends_ns = now + KILL_AFTER_NS;
        break;
    case KILLING:
        if (running)
            rg_warn("killing %u worker%s that did not end", running, running == 1 ? "" : "s");
        rg_sessions_signal(&daemon->monitor.sessions, SIGKILL);
        daemon->phase_ends_ns = UINT64_MAX;
        break;
    }
}

static void reload(struct daemon *daemon)
{
    const bool serving =
        daemon->phase == SERVING; /* a service that stops does nothing else for its manager */
    if (serving)
        rg_notify_reloading();
    if (daemon->monitor.policy.identity) {
        rg_info("SIGHUP: reading certificates again");
        rg_monitor_reload(&daemon->monitor);
    } else if (!daemon->settings->rules && !daemon->settings->etcd_cert && !daemon->settings->etcd_ca &&
               !daemon->settings->etcd_password_file) {
        rg_info("SIGHUP is ignored: settings are read at the start only");
    }
    rg_pool_reload(&daemon->monitor.pool, daemon->settings);
    rg_monitor_reload_rules(&daemon->monitor);
    if (daemon->settings->http_token_file &&
        !rg_logins_load_bearer(&daemon->monitor.logins, daemon->settings->http_token_file))
        rg_warn("the token before it stays");
    if (serving)
        rg_notify("READY=1");
}

static void handle_signals(struct daemon *daemon)
{
    struct signalfd_siginfo info;
    while (read(daemon->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGCHLD:
            rg_sessions_reap(&daemon->monitor.sessions);
            rg_warm_reap(&daemon->monitor.sessions);
            rg_accountant_reap(&daemon->monitor.accountant);
            rg_pool_reap(&daemon->monitor.pool);
            if (rg_frontend_reap(&daemon->monitor.frontend))
                rg_monitor_forget(&daemon->monitor);
            if (rg_frontend_reap(&daemon->monitor.http.process))
                rg_requests_forget_page(&daemon->requests);
            break;
        case SIGHUP:
            reload(daemon);
            break;
        case SIGUSR1:
            rg_info("SIGUSR1: to be started again%s",
                    daemon->monitor.sessions.n ? " as soon as no session runs" : "");
            daemon->replaced = true;
            break;
        default:
            if (daemon->phase == SERVING) {
                rg_info("%s", info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
                enter(daemon, WAITING);
            } else if (daemon->phase == WAITING) {
                enter(daemon, ENDING);
            }
        }
    }
}

static uint64_t sooner(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Measures sessions when it is time, and tells the accountant. Returns when to come again. */
static uint64_t see_to_accounts(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    if (!monitor->accountant.accounts)
        return UINT64_MAX;
    const uint64_t now = rg_now_ns(), revive = rg_accountant_revive(&monitor->accountant);
    if (now >= daemon->measure_ns) {
        rg_sessions_measure(&monitor->sessions);
        daemon->measure_ns = now + RG_ACCOUNTS_SAMPLE_NS;
    }
    const uint64_t flush = rg_accounts_flush(monitor->accountant.accounts, now);
    return sooner(sooner(revive, flush), monitor->sessions.n ? daemon->measure_ns : UINT64_MAX);
}

/* Does what is due without any event: starts, admits, measures, ends. Milliseconds until the next time, or -1. */
static int do_what_is_due(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    uint64_t next = sooner(daemon->reload_ns, daemon->requests_ns);
    if (daemon->phase == SERVING)
        next = sooner(next, rg_frontend_revive(&monitor->frontend));
    else
        next = sooner(next, daemon->phase_ends_ns);
    const uint64_t now = rg_now_ns();
    if (rg_probe_runs(&monitor->probe))
        next = sooner(next, monitor->probe.deadline_ns);
    next = sooner(next, rg_frontend_revive(&monitor->http.process));
    next = sooner(next, rg_gauges_sample(monitor));
    next = sooner(next, see_to_accounts(daemon));
    next = sooner(next, rg_pool_revive(&monitor->pool));
    next = sooner(next, rg_monitor_admit(monitor));
    next = sooner(next, rg_monitor_keep_warm(monitor));
    next = sooner(next, rg_sessions_expire(&monitor->sessions));
    next = sooner(next, rg_notify_alive());
    if (daemon->phase == WAITING && monitor->sessions.reconnect_s)
        next = sooner(next, now + WAITING_LOOK_NS);
    if (next == UINT64_MAX)
        return -1;
    const uint64_t left = next > now ? (next - now) / 1000000u + 1 : 0;
    return left < INT_MAX ? (int)left : INT_MAX;
}

/* One round: wait, then handle everything that is due. */
static void serve_once(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    const int timeout = do_what_is_due(daemon); /* first: it may start a frontend */
    struct rg_identity_store *identity = monitor->policy.identity;
    const struct rg_accounts *accounts = monitor->accountant.accounts;
    struct pollfd fds[9] = {
        {.fd = daemon->signals, .events = POLLIN},
        {.fd = monitor->frontend.killed ? -1 : monitor->frontend.socket, .events = POLLIN},
        {.fd = rg_probe_runs(&monitor->probe) ? monitor->probe.fd : -1, .events = POLLIN},
        {.fd = identity ? rg_identity_watch_fd(identity) : -1, .events = POLLIN},
        {.fd = accounts ? rg_accounts_socket(accounts) : -1, .events = POLLIN},
        {.fd = daemon->requests.fd, .events = POLLIN},
        {.fd = monitor->pool.wanted ? monitor->pool.socket : -1, .events = POLLIN},
        {.fd = rg_http_socket(&monitor->http), .events = POLLIN},
        {.fd = rg_warm_events(&monitor->sessions.warm),
         .events = POLLIN}, /* read when the next round begins */
    };
    if (poll(fds, sizeof fds / sizeof fds[0], timeout) < 0 && errno != EINTR) {
        rg_error("poll: %s", strerror(errno));
        return;
    }
    rg_monitor_probe(monitor);
    if (fds[4].revents)
        rg_accountant_receive(&monitor->accountant);
    if (fds[3].revents)
        rg_monitor_recheck(monitor);
    if (fds[6].revents)
        rg_pool_receive(&monitor->pool);
    if (rg_now_ns() >= daemon->reload_ns) {
        rg_monitor_reload(monitor);
        rg_pool_reload(&monitor->pool, daemon->settings);
        daemon->reload_ns = rg_now_ns() + RELOAD_NS;
    }
    if (fds[1].revents)
        rg_monitor_serve(monitor);
    if (fds[7].revents)
        rg_http_serve(monitor);
    if (fds[5].revents)
        rg_requests_take(&daemon->requests, monitor);
    daemon->requests_ns = rg_requests_look(&daemon->requests, monitor);
    if (fds[0].revents)
        handle_signals(daemon);
    if (daemon->replaced && daemon->phase == SERVING && monitor->sessions.n == 0) {
        daemon->status = EXIT_START_AGAIN;
        enter(daemon, WAITING);
    }
    if (daemon->phase == WAITING && monitor->sessions.reconnect_s) /* nobody comes back: nothing listens */
        rg_sessions_end_waiting(&monitor->sessions);
    rg_pool_count(&monitor->pool, &monitor->sessions);
    rg_job_map_update(&daemon->job_map, &monitor->sessions, &monitor->pool);
    if (daemon->phase != SERVING && daemon->phase != KILLING && rg_now_ns() >= daemon->phase_ends_ns)
        enter(daemon, daemon->phase + 1);
}

static void serve(struct daemon *daemon)
{
    while (daemon->phase == SERVING || daemon->monitor.sessions.n > 0)
        serve_once(daemon);
    rg_info("stopped");
}

int rg_daemon_run(const struct rg_daemon_settings *settings)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon)
        return EXIT_CANNOT_START;
    daemon->settings = settings;
    daemon->signals = daemon->requests.fd = daemon->requests.folder = daemon->job_map.folder = -1;
    daemon->monitor.requests = &daemon->requests;
    daemon->requests_ns = daemon->reload_ns = UINT64_MAX;
    daemon->startup.settings = settings;
    daemon->startup.monitor = &daemon->monitor;
    const bool started = start(daemon);
    if (started)
        serve(daemon);
    const int status = started ? daemon->status : EXIT_CANNOT_START;
    rg_listeners_close(&daemon->startup.listeners);
    rg_requests_close(&daemon->requests);
    rg_job_map_close(&daemon->job_map);
    struct rg_sandboxes *sandboxes = daemon->monitor.sandboxes;
    rg_monitor_fini(&daemon->monitor);
    rg_sandboxes_close(sandboxes);
    if (daemon->signals >= 0)
        close(daemon->signals);
    free(daemon);
    return status;
}
