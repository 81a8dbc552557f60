/*
 * main.c - remote-gpu-kube-plugin: a pool's GPUs as an extended resource of a node of a Kubernetes cluster. See plugin.h.
 *
 * The main thread looks at pool and kubelet in turns; another serves the kubelet. A kubelet that starts again has forgotten us and
 * removed our socket, so then both begin anew.
 */
#include "common/base/log.h"
#include "common/base/thread.h"
#include "places/kubernetes/base/settings.h"
#include "places/kubernetes/plugin/plugin.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct settings {
    struct rg_kube_common common;
    struct rg_text_list servers, environment;
    char *user, *resource, *plugin_folder, *pods, *state, *client_root, *client_here;
    uint64_t lease_ns, interval_ns, timeout_ns, settle_ns;
};

#define OPTION(...) RG_OPTION_ROW(struct settings, __VA_ARGS__)

/* The manual page remote-gpu-kube-plugin.8 lists the same rows; a test compares them. */
static const struct rg_option table[] = {
    OPTION("server", LIST, servers, "servers of the pool, of which any speaks for all", .letter = 's',
           .argument = "HOST[:PORT]", .environment = "REMOTE_GPU_SERVER"),
    OPTION("user", TEXT, user, "whose the leases of containers are: the name that their credentials show",
           .argument = "NAME"),
    OPTION("resource", TEXT, resource, "what pods ask for", .argument = "NAME", .value = "remote-gpu.io/gpu"),
    OPTION("lease", SECONDS, lease_ns, "how long a lease lasts after this program was last there to renew it",
           .argument = "TIME", .value = "1h"),
    OPTION("interval", SECONDS, interval_ns, "how often the pool and the kubelet are looked at",
           .argument = "TIME", .value = "5s"),
    OPTION("settle", SECONDS, settle_ns,
           "how long the kubelet may take to list a container that it was given GPUs for", .argument = "TIME",
           .value = "60s"),
    OPTION("timeout", SECONDS, timeout_ns, "how long a server may take to be connected to",
           .argument = "TIME", .value = "5s"),
    OPTION("client-root", TEXT, client_root,
           "the client tree as the node has it, with lib/remote-gpu and bin: containers mount it",
           .argument = "DIR", .value = "/var/lib/remote-gpu/client"),
    OPTION("client-here", TEXT, client_here, "the same as this program sees it, where that differs",
           .argument = "DIR"),
    OPTION("env", LIST, environment, "more variables for containers", .argument = "NAME=VALUE"),
    OPTION("plugin-dir", TEXT, plugin_folder, "the kubelet's folder for device plugins", .argument = "DIR",
           .value = "/var/lib/kubelet/device-plugins"),
    OPTION("pod-resources", TEXT, pods, "the socket by which the kubelet tells which devices containers have",
           .argument = "SOCKET", .value = "/var/lib/kubelet/pod-resources/kubelet.sock"),
    OPTION("state-dir", TEXT, state, "where the leases of containers are kept over restarts",
           .argument = "DIR", .value = "/var/lib/kubelet/plugins/" RG_KUBE_DRIVER),
    RG_KUBE_PLAIN_ROWS(struct settings),
};

static struct rg_kube_plugin plugin;

/* Waits; whether it was told to stop. The signals are blocked in all threads, and wait for this. */
static bool pause_for(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return sigtimedwait(&signals, NULL, &time) > 0;
}

static bool check(const struct settings *settings)
{
    if (!settings->servers.n)
        rg_error("which pool? name one of its servers with --server HOST");
    else if (!settings->user)
        rg_error("whose are the leases? name the user that containers' credentials show with --user NAME");
    else if (settings->lease_ns < 60000000000u)
        rg_error("--lease: a lease of less than a minute would end while it is renewed; give 60s or more");
    else if (!strchr(settings->resource, '/'))
        rg_error("--resource: '%s' is no extended resource's name, like remote-gpu.io/gpu",
                 settings->resource);
    else
        return true;
    return false;
}

/* --- one kubelet -------------------------------------------------------------------------------------------------------- */

static void *serve(void *server)
{
    if (rg_grpc_serve(server) != RG_OK)
        rg_error("the kubelet is not answered any more");
    return NULL;
}

