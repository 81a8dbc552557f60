/*
 * options.c - the options of remote-gpu's subcommands, one row each: where it may be set, what it may be, and the sentence about it in
 * --help. See settings.h; the manual pages list the same rows, and a test compares them.
 */
#include "client/cli/base/options.h"

#include "client/core/optimisations.h"
#include "common/sync/adaptive_wait.h"
#include "proto/accounts/usage.h"
#include "transport/multipath/multipath.h"
#include "transport/topology/rails.h"

#define OPTION(...) RG_OPTION_ROW(struct rg_cli_settings, __VA_ARGS__)
#define QUESTIONS   (RG_CLI_LIST | RG_CLI_HEALTH | RG_CLI_SMI | RG_CLI_VERSION | RG_CLI_USAGE | RG_CLI_QUOTA)
#define WITH_SERVER                                                                                          \
    (RG_CLI_RUN | RG_CLI_CDI | QUESTIONS | RG_CLI_PAGE | RG_CLI_NETPERF | RG_CLI_COMPARE | RG_CLI_DOCTOR |   \
     RG_CLI_VERIFY_LIMITS | POOL)
#define POOL  (RG_CLI_REQUEST | RG_CLI_RENEW | RG_CLI_RELEASE)
#define WANTS (RG_CLI_RUN | RG_CLI_REQUEST) /* GPUs */

static enum rg_status check_connections(const char *text, char *why, size_t why_size)
{
    unsigned channels;
    bool adaptive;
    return rg_multipath_channels_parse(text, &channels, &adaptive, why, why_size);
}

