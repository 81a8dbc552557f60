/* settings.c - the options of remote-gpud; see settings.h. */
#include "server/daemon/settings/settings.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/sync/adaptive_wait.h"
#include "server/commands/commands.h"
#include "server/daemon/settings/rails.h"
#include "server/daemon/workers/warm.h"
#include "server/sandbox/identities.h"
#include "transport/address.h"

#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_CONFIG    "/etc/remote-gpu/remote-gpud.conf"
#define AT(field)        offsetof(struct rg_daemon_settings, field)
#define OPTION(...)      RG_OPTION_ROW(struct rg_daemon_settings, __VA_ARGS__)
#define TEXT_OF(x)       TEXT_OF_(x)
#define TEXT_OF_(x)      #x
#define DEFAULT_PORT     TEXT_OF(RG_DEFAULT_PORT)
#define RECONNECT_MOST_S 100000000 /* as of all settings of seconds */

/* A time, as RG_OPTION_SECONDS has them, or auto. */
static enum rg_status parse_reconnect(const char *text, uint64_t *ns, bool *automatic)
{
    int64_t seconds = RG_RECONNECT_S;
    *automatic = strcmp(text, "auto") == 0;
    if (!*automatic && rg_parse_integer(text, 0, RECONNECT_MOST_S, &seconds, NULL, 0) != RG_OK)
        return rg_parse_duration(text, ns, NULL, 0);
    *ns = (uint64_t)seconds * 1000000000u;
    return RG_OK;
}

static enum rg_status check_reconnect(const char *text, char *why, size_t why_size)
{
    uint64_t ns;
    bool automatic;
    if (parse_reconnect(text, &ns, &automatic) == RG_OK)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is neither auto nor a number of seconds", text);
}

uint32_t rg_daemon_settings_reconnect(const struct rg_daemon_settings *settings, bool *automatic)
{
    uint64_t ns = 0;
    (void)!parse_reconnect(settings->reconnect_grace, &ns, automatic); /* check_reconnect has seen to it */
    const uint64_t seconds = ns / 1000000000u + (ns % 1000000000u != 0);
    return seconds < RECONNECT_MOST_S ? (uint32_t)seconds : RECONNECT_MOST_S;
}

