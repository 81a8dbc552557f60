/*
 * main.c - remote-gpu-kube-controller: a pool's GPUs as devices of a Kubernetes cluster. See controller.h.
 */
#include "common/base/log.h"
#include "places/kubernetes/base/settings.h"
#include "places/kubernetes/controller/controller.h"
#include "places/kubernetes/controller/http.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    struct rg_kube_common common;
    struct rg_text_list servers, nodes;
    char *user, *http;
    uint64_t lease_ns, interval_ns, timeout_ns;
};

#define OPTION(...) RG_OPTION_ROW(struct settings, __VA_ARGS__)

/* The manual page remote-gpu-kube-controller.8 lists the same rows; a test compares them. */
static const struct rg_option table[] = {
    OPTION("server", LIST, servers, "servers of the pool, of which any speaks for all", .letter = 's',
           .argument = "HOST[:PORT]", .environment = "REMOTE_GPU_SERVER"),
    OPTION("user", TEXT, user,
           "whose the leases of claims are: the name that pods' credentials show, with {namespace} for the "
           "claim's "
           "namespace",
           .argument = "NAME", .value = "{namespace}"),
    OPTION("node", LIST, nodes, "only nodes with this label may use the pool; all of several must be there",
           .argument = "LABEL[=VALUE]"),
    OPTION("lease", SECONDS, lease_ns,
           "how long a lease lasts after this controller was last there to renew it", .argument = "TIME",
           .value = "1h"),
    OPTION("interval", SECONDS, interval_ns, "how often the pool is looked at", .argument = "TIME",
           .value = "5s"),
    OPTION("timeout", SECONDS, timeout_ns, "how long a server may take to be connected to",
           .argument = "TIME", .value = "5s"),
    OPTION("http", TEXT, http,
           "answer probes and Prometheus on this port of all addresses, or on this address",
           .argument = "[ADDRESS:]PORT"),
    RG_KUBE_COMMON_ROWS(struct settings),
};

static struct rg_kube_controller *running;

static void on_signal(int number)
{
    (void)number;
    rg_kube_controller_stop(running);
}

/* One term with all labels. NULL: there are none. */
static json_t *node_selector(const struct rg_text_list *labels)
{
    json_t *all = json_array();
    for (size_t i = 0; i < labels->n; i++) {
        const char *text = labels->items[i], *value = strchr(text, '=');
        json_t *key = json_stringn(text, value ? (size_t)(value - text) : strlen(text));
        json_array_append_new(
            all, value ? json_pack("{s:o, s:s, s:[s]}", "key", key, "operator", "In", "values", value + 1)
                       : json_pack("{s:o, s:s}", "key", key, "operator", "Exists"));
    }
    if (labels->n)
        return json_pack("{s:[{s:o}]}", "nodeSelectorTerms", "matchExpressions", all);
    json_decref(all);
    return NULL;
}

static bool check(const struct settings *settings)
{
    const uint64_t second = 1000000000u;
    if (!settings->servers.n)
        rg_error("which pool? name one of its servers with --server HOST");
    else if (settings->lease_ns < 60 * second)
        rg_error("--lease: a lease of less than a minute would end while it is renewed; give 60s or more");
    else
        return true;
    return false;
}

static int run(const struct settings *settings, const struct rg_kube_cluster *cluster)
{
    static struct rg_kube_figures figures;
    struct rg_kube_http *http = NULL;
    const struct rg_kube_controller_settings wanted = {
        .cluster = *cluster,
        .servers = settings->servers,
        .user = settings->user,
        .nodes = node_selector(&settings->nodes),
        .timeout_ns = settings->timeout_ns,
        .lease_ns = settings->lease_ns,
        .interval_ns = settings->interval_ns,
    };
    if (settings->http && !(http = rg_kube_http_start(settings->http, &figures, settings->interval_ns)))
        return RG_KUBE_EXIT_FAILURE;
    running = rg_kube_controller_create(&wanted, &figures);
    if (!running) {
        rg_error("out of memory");
        rg_kube_http_stop(http);
        return RG_KUBE_EXIT_FAILURE;
    }
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    rg_kube_controller_run(running);
    rg_kube_http_stop(http);
    rg_kube_controller_destroy(running);
    json_decref(wanted.nodes);
    return 0;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct rg_options options;
    struct rg_kube_cluster cluster;
    rg_log_name("remote-gpu-kube-controller");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const enum rg_kube_start start = rg_kube_settings_load(
        &options, table, sizeof table / sizeof table[0], &settings, &settings.common, &cluster,
        "Usage: remote-gpu-kube-controller --server HOST [OPTION…]\n"
        "Publishes the GPUs of a pool to a Kubernetes cluster, and takes leases for the claims that get "
        "them.\n\n"
        "Options:\n",
        argc, argv);
    int status = start == RG_KUBE_DONE ? 0 : RG_KUBE_EXIT_FAILURE;
    if (start == RG_KUBE_GO && check(&settings))
        status = run(&settings, &cluster);
    rg_options_fini(&options);
    curl_global_cleanup();
    return status;
}
