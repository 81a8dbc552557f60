/*
 * daemon.c - the life of remote-gpud, the monitor, which has one thread.
 *
 * Start: find a driver, open the listeners, start the frontend (which alone talks to clients), say that it is
 * ready. Then one poll(2) over signals, the frontend's questions (monitor.c), the accountant's answers, the operator's
 * commands and a probe that may run: an idle server wakes up only to hear that the frontend lives. Stop: the first
 * SIGTERM or SIGINT shuts the listeners and waits for the running sessions; after the grace time or a second signal the
 * workers get SIGTERM (each tells its client), two seconds later SIGKILL. After SIGUSR1 it stops when there is no session: an
 * upgrade asks for that, and the service manager starts the new program.
 */
#include "server/daemon/daemon.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/path.h"
#include "common/cuda/behaviour.h"
#include "server/daemon/activation.h"
#include "server/daemon/audit.h"
#include "server/daemon/monitor.h"
#include "server/daemon/notify.h"
#include "server/daemon/quotas.h"
#include "server/daemon/requests.h"
#include "server/identity/identity.h"
#include "server/identity/state.h"
#include "transport/address.h"
#include "transport/connect/connect.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define KILL_AFTER_NS     2000000000ull
#define RELOAD_NS         (86400ull * 1000000000u)
#define EXIT_START_AGAIN  75 /* EX_TEMPFAIL; the unit has it started again */
#define EXIT_CANNOT_START 125
#define FRONTEND_UID      61180u /* nobody's: below what systemd gives to services without a user of their own */

enum phase {
    SERVING,
    WAITING, /* asked to stop; sessions may finish */
    ENDING,  /* workers have SIGTERM */
    KILLING, /* workers have SIGKILL */
};

struct daemon {
    const struct rg_daemon_settings *settings;
    struct rg_monitor monitor;
    struct rg_monitor_settings told; /* to the frontend */
    struct rg_listener *listeners[RG_LISTENERS_MAX];
    uint32_t n_listeners;
    bool inherited[RG_LISTENERS_MAX]; /* the service manager has it as well */
    bool open;                        /* other machines can reach it */
    int signals;
    struct rg_requests requests; /* of the operator's commands */
    uint64_t requests_ns;        /* when to look what has come of them */
    uint64_t measure_ns;         /* when sessions are measured next */
    uint64_t reload_ns;          /* when certificates are looked at by themselves */
    bool replaced;               /* SIGUSR1: another program is to take its place when there is no session */
    int status;
    enum phase phase;
    uint64_t phase_ends_ns; /* WAITING, ENDING: when the next one begins */
};

/* --- start -------------------------------------------------------------------------------------------------
 */

/* Whether `address` is one to listen on. */
static bool check_address(struct daemon *daemon, const char *address)
{
    char why[256] = "";
    bool local = false;
    if (rg_daemon_address_is_local(address, &local, why, sizeof why) != RG_OK) {
        rg_error("cannot listen on '%s': %s", address, why);
        return false;
    }
    if (!local)
        daemon->open = true;
    if (!local && daemon->settings->allow_unauthenticated)
        rg_warn("%s will be open to everybody who can reach it, encrypted or not (--allow-unauthenticated)",
                address);
    return true;
}

static bool check_addresses(struct daemon *daemon)
{
    const struct rg_text_list *wanted = &daemon->settings->listen;
    if (wanted->n + daemon->n_listeners > RG_LISTENERS_MAX) {
        rg_error("more than %d addresses to listen on", RG_LISTENERS_MAX);
        return false;
    }
    for (size_t i = 0; i < wanted->n; i++)
        if (!check_address(daemon, wanted->items[i]))
            return false;
    return true;
}

/* A socket in the file system is made for its user; one that everybody may use must let them write. */
static void open_to_everybody(const char *address)
{
    const char *path = strncmp(address, "unix:", 5) == 0 && address[5] != '@' ? address + 5 : NULL;
    if (path && chmod(path, 0666) != 0)
        rg_warn("%s cannot be opened to other users: %s", path, strerror(errno));
}