/* The manual page remote-gpud.8 lists the same rows; a test compares them. */
static const struct rg_option table[] = {
    OPTION("listen", LIST, listen,
           "listen on ADDR:PORT, [V6]:PORT, *:PORT (all addresses), unix:/PATH or unix:@NAME; may be given "
           "several times (default: loopback, port " DEFAULT_PORT
           "). Clients of other machines need a certificate (remote-gpud token)",
           .letter = 'l', .argument = "ADDRESS"),
    OPTION("driver", TEXT, driver,
           "the CUDA driver that sessions run on: NVIDIA's if it works, else the software device (auto); the "
           "software device (soft); or a libcuda.so.1",
           .letter = 'd', .argument = "auto|soft|PATH", .value = "auto"),
    OPTION("max-sessions", INTEGER, max_sessions, "maximum number of concurrent sessions", .argument = "N",
           .value = TEXT_OF(RG_SESSIONS_DEFAULT), .min = 1, .max = 4096),
    OPTION("max-sessions-per-user", INTEGER, max_sessions_of_one,
           "maximum number of concurrent sessions of one user; 0: as many as there may be. What the user's "
           "token says may be less",
           .argument = "N", .value = "0", .min = 0, .max = 4096),
    OPTION("rules", TEXT, rules,
           "what sessions get of a GPU, and may ask for at most, by user and project: a JSON file "
           "(docs/shares.md); read again on SIGHUP",
           .argument = "FILE"),
    OPTION("overcommit", FLAG, overcommit,
           "let sessions' memory limits be more together than a GPU has: they are limits then, and no "
           "guarantees"),
    OPTION(
        "mps", TEXT, mps,
        "share GPUs by NVIDIA's multi-process service, whose nvidia-cuda-mps-control has its pipes in this "
        "folder, instead of by turns, where the rules do not say otherwise (docs/shares.md)",
        .argument = "DIR"),
    OPTION("accounts", CHOICE, accounts,
           "whether it is kept in the state folder what sessions use, for remote-gpu usage and quotas of GPU "
           "hours; auto: where there is such a folder, for certificates or by --state-dir",
           .argument = "auto|on|off", .value = "auto"),
    OPTION("accounts-days", INTEGER, accounts_days, "how long that is kept; 0: for ever", .argument = "N",
           .value = "400", .min = 0, .max = 100000),
    OPTION("grace", SECONDS, grace_ns, "when asked to stop, wait this long for running sessions",
           .argument = "SECONDS", .value = "30"),
    OPTION(
        "reconnect-grace", TEXT, reconnect_grace,
        "keep the session of a client that has lost its connection this long, so that it can reconnect; "
        "0: not at all; auto: a minute over TCP from another machine, but not where the session may move to "
        "RDMA",
        .argument = "auto|SECONDS", .value = "auto", .check = check_reconnect),
    OPTION(
        "rails", TEXT, rails,
        "which addresses of this server, on the same port, the clients of sessions by TLS are told of, for "
        "connections by other links than the one that they came by: those of the interfaces that it "
        "listens on (auto), none (off), or these",
        .argument = "auto|off|ADDRESS,...", .value = "auto", .check = rg_daemon_rails_check),
    OPTION("warm-workers", TEXT, warm_workers,
           "keep so many workers ready, with the driver initialised, for programs of those who had a session "
           "last; 0: none; auto: 2 with NVIDIA's driver, else none. What they hold of a GPU's memory is a "
           "session's when it needs it",
           .argument = "auto|N", .value = "auto"),
    OPTION("warm-time", SECONDS, warm_ns,
           "keep them this long after the last session of the same user on the same GPUs",
           .argument = "SECONDS", .value = "600"),
    OPTION("suspended-timeout", SECONDS, suspended_ns,
           "end a session that has been suspended this long without a call; 0: never", .argument = "SECONDS",
           .value = "0", .environment = "REMOTE_GPU_SUSPENDED_TIMEOUT"),
    OPTION("session-memory", SIZE, session_memory,
           "memory of this machine that a session may use beside device memory; 0: no limit (default: a "
           "quarter of what there is, at least 8G)",
           .argument = "SIZE", .environment = "REMOTE_GPU_SESSION_MEMORY"),
    OPTION("state-dir", TEXT, state_dir,
           "the folder of authority, certificate, tokens and users (default: $STATE_DIRECTORY; of root "
           "/var/lib/remote-gpu, else remote-gpu below $XDG_STATE_HOME or ~/.local/state)",
           .argument = "DIR"),
    OPTION("tls-ca", TEXT, tls_ca,
           "certificates of an authority of your own (PEM), whose users may come, instead of the server's",
           .argument = "FILE", .credential = true),
    OPTION("tls-cert", TEXT, tls_cert,
           "with it: the server's certificate, and those between it and the authority (PEM)",
           .argument = "FILE", .credential = true),
    OPTION("tls-key", TEXT, tls_key, "with it: the certificate's key (PEM)", .argument = "FILE",
           .credential = true),
    OPTION("tls-name", LIST, tls_names,
           "a name or address by which clients reach this server, besides those that it finds itself, for "
           "the certificate that it makes; may be given several times",
           .argument = "NAME"),
    OPTION("tls-allow", LIST, tls_allow,
           "with --tls-ca: only users of this name, or whose names begin so if it ends with '*'; may be "
           "given several times (default: all that the authority has certified)",
           .argument = "NAME"),
    OPTION("certificate-days", INTEGER, certificate_days,
           "how long certificates of users are valid; they renew themselves", .argument = "N",
           .value = TEXT_OF(RG_IDENTITY_DAYS_DEFAULT), .min = 1, .max = 3650),
    OPTION("keep-alive", INTEGER, keep_alive,
           "end a session whose client has been silent this long, as when it is stopped; 0: never",
           .argument = "SECONDS", .value = TEXT_OF(RG_KEEP_ALIVE_S), .min = 0, .max = 1 << 30,
           .environment = "REMOTE_GPU_KEEP_ALIVE"),
    OPTION("keep-alive-most", INTEGER, keep_alive_most,
           "the longest such time that a client may ask for, as for a program in a debugger",
           .argument = "SECONDS", .value = TEXT_OF(RG_KEEP_ALIVE_MOST_S), .min = 0, .max = 1 << 30,
           .environment = "REMOTE_GPU_KEEP_ALIVE_MOST"),
    OPTION("allow-unauthenticated", FLAG, allow_unauthenticated,
           "accept everybody, encrypted or not, also from other machines and on unix sockets: whoever "
           "reaches the port can run code on the GPUs"),
    OPTION("encrypt", CHOICE, encrypt,
           "what of an encrypted session is encrypted: everything, or not what goes over RDMA (control), if "
           "the client agrees",
           .argument = "always|control", .value = "always"),
    OPTION("rdma", CHOICE, rdma,
           "whether sessions may go on over RDMA; those that are encrypted, with --encrypt=control alone",
           .argument = "allow|deny", .value = "allow"),
    OPTION("peers", CHOICE, peers,
           "whether sessions of one client on several servers may be connected: this server then takes "
           "connections of others, and opens some to addresses that the client names",
           .argument = "allow|deny", .value = "allow"),
    OPTION("frontend-user", TEXT, frontend_user,
           "name or number of the user that the process becomes which talks to clients, where the server "
           "runs as root (default: one that nobody is, 61180)",
           .argument = "USER"),
    OPTION("no-netperf", FLAG, no_netperf,
           "do not answer measurements of the connection (remote-gpu netperf, doctor)"),
    OPTION("sandbox", CHOICE, sandbox,
           "confine the processes that serve clients: with what this machine can do (auto), all measures or "
           "no start (strict), letting through and logging what system calls and files would be refused "
           "(log), or not (off)",
           .argument = RG_SANDBOX_MODES, .value = "auto", .environment = "REMOTE_GPU_SANDBOX"),
    OPTION("worker-uids", TEXT, worker_uids,
           "when started as root, users that belong to nobody else: each identity's sessions get one "
           "(default: 60578-61179)",
           .argument = "FIRST-LAST"),
    OPTION(
        "share-ipc", CHOICE, share_ipc,
        "whose sessions may share memory and events by CUDA's handles, and so have a user in common: those "
        "of one identity, any, or none (then each session has its own user, and nothing is kept on disk)",
        .argument = RG_SANDBOX_SHARES, .value = "identity"),
    OPTION("pool", TEXT, pool,
           "be a server of the pool of this name, which gives out this server's GPUs (docs/pool.md)",
           .argument = "NAME"),
    OPTION("etcd", LIST, etcd,
           "with it: the members of the etcd cluster that the pool's servers agree by, like "
           "https://etcd1.example:2379; separated by commas, or given several times",
           .argument = "URL"),
    OPTION(
        "etcd-ca", TEXT, etcd_ca,
        "certificates of the authority of etcd's certificates (PEM; default: those that this machine trusts)",
        .argument = "FILE", .credential = true),
    OPTION("etcd-cert", TEXT, etcd_cert, "the certificate that is shown to etcd (PEM)", .argument = "FILE",
           .credential = true),
    OPTION("etcd-key", TEXT, etcd_key, "the certificate's key (PEM)", .argument = "FILE", .credential = true),
    OPTION("etcd-user", TEXT, etcd_user,
           "the user of etcd that this server is, where etcd has users (etcdctl auth enable)",
           .argument = "NAME"),
    OPTION("etcd-password-file", TEXT, etcd_password_file, "a file with the password of --etcd-user",
           .argument = "FILE", .credential = true),
    OPTION("pool-label", LIST, pool_labels,
           "a label of this server, which clients can ask for by --filter labels.NAME=VALUE; may be given "
           "several times",
           .argument = "NAME=VALUE"),
    OPTION(
        "pool-taint", LIST, pool_taints,
        "keep requests away from this server that do not tolerate this (remote-gpu run --tolerate); may be "
        "given several times",
        .argument = "NAME[=VALUE]"),
    OPTION("pool-preempt", TEXT, pool_preempt,
           "let the pool suspend leases of this server's GPUs for requests of higher priority, once they "
           "have had them for so long",
           .argument = "SECONDS"),
    OPTION("pool-operators", LIST, pool_operators,
           "certificates whose holders see all leases of the pool, take leases for others, renew and release "
           "them, as remote-gpud users names them; separated by commas, or given several times. Root and the "
           "server's user may by its unix sockets",
           .argument = "NAME"),
    OPTION("advertise", TEXT, advertise,
           "the address by which the pool's clients reach this server (default: the first that it listens "
           "on, with this machine's name where that is all of them)",
           .argument = "HOST[:PORT]"),
    OPTION("http", TEXT, http,
           "answer HTTP at this address: a status page, metrics for Prometheus at /metrics, /healthz and "
           "/readyz "
           "(docs/metrics.md); a port alone is one of this machine's own; what other machines reach is by "
           "TLS and "
           "for users alone",
           .argument = "[ADDR:]PORT"),
    OPTION("http-token-file", TEXT, http_token_file,
           "with it: a file with a bearer token by which /metrics is told as well, for a scraper without a "
           "certificate; only the server's user may read the file",
           .argument = "FILE", .credential = true),
    OPTION("job-mapping-dir", TEXT, job_mapping_dir,
           "write into this folder which sessions have each GPU, for dcgm-exporter's --hpc-job-mapping-dir "
           "(docs/metrics.md)",
           .argument = "DIR"),
    OPTION("wait", CHOICE, wait,
           "how sessions wait for their clients and for the GPU: sleep (block), poll (spin), or poll briefly "
           "and then sleep (auto, the default)",
           .argument = RG_WAIT_CHOICES, .environment = "REMOTE_GPU_WAIT"),
    OPTION("image-cache", TEXT, image_cache,
           "keep device code that clients have sent in this folder, so that it is sent only once; off: do "
           "not (default: $CACHE_DIRECTORY, or remote-gpu/images below $XDG_CACHE_HOME or ~/.cache)",
           .argument = "DIR|off", .environment = "REMOTE_GPU_IMAGE_CACHE"),
    OPTION("image-cache-size", SIZE, image_cache_size,
           "maximum size of what is kept there for each user; the least recently used files are removed",
           .argument = "SIZE", .value = "8G", .environment = "REMOTE_GPU_IMAGE_CACHE_SIZE"),
    OPTION("log", CHOICE, log, "how much is logged to stderr", .argument = "error|warn|info|debug",
           .value = "info", .environment = "REMOTE_GPU_LOG"),
    OPTION("ready-fd", INTEGER, ready_fd,
           "when listening, write the addresses to this descriptor, one per line, and close it",
           .argument = "FD", .value = "-1", .min = -1, .max = 1 << 20, .not_in_file = true),
    OPTION("ready-file", TEXT, ready_file, "the same to a file, which appears once it is complete",
           .argument = "PATH", .not_in_file = true),
    OPTION("config", TEXT, config,
           "file of settings like 'max-sessions = 8', which flags override (default: " SYSTEM_CONFIG
           ", if it exists)",
           .letter = 'c', .argument = "FILE", .not_in_file = true),
    OPTION("no-grants", FLAG, no_grants, NULL, .not_in_file = true),
    OPTION("worker", TEXT, worker, NULL, .argument = "PATH", .not_in_file = true),
    OPTION("foreground", FLAG, foreground, "stay in the foreground, as it always does", .not_in_file = true),
    OPTION("help", FLAG, help, "show this", .letter = 'h', .not_in_file = true),
    OPTION("version", FLAG, version, "show the version", .not_in_file = true),
};

