/*
 * settings.h - what the options of controller and node part have in common: where the API server is, the log, help and version.
 */
#ifndef RG_PLACES_KUBERNETES_BASE_SETTINGS_H
#define RG_PLACES_KUBERNETES_BASE_SETTINGS_H

#include "common/base/options.h"
#include "places/kubernetes/api/kube.h"

#define RG_KUBE_EXIT_FAILURE 125

struct rg_kube_common {
    char *api, *ca, *token, *cert, *key, *log;
    bool help, version;
};

/** Rows of a table of options, of a struct that has a member `common` of the type above: those of every program. */
#define RG_KUBE_PLAIN_ROWS(of)                                                                               \
    RG_OPTION_ROW(of, "log", CHOICE, common.log, "what is written to standard error",                        \
                  .argument = "error|warn|info|debug", .value = "info", .environment = "REMOTE_GPU_LOG"),    \
        RG_OPTION_ROW(of, "help", FLAG, common.help, "show this", .letter = 'h', .not_in_file = true),       \
        RG_OPTION_ROW(of, "version", FLAG, common.version, "show the version", .not_in_file = true)

/** And those of programs that ask the API server. */
#define RG_KUBE_COMMON_ROWS(of)                                                                              \
    RG_OPTION_ROW(of, "kube-api", TEXT, common.api,                                                          \
                  "the API server; left out in a pod, which is told by its "                                 \
                  "service account",                                                                         \
                  .argument = "URL", .environment = "REMOTE_GPU_KUBE_API"),                                  \
        RG_OPTION_ROW(of, "kube-ca", TEXT, common.ca, "the authority that has signed its certificate",       \
                      .argument = "FILE"),                                                                   \
        RG_OPTION_ROW(of, "kube-token", TEXT, common.token, "the token to show it, read anew each time",     \
                      .argument = "FILE"),                                                                   \
        RG_OPTION_ROW(of, "kube-cert", TEXT, common.cert,                                                    \
                      "a certificate to show it instead, with --kube-key", .argument = "FILE"),              \
        RG_OPTION_ROW(of, "kube-key", TEXT, common.key, "its key", .argument = "FILE"),                      \
        RG_KUBE_PLAIN_ROWS(of)

/** What to do after the options were read. */
enum rg_kube_start { RG_KUBE_GO, RG_KUBE_DONE, RG_KUBE_WRONG };

/**
 * Loads arguments and environment into `object`, says what is wrong with them, and answers --help (with `usage` before the
 * options) and --version. `common` is within `object`; `cluster` is filled from it, if it is not NULL.
 */
enum rg_kube_start rg_kube_settings_load(struct rg_options *options, const struct rg_option *table, size_t n,
                                         void *object, struct rg_kube_common *common,
                                         struct rg_kube_cluster *cluster, const char *usage, int argc,
                                         char **argv);
/** Whether each is NAME=VALUE; says of the first that is not. */
bool rg_kube_check_environment(const struct rg_text_list *environment);

#endif