static enum rg_listener_reach reach_of(const char *address)
{
    bool local = false;
    if (strncmp(address, "unix:", 5) == 0)
        return RG_REACH_UNIX;
    return rg_daemon_address_is_local(address, &local, NULL, 0) == RG_OK && local ? RG_REACH_LOOPBACK
                                                                                  : RG_REACH_NETWORK;
}

static void add_listener(struct daemon *daemon, struct rg_listener *listener, bool inherited)
{
    struct rg_monitor_settings *told = &daemon->told;
    told->listeners[daemon->n_listeners].reach = reach_of(rg_listener_address(listener));
    snprintf(told->listeners[daemon->n_listeners].address, RG_CONTROL_TEXT, "%s",
             rg_listener_address(listener));
    daemon->inherited[daemon->n_listeners] = inherited;
    daemon->listeners[daemon->n_listeners++] = listener;
    told->n_listeners = daemon->n_listeners;
    rg_info("listening on %s%s", rg_listener_address(listener), inherited ? ", handed over" : "");
}

/* Sockets that a service manager has opened. */
static bool adopt_listeners(struct daemon *daemon)
{
    const struct rg_transport_options options = {.filters = ""};
    unsigned n;
    int first;
    if (!rg_activation_take(&first, &n))
        return false;
    for (int fd = first; fd < first + (int)n; fd++) {
        char why[256] = "";
        struct rg_listener *listener;
        if (rg_transport_adopt_listener(fd, &options, why, sizeof why, &listener) != RG_OK) {
            rg_error("descriptor %d, which the service manager has handed over, cannot be listened on: %s; "
                     "correct the socket unit (ListenStream=)",
                     fd, why);
            return false;
        }
        add_listener(daemon, listener, true);
        if (!check_address(daemon, rg_listener_address(listener)))
            return false;
    }
    return true;
}

static bool listen_on(struct daemon *daemon, const char *address, bool required)
{
    char why[256] = "";
    /* Filters would keep part of the conversation to themselves, and the worker takes the socket over. */
    const struct rg_transport_options options = {.filters = ""};
    struct rg_listener *listener;
    if (rg_transport_listen(address, &options, why, sizeof why, &listener) != RG_OK) {
        if (required)
            rg_error("cannot listen on %s: %s; --listen ADDRESS chooses another address or port", address,
                     why);
        else
            rg_debug("not listening on %s: %s", address, why);
        return !required;
    }
    if (daemon->settings->allow_unauthenticated)
        open_to_everybody(rg_listener_address(listener));
    add_listener(daemon, listener, false);
    return true;
}

static bool open_listeners(struct daemon *daemon)
{
    const struct rg_text_list *wanted = &daemon->settings->listen;
    for (size_t i = 0; i < wanted->n; i++)
        if (!listen_on(daemon, wanted->items[i], true))
            return false;
    if (daemon->n_listeners == 0)
        return listen_on(daemon, "127.0.0.1", true) && listen_on(daemon, "[::1]", false);
    return true;
}

static void write_addresses(const struct daemon *daemon, FILE *out)
{
    for (uint32_t i = 0; i < daemon->n_listeners; i++)
        fprintf(out, "%s\n", rg_listener_address(daemon->listeners[i]));
}

/* Whoever waits for the file sees all of it or nothing. */
static bool write_ready_file(const struct daemon *daemon, const char *path)
{
    char temporary[PATH_MAX];
    int size = snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    FILE *out = size < (int)sizeof temporary ? fopen(temporary, "we") : NULL;
    if (out) {
        write_addresses(daemon, out);
        if (fclose(out) == 0 && rename(temporary, path) == 0)
            return true;
        unlink(temporary);
    }
    rg_error("cannot write %s: %s", path, strerror(errno));
    return false;
}