static void print_help(const struct rg_options *options)
{
    printf("Usage: remote-gpud [OPTION…]\n"
           "       remote-gpud SUBCOMMAND [OPTION…]\n"
           "Lets CUDA programs of other machines use this machine's GPUs.\n\nSubcommands, which work on the "
           "state folder while the server runs:\n");
    rg_command_list(stdout);
    printf("\nOptions:\n");
    rg_options_help(options, stdout);
    printf("\nSignals: SIGTERM or SIGINT stops (a second one at once); SIGHUP reads certificates and rules "
           "again; SIGUSR1 "
           "stops as soon as there is no session.\n"
           "Exit status: 0 stopped by a signal, 75 by SIGUSR1, 125 could not start.\n");
}

static enum rg_status load_config(struct rg_daemon_settings *settings, char *why, size_t why_size)
{
    enum rg_status status = rg_options_load_file(
        &settings->options, settings->config ? settings->config : SYSTEM_CONFIG, why, why_size);
    if (status == RG_ERR_NOT_FOUND && !settings->config)
        return RG_OK;
    return status;
}

/* What a service manager hands over (LoadCredential=) under the name of an option, where nothing else sets that one. */
static enum rg_status load_credentials(struct rg_options *options, char *why, size_t why_size)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (!folder || !*folder)
        return RG_OK;
    RG_TRY(rg_options_load_credentials(options, folder, why, why_size));
    for (size_t i = 0; i < options->n; i++)
        if (options->table[i].credential &&
            rg_options_source(options, options->table[i].offset) == options->load)
            rg_info("--%s is the credential that the service manager has handed over",
                    options->table[i].name);
    return RG_OK;
}