/* Until the kubelet is there and takes us; whether it was told to stop. */
static bool register_there(const struct settings *settings)
{
    char why[512] = "", said[512] = "";
    while (rg_kube_kubelet_register(&plugin.kubelet, why, sizeof why) != RG_OK) {
        if (strcmp(why, said) != 0)
            rg_warn("the kubelet does not take %s: %s; trying again", settings->resource, why);
        snprintf(said, sizeof said, "%s", why);
        if (pause_for(settings->interval_ns))
            return true;
    }
    rg_info("the kubelet can ask for %s", settings->resource);
    return false;
}

/* As long as the kubelet knows us; whether it was told to stop. */
static bool stay(const struct settings *settings, struct rg_grpc_server *server)
{
    while (rg_kube_kubelet_knows_us(&plugin.kubelet)) {
        if (rg_kube_plugin_round(&plugin))
            rg_kube_plugin_publish(&plugin, server);
        if (pause_for(settings->interval_ns))
            return true;
    }
    rg_info("the kubelet has started again");
    return false;
}

/* Serves one kubelet to its end. Sets `stop` if it was told to; false: it cannot be. */
static bool serve_kubelet(const struct settings *settings, bool *stop)
{
    char endpoint[PATH_MAX], why[PATH_MAX + 256] = "out of memory";
    pthread_t thread;
    snprintf(endpoint, sizeof endpoint, "%s/" RG_KUBE_PLUGIN_SOCKET, settings->plugin_folder);
    struct rg_grpc_server *server = rg_grpc_create(rg_kube_plugin_methods, rg_kube_plugin_n_methods, &plugin);
    const bool good = server && rg_grpc_listen(server, endpoint, why, sizeof why) == RG_OK &&
                      rg_thread_create(&thread, "kubelet", serve, server) == RG_OK;
    if (good) {
        (void)rg_kube_plugin_round(&plugin);
        rg_kube_plugin_publish(&plugin, server);
        *stop = register_there(settings) || stay(settings, server);
        rg_grpc_stop(server);
        pthread_join(thread, NULL);
    } else {
        rg_error("%s", why);
    }
    rg_grpc_destroy(server);
    return good;
}

static bool prepare(const struct settings *settings)
{
    static char file[PATH_MAX];
    char why[PATH_MAX + 256] = "";
    if (mkdir(settings->state, 0755) != 0 && errno != EEXIST) {
        rg_error("cannot make the folder %s: %s", settings->state, strerror(errno));
        return false;
    }
    snprintf(file, sizeof file, "%s/leases.json", settings->state);
    plugin.places = (struct rg_kube_places){
        .client_root = settings->client_root,
        .client_here = settings->client_here ? settings->client_here : settings->client_root,
        .environment = settings->environment,
    };
    plugin.kubelet = (struct rg_kube_kubelet){
        .folder = settings->plugin_folder, .pods = settings->pods, .resource = settings->resource};
    plugin.user = settings->user;
    plugin.settle_ns = settings->settle_ns;
    plugin.leases.seconds = settings->lease_ns / 1000000000;
    if (rg_kube_plugin_create(&plugin, &settings->servers, settings->timeout_ns, file, why, sizeof why))
        return true;
    rg_error("%s", why);
    return false;
}

static int run(const struct settings *settings)
{
    bool stop = false, good = true;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!prepare(settings))
        return RG_KUBE_EXIT_FAILURE;
    while (good && !stop)
        good = serve_kubelet(settings, &stop);
    rg_kube_plugin_destroy(&plugin);
    return good ? 0 : RG_KUBE_EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct rg_options options;
    rg_log_name("remote-gpu-kube-plugin");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const enum rg_kube_start start = rg_kube_settings_load(
        &options, table, sizeof table / sizeof table[0], &settings, &settings.common, NULL,
        "Usage: remote-gpu-kube-plugin --server HOST --user NAME [OPTION…]\n"
        "Offers the GPUs of a pool as an extended resource of this node, and takes leases for containers "
        "that get them.\n\n"
        "Options:\n",
        argc, argv);
    int status = start == RG_KUBE_DONE ? 0 : RG_KUBE_EXIT_FAILURE;
    if (start == RG_KUBE_GO && check(&settings) && rg_kube_check_environment(&settings.environment))
        status = run(&settings);
    rg_options_fini(&options);
    curl_global_cleanup();
    return status;
}