static bool say_ready(const struct daemon *daemon)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    if (settings->ready_fd >= 0) {
        FILE *out = fdopen((int)settings->ready_fd, "w");
        if (!out) {
            rg_error("--ready-fd %d: %s", (int)settings->ready_fd, strerror(errno));
            return false;
        }
        write_addresses(daemon, out);
        fclose(out); /* a reader that has gone does not matter */
    }
    if (settings->ready_file && !write_ready_file(daemon, settings->ready_file))
        return false;
    rg_notify("READY=1");
    return true;
}

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
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like others */
    daemon->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (daemon->signals < 0)
        rg_error("signalfd: %s", strerror(errno));
    return daemon->signals >= 0;
}

/* Sessions and handshakes each take descriptors; the soft limit is often low for the sake of select(2) alone.
 */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The parts are found by this program's own file, which an upgrade may replace while it runs. */
static void remember_parts(void)
{
    char folder[PATH_MAX];
    if (rg_path_library("", folder, sizeof folder) == RG_OK)
        rg_path_set_library_dir(folder);
}

static const char *worker_path(const struct rg_daemon_settings *settings, char *buffer, size_t size)
{
    const char *path = settings->worker;
    remember_parts();
    if (!path) {
        if (rg_path_library("worker", buffer, size) != RG_OK) {
            rg_error("remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
            return NULL;
        }
        path = buffer;
    }
    if (access(path, X_OK) != 0) {
        rg_error("the worker program %s cannot be run: %s; the installation is incomplete", path,
                 strerror(errno));
        return NULL;
    }
    return path;
}

/* --- serving -----------------------------------------------------------------------------------------------
 */

/*
 * The frontend has them as well: they are to take nobody any more, whoever has them. What was handed over belongs to the
 * service manager: who comes by it waits for the next server, as the frontend closes its own when the server is to end.
 */
static void close_listeners(struct daemon *daemon)
{
    for (uint32_t i = 0; i < daemon->n_listeners; i++) {
        if (!daemon->inherited[i])
            (void)shutdown(rg_listener_fd(daemon->listeners[i]), SHUT_RDWR);
        rg_listener_destroy(daemon->listeners[i]);
    }
    daemon->n_listeners = 0;
}

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
        close_listeners(daemon);
        rg_monitor_drain(&daemon->monitor);
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
    } else if (!daemon->settings->rules) {
        rg_info("SIGHUP is ignored: settings are read at the start only");
    }
    rg_monitor_reload_rules(&daemon->monitor);
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
            (void)rg_frontend_reap(&daemon->monitor.http.process);
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
    uint64_t due = monitor->sessions.n ? daemon->measure_ns : UINT64_MAX;
    due = flush < due ? flush : due;
    return revive < due ? revive : due;
}

/* Milliseconds until something is due without any event, or -1. */
static int next_timeout(struct daemon *daemon)
{
    uint64_t due =
        daemon->phase == SERVING ? rg_frontend_revive(&daemon->monitor.frontend) : daemon->phase_ends_ns;
    const uint64_t now = rg_now_ns();
    if (rg_probe_runs(&daemon->monitor.probe) && daemon->monitor.probe.deadline_ns < due)
        due = daemon->monitor.probe.deadline_ns;
    const uint64_t beat = daemon->phase == SERVING ? rg_frontend_beat(&daemon->monitor.frontend) : UINT64_MAX;
    due = beat < due ? beat : due;
    const uint64_t http = rg_http_revive(&daemon->monitor.http);
    due = http < due ? http : due;
    const uint64_t accounts = see_to_accounts(daemon);
    due = accounts < due ? accounts : due;
    const uint64_t pool = rg_pool_revive(&daemon->monitor.pool);
    due = pool < due ? pool : due;
    const uint64_t admit = rg_monitor_admit(&daemon->monitor);
    due = admit < due ? admit : due;
    const uint64_t warm = rg_monitor_keep_warm(&daemon->monitor);
    due = warm < due ? warm : due;
    const uint64_t kill = rg_sessions_expire(&daemon->monitor.sessions);
    due = kill < due ? kill : due;
    const uint64_t alive = rg_notify_alive();
    due = alive < due ? alive : due;
    due = daemon->reload_ns < due ? daemon->reload_ns : due;
    due = daemon->requests_ns < due ? daemon->requests_ns : due;
    if (due == UINT64_MAX)
        return -1;
    const uint64_t left = due > now ? (due - now) / 1000000u + 1 : 0;
    return left < INT_MAX ? (int)left : INT_MAX;
}