enum rg_daemon_start rg_daemon_settings_load(struct rg_daemon_settings *settings, int argc, char **argv)
{
    memset(settings, 0, sizeof *settings);
    struct rg_options *options = &settings->options;
    rg_options_init(options, table, sizeof table / sizeof table[0], settings, 0);
    char why[512] = "";
    int next = argc;
    if (rg_options_load_arguments(options, argc, argv, &next, why, sizeof why) != RG_OK) {
        rg_error("%s; see remote-gpud --help", why);
        return RG_DAEMON_EXIT_FAILURE;
    }
    if (settings->help) {
        print_help(options);
        return RG_DAEMON_EXIT_OK;
    }
    if (settings->version) {
        printf("remote-gpud %s\n", RG_VERSION);
        return RG_DAEMON_EXIT_OK;
    }
    if (next < argc) {
        rg_error("'%s' is neither an option nor a subcommand; see remote-gpud --help", argv[next]);
        return RG_DAEMON_EXIT_FAILURE;
    }
    if (rg_options_load_environment(options, why, sizeof why) != RG_OK ||
        load_config(settings, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_DAEMON_EXIT_FAILURE;
    }
    (void)rg_log_set_level_by_name(settings->log); /* one of the choices */
    if (load_credentials(options, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_DAEMON_EXIT_FAILURE;
    }
    if (settings->listen.n == 0 && rg_options_is_set(options, AT(listen))) {
        rg_error("the list of addresses to listen on is empty; leave it out for the loopback addresses");
        return RG_DAEMON_EXIT_FAILURE;
    }
    int64_t warm;
    if (strcmp(settings->warm_workers, "auto") != 0 &&
        rg_parse_integer(settings->warm_workers, 0, RG_WARM_MAX, &warm, NULL, 0) != RG_OK) {
        rg_error("warm-workers is auto, or how many workers are kept ready, 0 to %d; not '%s'", RG_WARM_MAX,
                 settings->warm_workers);
        return RG_DAEMON_EXIT_FAILURE;
    }
    return RG_DAEMON_SERVE;
}

struct rg_identity_settings rg_daemon_settings_identity(const struct rg_daemon_settings *settings)
{
    return (struct rg_identity_settings){
        .state_dir = settings->state_dir,
        .ca_file = settings->tls_ca,
        .certificate_file = settings->tls_cert,
        .key_file = settings->tls_key,
        .names = (const char *const *)settings->tls_names.items,
        .n_names = settings->tls_names.n,
        .allowed = (const char *const *)settings->tls_allow.items,
        .n_allowed = settings->tls_allow.n,
        .certificate_days = (uint32_t)settings->certificate_days,
    };
}

void rg_daemon_settings_fini(struct rg_daemon_settings *settings)
{
    rg_options_fini(&settings->options);
}

enum rg_status rg_daemon_address_is_local(const char *address, bool *local, char *why, size_t why_size)
{
    struct rg_address parsed;
    RG_TRY(rg_address_parse(address, &parsed, why, why_size));
    *local = true;
    if (strcmp(parsed.scheme, "unix") == 0)
        return RG_OK;
    if (strcmp(parsed.scheme, "tcp") != 0)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "a server listens on TCP or unix sockets, not '%s:'",
                         parsed.scheme);
    if (strcmp(parsed.host, "*") == 0 || parsed.host[0] == 0) {
        *local = false;
        return RG_OK;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int error = getaddrinfo(parsed.host, NULL, &hints, &found);
    if (error != 0)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "%s: %s", parsed.host, gai_strerror(error));
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        *local = *local && rg_address_is_loopback(at->ai_addr);
    freeaddrinfo(found);
    return RG_OK;
}
