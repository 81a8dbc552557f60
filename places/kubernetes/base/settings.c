/* settings.c - see settings.h. */
#include "places/kubernetes/base/settings.h"

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

static bool fill_cluster(const struct rg_kube_common *common, struct rg_kube_cluster *cluster)
{
    char why[512] = "";
    *cluster = (struct rg_kube_cluster){.url = common->api,
                                        .ca_file = common->ca,
                                        .token_file = common->token,
                                        .cert_file = common->cert,
                                        .key_file = common->key};
    if (!common->cert != !common->key) {
        rg_error("--kube-cert and --kube-key belong together: give both");
        return false;
    }
    if (common->api && strncmp(common->api, "https://", 8) != 0 && strncmp(common->api, "http://", 7) != 0) {
        rg_error("--kube-api: '%s' is no URL like https://10.96.0.1:443", common->api);
        return false;
    }
    if (rg_kube_find_cluster(cluster, why, sizeof why))
        return true;
    rg_error("%s", why);
    return false;
}

enum rg_kube_start rg_kube_settings_load(struct rg_options *options, const struct rg_option *table, size_t n,
                                         void *object, struct rg_kube_common *common,
                                         struct rg_kube_cluster *cluster, const char *usage, int argc,
                                         char **argv)
{
    char why[512] = "";
    int next = argc;
    rg_options_init(options, table, n, object, 0);
    if (rg_options_load_arguments(options, argc, argv, &next, why, sizeof why) != RG_OK) {
        rg_error("%s; see --help", why);
        return RG_KUBE_WRONG;
    }
    if (common->help) {
        fputs(usage, stdout);
        rg_options_help(options, stdout);
        printf("\nSIGTERM or SIGINT stops. Exit status: 0 stopped by a signal, 125 could not start.\n");
        return RG_KUBE_DONE;
    }
    if (common->version) {
        printf("%s %s\n", rg_log_get_name(), RG_VERSION);
        return RG_KUBE_DONE;
    }
    if (next < argc) {
        rg_error("'%s' is no option; see --help", argv[next]);
        return RG_KUBE_WRONG;
    }
    if (rg_options_load_environment(options, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_KUBE_WRONG;
    }
    (void)rg_log_set_level_by_name(common->log); /* one of the choices */
    return !cluster || fill_cluster(common, cluster) ? RG_KUBE_GO : RG_KUBE_WRONG;
}

bool rg_kube_check_environment(const struct rg_text_list *environment)
{
    for (size_t i = 0; i < environment->n; i++)
        if (!strchr(environment->items[i], '=') || environment->items[i][0] == '=') {
            rg_error("--env: '%s' is not NAME=VALUE", environment->items[i]);
            return false;
        }
    return true;
}