/* One round: wait, then handle everything that is due. */
static void serve_once(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    const int timeout = next_timeout(daemon); /* first: it may start a frontend */
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
    rg_pool_count(&monitor->pool, &monitor->sessions);
    if (daemon->phase != SERVING && daemon->phase != KILLING && rg_now_ns() >= daemon->phase_ends_ns)
        enter(daemon, daemon->phase + 1);
}

static void serve(struct daemon *daemon)
{
    while (daemon->phase == SERVING || daemon->monitor.sessions.n > 0)
        serve_once(daemon);
    rg_info("stopped");
}

/* Whether there is an authority already. */
static bool has_authority(const struct rg_daemon_settings *settings)
{
    char folder[PATH_MAX], path[PATH_MAX], why[256];
    if (settings->state_dir)
        snprintf(folder, sizeof folder, "%s", settings->state_dir);
    else if (rg_identity_state_dir(folder, sizeof folder, why, sizeof why) != RG_OK)
        return false;
    return snprintf(path, sizeof path, "%s/ca.crt", folder) < (int)sizeof path && access(path, F_OK) == 0;
}

/* TLS is there where it is needed, where it was asked for, and where it was set up before. */
static bool wants_identity(const struct daemon *daemon)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    return (daemon->open && !settings->allow_unauthenticated) || settings->state_dir || settings->tls_ca ||
           settings->tls_cert || settings->tls_key || has_authority(settings);
}

static bool open_identity(struct daemon *daemon)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    char why[RG_CONTROL_REASON] = "";
    daemon->reload_ns = UINT64_MAX;
    if (!wants_identity(daemon))
        return true;
    const struct rg_identity_settings wanted = rg_daemon_settings_identity(settings);
    if (rg_identity_open(&wanted, &daemon->monitor.policy.identity, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    daemon->reload_ns = rg_now_ns() + RELOAD_NS;
    (void)rg_requests_open(&daemon->requests, rg_identity_folder(daemon->monitor.policy.identity));
    return true;
}

/* Accounts are kept in the state folder: where there is one, unless the operator says otherwise. */
static bool wants_accounts(const struct daemon *daemon)
{
    const char *accounts = daemon->settings->accounts;
    return strcmp(accounts, "on") == 0 || (strcmp(accounts, "auto") == 0 && daemon->monitor.policy.identity);
}

/* Before there is a frontend: what was used before must be known when sessions begin. */
static bool start_accounts(struct daemon *daemon)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    struct rg_monitor *monitor = &daemon->monitor;
    char folder[PATH_MAX] = "", why[512] = "";
    struct rg_state state;
    if (!wants_accounts(daemon))
        return true;
    enum rg_status status = RG_OK;
    if (settings->state_dir)
        snprintf(folder, sizeof folder, "%s", settings->state_dir);
    else
        status = rg_identity_state_dir(folder, sizeof folder, why, sizeof why);
    if (status == RG_OK)
        status = rg_state_open(&state, folder, true, why, sizeof why);
    if (status != RG_OK) {
        rg_error("there is no folder for accounts: %s", why);
        return false;
    }
    snprintf(folder, sizeof folder, "%s", state.path);
    rg_state_close(&state);
    status = rg_accountant_start(&monitor->accountant, monitor->sandboxes, folder,
                                 (uint64_t)settings->accounts_days * 86400u);
    monitor->sessions.accounts = monitor->accountant.accounts;
    return status == RG_OK;
}

