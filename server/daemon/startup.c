/* startup.c - see startup.h. */
#include "server/daemon/startup.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/path.h"
#include "server/daemon/driver/driver_choice.h"
#include "server/daemon/grant/quotas.h"
#include "server/daemon/persistence.h"
#include "server/daemon/settings/rails.h"
#include "server/identity/identity.h"
#include "transport/address.h"
#include "transport/connect/connect.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRONTEND_UID 61180u /* nobody's: below what systemd gives to services without a user of their own */

/* --- before there is a driver ---------------------------------------------------------------------------------- */

/* The parts are found by this program's own file, which an upgrade may replace while it runs. */
static void remember_parts(void)
{
    char folder[PATH_MAX];
    if (rg_path_library("", folder, sizeof folder) == RG_OK)
        rg_path_set_library_dir(folder);
}

static bool find_worker(struct rg_startup *startup)
{
    startup->worker = startup->settings->worker;
    remember_parts();
    if (!startup->worker) {
        if (rg_path_library("worker", startup->worker_path, sizeof startup->worker_path) != RG_OK) {
            rg_error("remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
            return false;
        }
        startup->worker = startup->worker_path;
    }
    if (access(startup->worker, X_OK) != 0) {
        rg_error("the worker program %s cannot be run: %s; the installation is incomplete", startup->worker,
                 strerror(errno));
        return false;
    }
    return true;
}

/* Whom the frontend becomes. */
static bool find_frontend_user(struct rg_startup *startup)
{
    const char *wanted = startup->settings->frontend_user;
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
    startup->told.drop_uid = rg_sandbox_can_become((uid_t)number) ? (uint32_t)number : 0;
    if (geteuid() != 0 || startup->told.drop_uid)
        return true;
    rg_log(wanted ? RG_LOG_ERROR : RG_LOG_INFO,
           "the process that talks to clients %s %u: this user namespace has no such user and group, or the "
           "server lacks CAP_SETUID, CAP_SETGID or CAP_SYS_CHROOT",
           wanted ? "cannot become --frontend-user" : "stays the server's user and does not become",
           (unsigned)number);
    return !wanted;
}

bool rg_startup_check(struct rg_startup *startup)
{
    const struct rg_daemon_settings *settings = startup->settings;
    bool pool;
    return rg_listeners_adopt(&startup->listeners, settings) &&
           rg_listeners_check(&startup->listeners, settings) && rg_http_check_settings(settings) &&
           (!settings->http_token_file ||
            rg_logins_load_bearer(&startup->monitor->logins, settings->http_token_file)) &&
           find_frontend_user(startup) && rg_pool_check_settings(settings, &pool) && find_worker(startup);
}

/* --- the driver -------------------------------------------------------------------------------------------------- */

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

bool rg_startup_find_driver(struct rg_startup *startup)
{
    struct rg_monitor *monitor = startup->monitor;
    monitor->sandboxes = open_sandboxes(startup->settings);
    return monitor->sandboxes &&
           rg_driver_choose(startup->settings->driver, startup->listeners.open, monitor->sandboxes,
                            &monitor->driver) &&
           rg_persistence_open_identity(monitor, startup->settings, startup->listeners.open);
}

/* --- the processes ----------------------------------------------------------------------------------------------- */

/* The server's place in its pool is taken while it serves already. */
static bool start_pool(struct rg_startup *startup)
{
    struct rg_monitor *monitor = startup->monitor;
    bool wanted = false;
    if (!rg_pool_check_settings(startup->settings, &wanted))
        return false;
    monitor->pool.operators = &startup->settings->pool_operators;
    if (!wanted)
        return true;
    snprintf(startup->told.pool, sizeof startup->told.pool, "%s", startup->settings->pool);
    rg_monitor_open_pool(monitor);
    const char *state = monitor->policy.identity ? rg_identity_folder(monitor->policy.identity) : NULL;
    return rg_pool_start(&monitor->pool, monitor->sandboxes, startup->settings,
                         rg_listener_address(startup->listeners.items[0]), state, monitor->board_fd,
                         monitor->sessions.rdma);
}

static bool start_frontend(struct rg_startup *startup)
{
    struct rg_monitor *monitor = startup->monitor;
    int listeners[RG_LISTENERS_MAX];
    startup->told.allow_unauthenticated = startup->settings->allow_unauthenticated;
    startup->told.has_tls = monitor->policy.identity != NULL;
    startup->told.gives = monitor->policy.identity && rg_identity_is_own(monitor->policy.identity);
    startup->told.uid = geteuid();
    startup->told.unmapped = rg_who_unmapped();
    startup->told.sandbox = rg_sandboxes_mode(monitor->sandboxes);
    startup->told.measures = rg_sandboxes_measures(monitor->sandboxes);
    startup->told.n_listeners = startup->listeners.n;
    for (uint32_t i = 0; i < startup->listeners.n; i++) {
        startup->told.listeners[i].reach = startup->listeners.reach[i];
        snprintf(startup->told.listeners[i].address, RG_CONTROL_TEXT, "%s",
                 rg_listener_address(startup->listeners.items[i]));
        listeners[i] = rg_listener_fd(startup->listeners.items[i]);
    }
    rg_frontend_init(&monitor->frontend, &rg_frontend_program, &startup->told, monitor->board_fd, listeners);
    if (monitor->policy.identity) {
        struct rg_identity_material material;
        rg_identity_material(monitor->policy.identity, &material);
        if (rg_frontend_set_tls(&monitor->frontend, &material) != RG_OK)
            return false;
    }
    return rg_frontend_start(&monitor->frontend) == RG_OK && rg_frontend_wait_ready(&monitor->frontend);
}

static bool start_monitor(struct rg_startup *startup)
{
    const struct rg_daemon_settings *settings = startup->settings;
    struct rg_monitor *monitor = startup->monitor;
    monitor->policy.allow_unauthenticated = settings->allow_unauthenticated;
    monitor->policy.uid = geteuid();
    monitor->policy.unmapped = rg_who_unmapped();
    for (uint32_t i = 0; i < startup->listeners.n; i++)
        rg_who_listens(&monitor->policy, rg_listener_fd(startup->listeners.items[i]));
    monitor->board = rg_board_create((uint32_t)settings->max_sessions, &monitor->board_fd);
    if (!monitor->board)
        return false;
    monitor->board->driver = monitor->driver;
    monitor->board->looked_ns = rg_now_ns();
    if (rg_sessions_init(&monitor->sessions, monitor->board, startup->worker) != RG_OK)
        return false;
    rg_quotas_init(rg_persistence_wants_accounts(monitor, settings));
    uint32_t warm;
    if (!rg_warm_most(settings->warm_workers, &monitor->driver, &warm) ||
        rg_warm_open(&monitor->sessions.warm, warm, settings->warm_ns) != RG_OK)
        return false;
    if (rg_shares_open(&monitor->sessions.shares, &monitor->driver, (uint32_t)settings->max_sessions + warm,
                       settings->rules, settings->overcommit, settings->mps) != RG_OK)
        return false;
    rg_sessions_looked(&monitor->sessions, &monitor->driver);
    monitor->sessions.rdma = strcmp(settings->rdma, "allow") == 0;
    monitor->sessions.peers = strcmp(settings->peers, "allow") == 0;
    monitor->sessions.encrypt_control = strcmp(settings->encrypt, "control") == 0;
    monitor->sessions.max_of_one = (uint32_t)settings->max_sessions_of_one;
    monitor->sessions.sandboxes = monitor->sandboxes;
    monitor->sessions.reconnect_s =
        rg_daemon_settings_reconnect(settings, &monitor->sessions.reconnect_automatic);
    rg_daemon_rails_begin(&monitor->sessions.rails, settings->rails, &startup->listeners);
    rg_daemon_rails_describe(&monitor->sessions.rails, monitor->driver.machine.tcp_rails,
                             sizeof monitor->driver.machine.tcp_rails);
    monitor->board->driver.machine = monitor->driver.machine; /* nobody reads it yet */
    char netperf[PATH_MAX];
    if (!settings->no_netperf && rg_path_library("netperf", netperf, sizeof netperf) == RG_OK &&
        access(netperf, X_OK) == 0)
        rg_sessions_allow_netperf(&monitor->sessions, netperf);
    return rg_persistence_start_accounts(monitor, settings) && start_pool(startup) &&
           start_frontend(startup) && rg_http_start(monitor, &startup->told, settings->frontend_user != NULL);
}

/* After the first start it is for the operator to let users in. */
static void say_what_next(const struct rg_startup *startup)
{
    struct rg_identity_store *identity = startup->monitor->policy.identity;
    if (!identity)
        return;
    for (uint32_t i = 0; i < startup->listeners.n; i++) {
        struct rg_address address;
        if (startup->listeners.reach[i] == RG_REACH_UNIX ||
            rg_address_parse(rg_listener_address(startup->listeners.items[i]), &address, NULL, 0) != RG_OK)
            continue;
        rg_identity_note_port(identity, address.port);
        break;
    }
    if (rg_identity_is_new(identity))
        rg_info(
            "this server has made an authority of its own in %s. To let somebody in: 'remote-gpud token "
            "--user NAME%s%s' prints a line; with it they run 'remote-gpu join LINE' on their machine, once",
            rg_identity_folder(identity), startup->settings->state_dir ? " --state-dir " : "",
            startup->settings->state_dir ? startup->settings->state_dir : "");
}

/* Users of one server of a pool are sent to the others, which have to know their certificates. */
static void warn_of_own_authority(const struct rg_startup *startup)
{
    const struct rg_daemon_settings *settings = startup->settings;
    bool open = false;
    for (uint32_t i = 0; i < startup->listeners.n; i++)
        open = open || startup->listeners.reach[i] == RG_REACH_NETWORK;
    if (settings->pool && open && !settings->tls_ca && !settings->allow_unauthenticated)
        rg_warn("pool %s: the certificates that this server's own authority gives its users are not known to "
                "other servers, "
                "to which the pool sends them; give all of them certificates of one authority, by --tls-ca, "
                "--tls-cert and --tls-key",
                settings->pool);
}

bool rg_startup_serve(struct rg_startup *startup)
{
    const struct rg_daemon_settings *settings = startup->settings;
    if (!rg_listeners_open(&startup->listeners, settings) ||
        !rg_http_listen(&startup->monitor->http, settings) || !start_monitor(startup))
        return false;
    say_what_next(startup);
    warn_of_own_authority(startup);
    return true;
}
