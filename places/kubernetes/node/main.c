/*
 * main.c - remote-gpu-kube-node: the driver on a node of a Kubernetes cluster, which its kubelet asks. See service.h.
 */
#include "common/base/log.h"
#include "places/kubernetes/base/settings.h"
#include "places/kubernetes/node/service.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct settings {
    struct rg_kube_common common;
    char *plugin_folder, *registry, *cdi, *client_root, *client_here;
    struct rg_text_list environment;
    uint64_t wait_ns;
};

#define OPTION(...) RG_OPTION_ROW(struct settings, __VA_ARGS__)

/* The manual page remote-gpu-kube-node.8 lists the same rows; a test compares them. */
static const struct rg_option table[] = {
    OPTION("client-root", TEXT, client_root,
           "the client tree as the node has it, with lib/remote-gpu and bin: containers mount it",
           .argument = "DIR", .value = "/var/lib/remote-gpu/client"),
    OPTION("client-here", TEXT, client_here, "the same as this program sees it, where that differs",
           .argument = "DIR"),
    OPTION("env", LIST, environment, "more variables for containers", .argument = "NAME=VALUE"),
    OPTION("wait", SECONDS, wait_ns, "how long a question of the kubelet waits for a claim's lease",
           .argument = "TIME", .value = "20s"),
    OPTION("plugin-dir", TEXT, plugin_folder, "the driver's own folder: its socket, and what it keeps",
           .argument = "DIR", .value = "/var/lib/kubelet/plugins/" RG_KUBE_DRIVER),
    OPTION("registry-dir", TEXT, registry, "where the kubelet looks for drivers", .argument = "DIR",
           .value = "/var/lib/kubelet/plugins_registry"),
    OPTION("cdi-dir", TEXT, cdi, "where container runtimes look for CDI specifications", .argument = "DIR",
           .value = "/var/run/cdi"),
    RG_KUBE_COMMON_ROWS(struct settings),
};

static struct rg_kube_node node = {.files = PTHREAD_MUTEX_INITIALIZER};
static struct rg_grpc_server *server;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&node.stopping, true);
    rg_grpc_stop(server);
}

static bool make_folder(const char *path)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST)
        return true;
    rg_error("cannot make the folder %s: %s", path, strerror(errno));
    return false;
}

/* The kubelet asks the second socket for the first, so that comes last. */
static bool listen_on(const struct settings *settings, const char *endpoint)
{
    char registration[PATH_MAX], why[PATH_MAX + 256] = "";
    snprintf(registration, sizeof registration, "%s/" RG_KUBE_DRIVER "-reg.sock", settings->registry);
    if (rg_grpc_listen(server, endpoint, why, sizeof why) == RG_OK &&
        rg_grpc_listen(server, registration, why, sizeof why) == RG_OK)
        return true;
    rg_error("%s", why);
    return false;
}

static int run(const struct settings *settings, const struct rg_kube_cluster *cluster)
{
    static char endpoint[PATH_MAX];
    snprintf(endpoint, sizeof endpoint, "%s/dra.sock", settings->plugin_folder);
    node.cluster = cluster;
    node.endpoint = endpoint;
    node.wait_ns = settings->wait_ns;
    node.places = (struct rg_kube_places){
        .state_folder = settings->plugin_folder,
        .cdi_folder = settings->cdi,
        .client_root = settings->client_root,
        .client_here = settings->client_here ? settings->client_here : settings->client_root,
        .environment = settings->environment,
    };
    if (!rg_kube_check_environment(&settings->environment) || !make_folder(settings->plugin_folder) ||
        !make_folder(settings->cdi))
        return RG_KUBE_EXIT_FAILURE;
    server = rg_grpc_create(rg_kube_node_methods, rg_kube_node_n_methods, &node);
    if (!server) {
        rg_error("out of memory");
        return RG_KUBE_EXIT_FAILURE;
    }
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    int status = RG_KUBE_EXIT_FAILURE;
    if (listen_on(settings, endpoint)) {
        rg_info("the kubelet can ask for " RG_KUBE_DRIVER);
        status = rg_grpc_serve(server) == RG_OK ? 0 : RG_KUBE_EXIT_FAILURE;
    }
    rg_grpc_destroy(server);
    return status;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    static struct rg_kube_cluster cluster;
    struct rg_options options;
    rg_log_name("remote-gpu-kube-node");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const enum rg_kube_start start = rg_kube_settings_load(
        &options, table, sizeof table / sizeof table[0], &settings, &settings.common, &cluster,
        "Usage: remote-gpu-kube-node [OPTION…]\n"
        "Prepares the claims of this node's pods that GPUs of a pool are allocated to, as the kubelet "
        "asks.\n\n"
        "Options:\n",
        argc, argv);
    int status = start == RG_KUBE_DONE ? 0 : RG_KUBE_EXIT_FAILURE;
    if (start == RG_KUBE_GO)
        status = run(&settings, &cluster);
    rg_options_fini(&options);
    curl_global_cleanup();
    return status;
}