const struct rg_option rg_cli_options[] = {
    OPTION("server", LIST, server,
           "the server; a,b: the GPUs of both; a|b: the first that answers. -l is the same. Where none is "
           "named: the one that was joined last",
           .letter = 's', .also = 'l', .argument = "HOST[:PORT][,…]", .value = "127.0.0.1",
           .commands = WITH_SERVER, .environment = "REMOTE_GPU_SERVER"),
    OPTION("credentials", TEXT, credentials,
           "where ca.crt, tls.crt and tls.key are (default: where join has put them)", .argument = "FOLDER",
           .commands = WITH_SERVER | RG_CLI_JOIN, .environment = "REMOTE_GPU_CREDENTIALS"),
    OPTION("allow-unauthenticated", FLAG, allow_unauthenticated,
           "use servers without credentials over the network: unencrypted, and not knowing who they are",
           .commands = WITH_SERVER, .environment = "REMOTE_GPU_ALLOW_UNAUTHENTICATED"),
    OPTION("encrypt", CHOICE, encrypt,
           "what must be encrypted where TLS is spoken: all, or no more than the handshake, so that the "
           "session may go by RDMA, calls and data unencrypted",
           .argument = "always|control", .value = "always", .commands = RG_CLI_RUNS,
           .environment = "REMOTE_GPU_ENCRYPT"),
    OPTION("rdma", CHOICE, rdma, "whether RDMA may be used at all", .argument = "allow|deny",
           .value = "allow", .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_RDMA_POLICY"),
    OPTION("force", FLAG, force, "replace the credentials that there are for this server",
           .commands = RG_CLI_JOIN, .not_in_file = true),
    OPTION("gpus", INTEGER, gpus, "how many GPUs the command sees (default: all; of a pool: 1)",
           .letter = 'n', .argument = "GPUS", .min = 1, .max = 64, .commands = WANTS,
           .environment = "REMOTE_GPU_GPUS"),
    OPTION("memory", SIZE, memory,
           "at most, and guaranteed, so much memory of each GPU, like 8G (default: what the server gives)",
           .letter = 'm', .argument = "MEMORY", .commands = WANTS | RG_CLI_CDI,
           .environment = "REMOTE_GPU_MEMORY"),
    OPTION("fraction", FRACTION, fraction, "the same as a part of each GPU's memory, like 0.5 or 50%",
           .letter = 'p', .argument = "FRACTION", .commands = WANTS | RG_CLI_CDI,
           .environment = "REMOTE_GPU_FRACTION"),
    OPTION("compute", FRACTION, compute,
           "at most this part of each GPU's time, like 0.25 or 25%, also while nobody else uses it",
           .argument = "FRACTION", .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_COMPUTE"),
    OPTION("weight", INTEGER, weight,
           "how much of a GPU's time others leave to the command where they use it as well, 1 to 1000 "
           "(default: what the server gives, usually 100)",
           .argument = "N", .min = 1, .max = RG_SHARE_WEIGHT_MAX, .commands = RG_CLI_RUNS,
           .environment = "REMOTE_GPU_WEIGHT"),
    OPTION("priority", CHOICE, priority,
           "whose work goes first on a GPU that several use, and in a pool's queue (default: what the server "
           "gives, usually normal)",
           .argument = "low|normal|high", .commands = RG_CLI_RUNS | RG_CLI_REQUEST,
           .environment = "REMOTE_GPU_PRIORITY"),
    OPTION("exclusive", FLAG, exclusive, "have the GPUs alone: no other session while the command runs",
           .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_EXCLUSIVE"),
    OPTION("idle-timeout", SECONDS, idle_timeout_ns,
           "let the server take the command's GPU memory away, and bring it back at the next call, when no "
           "GPU was used for so long (default: what the server says)",
           .argument = "SECONDS", .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_IDLE_TIMEOUT"),
    OPTION("project", TEXT, project, "whose account the GPUs' use goes to, and whose quotas hold",
           .argument = "NAME", .commands = WANTS | RG_CLI_CDI | RG_CLI_QUOTA,
           .environment = "REMOTE_GPU_PROJECT"),
    OPTION("filter", LIST, filters,
           "of a pool: only GPUs and servers like this, as 'device.memory>=40G' or 'server.has-rdma=true'; "
           "may be given several times (docs/pool.md has the keys)",
           .argument = "KEY=VALUE", .commands = WANTS, .not_in_file = true),
    OPTION("tolerate", LIST, tolerations,
           "of a pool: also servers with this taint, of this value or of any; may be given several times",
           .argument = "NAME[=VALUE]", .commands = WANTS, .not_in_file = true),
    OPTION("wait-for", OPTIONAL_TEXT, wait_for,
           "of a pool: wait in its queue where GPUs are not free, so long, like 10m (default: as long as it "
           "takes)",
           .argument = "TIME", .commands = WANTS, .not_in_file = true),
    OPTION("spread", FLAG, spread, "of a pool: the GPUs may be on several servers (default: all on one)",
           .commands = WANTS, .not_in_file = true),
    OPTION("lease", TEXT, lease,
           "of a pool: run with the GPUs of this lease, which remote-gpu request has printed",
           .argument = "LEASE", .commands = RG_CLI_RUN, .not_in_file = true),
    OPTION("for", SECONDS, keep_ns, "how long the lease is kept at most, from now on", .argument = "TIME",
           .value = "8h", .commands = RG_CLI_REQUEST | RG_CLI_RENEW, .not_in_file = true),
    OPTION("device", LIST, devices,
           "the GPU with this UUID and no other; may be given several times, on several servers",
           .argument = "UUID", .commands = RG_CLI_REQUEST, .not_in_file = true),
    OPTION("user", TEXT, user,
           "as an operator of the pool: whose lease it is to be, by the name of the certificate, or uid:N",
           .letter = 'u', .argument = "NAME", .commands = RG_CLI_REQUEST, .not_in_file = true),
    OPTION("job", TEXT, job,
           "what the lease is for, as a batch system numbers it: list and the servers' --job-mapping-dir "
           "tell it",
           .argument = "TEXT", .commands = RG_CLI_REQUEST, .not_in_file = true),
    OPTION("id", TEXT, lease_id,
           "as an operator: the lease's id, 16 hexadecimal digits; who asks again by it gets the same lease",
           .argument = "ID", .commands = RG_CLI_REQUEST, .not_in_file = true),
    OPTION("local", FLAG, local, "start a private server on this machine for this command alone",
           .commands = RG_CLI_RUN, .not_in_file = true),
    OPTION("driver", TEXT, driver, "the CUDA driver of the private server (see remote-gpud)",
           .argument = "auto|soft|PATH", .value = "auto", .commands = RG_CLI_RUN),
    OPTION("transport", CHOICE, transport, "how data travels", .argument = "auto|tcp|rdma", .value = "auto",
           .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_TRANSPORT"),
    OPTION("wait", CHOICE, wait,
           "how calls wait: sleep (block), poll (spin), or poll briefly and then sleep (auto, the default)",
           .argument = RG_WAIT_CHOICES, .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_WAIT"),
    OPTION("keep-alive", INTEGER, keep_alive,
           "give up a server that has been silent this long (default: 120), and ask it to be as patient with "
           "the command, as when that is to be stopped in a debugger; 0: never",
           .argument = "SECONDS", .min = 0, .max = 1 << 30, .commands = RG_CLI_RUNS,
           .environment = "REMOTE_GPU_KEEP_ALIVE"),
    OPTION("connections", TEXT, connections,
           "how many connections carry bulk data besides the first, 0 to 8; auto: as many as help",
           .argument = "auto|N", .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_CONNECTIONS",
           .check = check_connections),
    OPTION(
        "rails", TEXT, rails,
        "which RDMA adapters, or over TCP network interfaces, share large transfers: all if that is faster "
        "(auto, the default), all (always), one (off), at most N, or the listed devices, interfaces or "
        "addresses of this machine",
        .argument = "auto|always|off|N|LIST", .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_RAILS",
        .check = rg_rails_check),
    OPTION("compress", CHOICE, compress, "compress bulk data; auto: while that is faster",
           .argument = "none|lz4|zstd|auto", .value = "none", .commands = RG_CLI_RUNS,
           .environment = "REMOTE_GPU_COMPRESS"),
    OPTION("opt", TEXT, opt, "switch optimisations off or on by name: -all, -NAME, NAME", .argument = "LIST",
           .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_OPT", .check = rg_optimisations_check),
    OPTION(
        "stats", OPTIONAL_TEXT, stats,
        "at the end of each process, append counts of calls, round trips and bytes to FILE (default: stderr)",
        .argument = "FILE", .commands = RG_CLI_RUN, .environment = "REMOTE_GPU_STATS"),
    OPTION("profile", OPTIONAL_TEXT, profile,
           "write where time goes to FILE (default: remote-gpu-profile.%p.json), and a summary to stderr",
           .argument = "FILE", .commands = RG_CLI_RUN, .environment = "REMOTE_GPU_PROFILE"),
    OPTION("record", OPTIONAL_TEXT, record,
           "write a trace for remote-gpu predict to FILE (default: remote-gpu-trace.%p.rgt)",
           .argument = "FILE", .commands = RG_CLI_RUN, .environment = "REMOTE_GPU_RECORD"),
    OPTION("no-check", FLAG, no_check, "do not check that the server answers before the command starts",
           .commands = RG_CLI_RUN),
    OPTION("no-preload", FLAG, no_preload,
           "have the command find the driver's libraries by LD_LIBRARY_PATH alone", .commands = RG_CLI_RUN),
    OPTION("timeout", SECONDS, timeout_ns, "how long a server may take to answer", .argument = "SECONDS",
           .value = "5", .commands = (WITH_SERVER | RG_CLI_JOIN) & ~RG_CLI_CDI),
    OPTION("log", CHOICE, log, "how much is logged to stderr", .argument = "error|warn|info|debug",
           .commands = RG_CLI_RUNS, .environment = "REMOTE_GPU_LOG"),
    OPTION("json", FLAG, json, "answer as JSON", .letter = 'j',
           .commands = QUESTIONS | RG_CLI_REQUEST | RG_CLI_RENEW | RG_CLI_NETPERF | RG_CLI_COMPARE |
                       RG_CLI_DOCTOR | RG_CLI_PREDICT | RG_CLI_VERIFY_LIMITS,
           .not_in_file = true),
    OPTION("server-only", FLAG, server_only,
           "only the servers that are named (default: where one is in a pool, all of the pool's)",
           .commands = RG_CLI_SMI | RG_CLI_HEALTH | RG_CLI_USAGE | RG_CLI_QUOTA, .not_in_file = true),
    OPTION("user", TEXT, user, "only what this user has used; only the server's operator sees others",
           .letter = 'u', .argument = "NAME", .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("project", TEXT, usage_project, "only what was used for this project", .argument = "NAME",
           .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("since", TEXT, since,
           "from when on, in UTC: 2026-11-27, '2026-11-27 14:00', today, month (its beginning), or so long "
           "ago: 12h, 30d, 4w; whole hours are counted (default: month)",
           .argument = "TIME", .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("until", TEXT, until, "until when, likewise (default: now)", .argument = "TIME",
           .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("by", CHOICE, by, "what a row is about; user: and project", .argument = RG_USAGE_BY_CHOICES,
           .value = "user", .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("csv", FLAG, csv, "print CSV", .commands = RG_CLI_USAGE, .not_in_file = true),
    OPTION("quick", FLAG, quick, "measure less, and for less time",
           .commands = RG_CLI_NETPERF | RG_CLI_VERIFY_LIMITS, .not_in_file = true),
    OPTION("perftest", FLAG, perftest,
           "also run perftest's programs over RDMA, if installed on both machines",
           .commands = RG_CLI_NETPERF, .not_in_file = true),
    OPTION("pool", FLAG, pool,
           "measure the way to each server of the server's pool, and tell the pool: what you ask for from "
           "this machine then goes to near servers",
           .commands = RG_CLI_NETPERF, .not_in_file = true),
    OPTION(
        "topology", FLAG, topology,
        "show how each server's GPUs are linked (NVLink, PCIe switches, NUMA nodes), and what was measured "
        "of the way to it",
        .commands = RG_CLI_LIST, .not_in_file = true),
    OPTION("plot", TEXT, plot, "also write a picture (SVG) of the figures to FILE", .argument = "FILE",
           .commands = RG_CLI_NETPERF, .not_in_file = true),
    OPTION("runs", INTEGER, runs,
           "run the command N times over each transport and show the run with the median time",
           .argument = "N", .value = "1", .min = 1, .max = 1000, .commands = RG_CLI_COMPARE,
           .not_in_file = true),
    OPTION("link", TEXT, link,
           "a slower network, like oneway=1ms,bandwidth=10Gb (compare also runs the command over it)",
           .argument = "LINK", .commands = RG_CLI_COMPARE | RG_CLI_PREDICT, .not_in_file = true),
    OPTION(
        "rtt", TEXT, rtt,
        "the network's round-trip time, like 50us, as netperf shows it; +50us: that much more than recorded",
        .argument = "TIME", .commands = RG_CLI_PREDICT, .not_in_file = true),
    OPTION("bandwidth", TEXT, bandwidth, "the network's bandwidth each way, like 25Gb (default: no limit)",
           .argument = "RATE", .commands = RG_CLI_PREDICT, .not_in_file = true),
    OPTION("server-link", TEXT, server_link,
           "a slower link between the program's servers, like oneway=100us,bandwidth=10Gb, added to the "
           "recorded one",
           .argument = "LINK", .commands = RG_CLI_PREDICT, .not_in_file = true),
    OPTION("grid", FLAG, grid, "also show the slow-down for many round-trip times and bandwidths",
           .commands = RG_CLI_PREDICT, .not_in_file = true),
    OPTION("svg", TEXT, svg, "write a picture (SVG) of the slow-down to FILE", .argument = "FILE",
           .commands = RG_CLI_PREDICT, .not_in_file = true),
    OPTION("root", TEXT, root,
           "check a copy of another machine's /sys, /proc, /dev and /etc in FOLDER, not this machine",
           .argument = "FOLDER", .commands = RG_CLI_DOCTOR, .not_in_file = true),
    OPTION("output", TEXT, output,
           "write to FILE, in /etc/cdi or where else the container runtime looks (default: standard output)",
           .letter = 'o', .argument = "FILE", .commands = RG_CLI_CDI, .not_in_file = true),
    OPTION(
        "client-root", TEXT, client_root,
        "the client tree that containers get, with lib/remote-gpu in it (default: the one of this command)",
        .argument = "FOLDER", .commands = RG_CLI_CDI, .not_in_file = true),
    OPTION("kind", TEXT, kind, "what the devices are called: VENDOR/CLASS", .argument = "KIND",
           .value = "remote-gpu.io/gpu", .commands = RG_CLI_CDI, .not_in_file = true),
    OPTION("count", INTEGER, count, "up to how many GPUs a container can ask for; all is there besides",
           .argument = "N", .value = "16", .min = 1, .max = 64, .commands = RG_CLI_CDI, .not_in_file = true),
    OPTION("infiniband", FLAG, infiniband,
           "also give containers this machine's RDMA device files, /dev/infiniband", .commands = RG_CLI_CDI,
           .not_in_file = true),
    OPTION("help", FLAG, help, "show this", .letter = 'h', .not_in_file = true),
};

const size_t rg_cli_n_options = sizeof rg_cli_options / sizeof rg_cli_options[0];