/* After the first start it is for the operator to let users in. */
static void say_what_next(const struct daemon *daemon)
{
    struct rg_identity_store *identity = daemon->monitor.policy.identity;
    if (!identity)
        return;
    for (uint32_t i = 0; i < daemon->n_listeners; i++) {
        struct rg_address address;
        if (daemon->told.listeners[i].reach == RG_REACH_UNIX ||
            rg_address_parse(daemon->told.listeners[i].address, &address, NULL, 0) != RG_OK)
            continue;
        rg_identity_note_port(identity, address.port);
        break;
    }
    if (rg_identity_is_new(identity))
        rg_info(
            "this server has made an authority of its own in %s. To let somebody in: 'remote-gpud token "
            "--user NAME%s%s' prints a line; with it they run 'remote-gpu join LINE' on their machine, once",
            rg_identity_folder(identity), daemon->settings->state_dir ? " --state-dir " : "",
            daemon->settings->state_dir ? daemon->settings->state_dir : "");
}

/* The server's place in its pool is taken while it serves already. */
static bool start_pool(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    bool wanted = false;
    if (!rg_pool_check_settings(daemon->settings, &wanted))
        return false;
    if (!wanted)
        return true;
    snprintf(daemon->told.pool, sizeof daemon->told.pool, "%s", daemon->settings->pool);
    rg_monitor_open_pool(monitor);
    return rg_pool_start(&monitor->pool, monitor->sandboxes, daemon->settings,
                         rg_listener_address(daemon->listeners[0]), monitor->board_fd,
                         monitor->sessions.rdma);
}

/* Whom the frontend becomes. */
static bool find_frontend_user(struct daemon *daemon)
{
    const char *wanted = daemon->settings->frontend_user;
    int64_t number = FRONTEND_UID;
    const struct passwd *user = wanted ? getpwnam(wanted) : NULL;
    if (user)
        number = user->pw_uid;
    else if (wanted && rg_parse_integer(wanted, 1, UINT32_MAX - 1, &number, NULL, 0) != RG_OK)
        number = 0;
    if (number == 0) {
        rg_error("--frontend-user %s: there is no such user other than root", wanted);
        return false;
    }
    daemon->told.drop_uid = geteuid() == 0 ? (uint32_t)number : 0;
    return true;
}

static bool start_frontend(struct daemon *daemon)
{
    struct rg_monitor *monitor = &daemon->monitor;
    int listeners[RG_LISTENERS_MAX];
    daemon->told.allow_unauthenticated = daemon->settings->allow_unauthenticated;
    daemon->told.has_tls = monitor->policy.identity != NULL;
    daemon->told.gives = monitor->policy.identity && rg_identity_is_own(monitor->policy.identity);
    daemon->told.uid = geteuid();
    daemon->told.sandbox = rg_sandboxes_mode(monitor->sandboxes);
    daemon->told.measures = rg_sandboxes_measures(monitor->sandboxes);
    for (uint32_t i = 0; i < daemon->n_listeners; i++)
        listeners[i] = rg_listener_fd(daemon->listeners[i]);
    rg_frontend_init(&monitor->frontend, &rg_frontend_program, &daemon->told, monitor->board_fd, listeners);
    if (monitor->policy.identity) {
        struct rg_identity_material material;
        rg_identity_material(monitor->policy.identity, &material);
        if (rg_frontend_set_tls(&monitor->frontend, &material) != RG_OK)
            return false;
    }
    return rg_frontend_start(&monitor->frontend) == RG_OK && rg_frontend_wait_ready(&monitor->frontend);
}

static bool start_monitor(struct daemon *daemon, const char *worker)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    struct rg_monitor *monitor = &daemon->monitor;
    monitor->policy.allow_unauthenticated = settings->allow_unauthenticated;
    monitor->policy.uid = geteuid();
    for (uint32_t i = 0; i < daemon->n_listeners; i++)
        rg_who_listens(&monitor->policy, rg_listener_fd(daemon->listeners[i]));
    monitor->board = rg_board_create((uint32_t)settings->max_sessions, &monitor->board_fd);
    if (!monitor->board)
        return false;
    monitor->board->driver = monitor->driver;
    monitor->board->looked_ns = rg_now_ns();
    if (rg_sessions_init(&monitor->sessions, monitor->board, worker) != RG_OK)
        return false;
    rg_quotas_init(wants_accounts(daemon));
    uint32_t warm;
    if (!rg_warm_most(settings->warm_workers, &monitor->driver, &warm) ||
        rg_warm_open(&monitor->sessions.warm, warm, settings->warm_ns) != RG_OK)
        return false;
    if (rg_shares_open(&monitor->sessions.shares, &monitor->driver, (uint32_t)settings->max_sessions + warm,
                       settings->rules, settings->overcommit) != RG_OK)
        return false;
    rg_sessions_looked(&monitor->sessions, &monitor->driver);
    monitor->sessions.rdma = strcmp(settings->rdma, "allow") == 0;
    monitor->sessions.peers = strcmp(settings->peers, "allow") == 0;
    monitor->sessions.encrypt_control = strcmp(settings->encrypt, "control") == 0;
    monitor->sessions.max_of_one = (uint32_t)settings->max_sessions_of_one;
    monitor->sessions.sandboxes = monitor->sandboxes;
    monitor->sessions.reconnect_s = (uint32_t)((settings->reconnect_grace_ns + 999999999u) / 1000000000u);
    char netperf[PATH_MAX];
    if (!settings->no_netperf && rg_path_library("netperf", netperf, sizeof netperf) == RG_OK &&
        access(netperf, X_OK) == 0)
        rg_sessions_allow_netperf(&monitor->sessions, netperf);
    return start_accounts(daemon) && start_pool(daemon) && start_frontend(daemon) &&
           rg_http_start(monitor, &daemon->told, daemon->settings->frontend_user != NULL);
}

/* RDMA is only counted where there is a device for it. */
static struct rg_sandboxes *open_sandboxes(const struct rg_daemon_settings *settings)
{
    char why[1200] = "";
    struct rg_sandbox_settings wanted = {.uids = settings->worker_uids,
                                         .image_cache = getenv("REMOTE_GPU_IMAGE_CACHE"),
                                         .rdma = strcmp(settings->rdma, "allow") == 0 &&
                                                 access("/sys/class/infiniband", F_OK) == 0};
    struct rg_sandboxes *sandboxes = NULL;
    if (!rg_sandbox_mode_by_name(settings->sandbox, &wanted.mode) ||
        !rg_sandbox_share_by_name(settings->share_ipc, &wanted.share) ||
        !(sandboxes = rg_sandboxes_open(&wanted, why, sizeof why)))
        rg_error("%s", why);
    return sandboxes;
}

/* Whether the environment asks the software device not to confine kernels (docs/software-device.md). */
static bool kernels_roam(void)
{
    const char *guard = getenv("SOFTGPU_GUARD");
    return (guard && strcmp(guard, "0") == 0) || rg_behaviour_is_nvidia(getenv("SOFTGPU_BEHAVE"));
}

/*
 * GPUs whose kernels reach all memory of their process (docs/security.md). No driver can be asked to do without in one process; where it
 * is HMM, its kernel module can. False: no worker is to be left to its clients like that.
 */
static bool check_reach(const struct rg_driver *driver, enum rg_sandbox_mode mode)
{
    bool good = true;
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        const struct rg_device_info *device = &driver->devices[i];
        const bool tables = device->host_reach & RG_CONTROL_REACH_PAGE_TABLES;
        if (!device->host_reach)
            continue;
        rg_log(
            mode == RG_SANDBOX_STRICT ? RG_LOG_ERROR : RG_LOG_WARN,
            "GPU %u (%s): its kernels reach all memory of their process (%s), so a client can take over its "
            "own worker; the sandbox alone keeps that from others%s",
            device->ordinal, device->name, tables ? "ATS" : "HMM",
            tables ? "" : ". Load the module nvidia-uvm with uvm_disable_hmm=1 to be without");
        good = good && mode != RG_SANDBOX_STRICT;
    }
    if (!good)
        rg_error("--sandbox=strict, and kernels could take over their workers: see above");
    return good;
}

static bool find_driver(struct daemon *daemon)
{
    const char *wanted = daemon->settings->driver;
    struct rg_driver *driver = &daemon->monitor.driver;
    char why[RG_CONTROL_REASON] = "";
    daemon->monitor.sandboxes = open_sandboxes(daemon->settings);
    if (!daemon->monitor.sandboxes)
        return false;
    if (rg_driver_find(wanted, daemon->monitor.sandboxes, driver, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    if (!check_reach(driver, rg_sandboxes_mode(daemon->monitor.sandboxes)))
        return false;
    if (daemon->open && strcmp(wanted, "auto") == 0 && strcmp(driver->info.kind, "soft") == 0) {
        rg_error("NVIDIA's driver does not work here, and other machines' programs are not to run on this "
                 "machine's processor by mistake: mend the driver, or say that the software device is meant "
                 "with --driver soft");
        return false;
    }
    if (daemon->open && strcmp(driver->info.kind, "soft") == 0 && kernels_roam()) {
        rg_error("kernels of other machines' programs would not be confined to their own memory: remove "
                 "SOFTGPU_GUARD=0 and SOFTGPU_BEHAVE=nvidia from the environment, or listen on this machine "
                 "alone");
        return false;
    }
    return true;
}

static bool start(struct daemon *daemon, char *worker_buffer, size_t worker_size)
{
    const struct rg_daemon_settings *settings = daemon->settings;
    /* Mistakes first: they should not have to wait for a driver. While that is tried, signals end us as
     * usual. */
    bool pool;
    if (!adopt_listeners(daemon) || !check_addresses(daemon) || !rg_http_check_settings(daemon->settings) ||
        !find_frontend_user(daemon) || !rg_pool_check_settings(daemon->settings, &pool))
        return false;
    const char *worker = worker_path(settings, worker_buffer, worker_size);
    if (!worker || !open_identity(daemon) || !find_driver(daemon))
        return false;
    rg_audit_open(NULL);
    if (settings->no_grants)
        rg_audit_no_grants();
    raise_descriptor_limit();
    if (!open_signals(daemon) || !open_listeners(daemon) ||
        !rg_http_listen(&daemon->monitor.http, daemon->settings) || !start_monitor(daemon, worker))
        return false;
    say_what_next(daemon);
    return say_ready(daemon);
}

int rg_daemon_run(const struct rg_daemon_settings *settings)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon)
        return EXIT_CANNOT_START;
    daemon->settings = settings;
    daemon->signals = daemon->requests.fd = daemon->requests.folder = -1;
    daemon->requests_ns = UINT64_MAX;
    char worker[PATH_MAX];
    bool started = start(daemon, worker, sizeof worker);
    if (started)
        serve(daemon);
    const int status = started ? daemon->status : EXIT_CANNOT_START;
    close_listeners(daemon);
    rg_requests_close(&daemon->requests);
    struct rg_sandboxes *sandboxes = daemon->monitor.sandboxes;
    rg_monitor_fini(&daemon->monitor);
    rg_sandboxes_close(sandboxes);
    if (daemon->signals >= 0)
        close(daemon->signals);
    free(daemon);
    return status;
}
