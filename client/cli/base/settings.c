/*
 * settings.c - the settings of one command: options (options.c), environment and files, and what follows from them; see settings.h.
 *
 * Files: $XDG_CONFIG_HOME/remote-gpu/config (~/.config without it), then /etc/remote-gpu/config. Both may set
 * any of the rows that are not for the command line alone, whichever subcommand runs.
 */
#include "client/cli/base/settings.h"

#include "client/cli/base/options.h"
#include "client/cli/base/whole_path.h"
#include "client/credentials/credentials.h"
#include "client/query/servers.h"
#include "common/base/log.h"
#include "proto/control/control.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_CONFIG "/etc/remote-gpu/config"
#define AT(field)     offsetof(struct rg_cli_settings, field)

void rg_cli_settings_init(struct rg_cli_settings *settings, enum rg_cli_command command)
{
    memset(settings, 0, sizeof *settings);
    rg_options_init(&settings->options, rg_cli_options, rg_cli_n_options, settings, command);
}

void rg_cli_settings_fini(struct rg_cli_settings *settings)
{
    rg_options_fini(&settings->options);
}

static enum rg_status load_files(struct rg_options *options, char *why, size_t why_size)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char folder[PATH_MAX] = "", path[PATH_MAX + sizeof "/config"];
    if (base && *base == '/')
        snprintf(folder, sizeof folder, "%s/remote-gpu", base);
    else if (home && *home == '/')
        snprintf(folder, sizeof folder, "%s/.config/remote-gpu", home);
    snprintf(path, sizeof path, "%s/config", folder);
    /* the home may be another user's: containers and su leave the variable as it was */
    const bool own = *folder && access(folder, X_OK) == 0;
    enum rg_status status = own ? rg_options_load_file(options, path, why, why_size) : RG_ERR_NOT_FOUND;
    if (status == RG_OK || status == RG_ERR_NOT_FOUND)
        status = rg_options_load_file(options, SYSTEM_CONFIG, why, why_size);
    return status == RG_ERR_NOT_FOUND ? RG_OK : status;
}

/* Alternatives are for a command that needs one server; a question about servers is about each of them. */
static enum rg_status part_alternatives(struct rg_text_list *servers)
{
    struct rg_text_list parted = {0};
    for (size_t i = 0; i < servers->n; i++) {
        char *rest = servers->items[i], *server;
        while (rest && (server = rg_servers_next(&rest))) {
            char **items = realloc(parted.items, (parted.n + 1) * sizeof *items);
            char *copy = items ? strdup(server) : NULL;
            if (items)
                parted.items = items;
            if (!copy) {
                rg_text_list_clear(&parted);
                return RG_ERR_NO_MEMORY;
            }
            parted.items[parted.n++] = copy;
        }
    }
    rg_text_list_clear(servers);
    *servers = parted;
    return RG_OK;
}

/* Where no server was named, it is the one that was joined last. */
static enum rg_status take_joined(struct rg_cli_settings *settings)
{
    char server[320];
    if (rg_options_is_set(&settings->options, AT(server)) || settings->server.n != 1 ||
        !rg_credentials_joined(server, sizeof server))
        return RG_OK;
    char *copy = strdup(server);
    if (!copy)
        return RG_ERR_NO_MEMORY;
    free(settings->server.items[0]);
    settings->server.items[0] = copy;
    settings->joined = true;
    return RG_OK;
}

/* Both say how much memory, so the stronger source's holds; of one source they contradict each other, which run refuses. */
static void settle_memory(struct rg_cli_settings *settings)
{
    const unsigned memory = rg_options_source(&settings->options, AT(memory)),
                   fraction = rg_options_source(&settings->options, AT(fraction));
    if (memory && fraction > memory)
        settings->fraction = 0;
    if (fraction && memory > fraction)
        settings->memory = 0;
}

/* What connecting reads of the environment: here, and in the command that is run. */
static enum rg_status export_security(const struct rg_cli_settings *settings)
{
    char folder[PATH_MAX];
    const char *credentials = settings->credentials;
    if (credentials && !rg_cli_whole_path("--credentials", credentials, folder))
        return RG_ERR_INVALID;
    const bool set = (!credentials || setenv("REMOTE_GPU_CREDENTIALS", folder, 1) == 0) &&
                     (!rg_options_is_set(&settings->options, AT(allow_unauthenticated)) ||
                      setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED",
                             settings->allow_unauthenticated ? "yes" : "no", 1) == 0) &&
                     (!rg_options_is_set(&settings->options, AT(encrypt)) ||
                      setenv("REMOTE_GPU_ENCRYPT", settings->encrypt, 1) == 0) &&
                     (!rg_options_is_set(&settings->options, AT(rdma)) ||
                      setenv("REMOTE_GPU_RDMA_POLICY", settings->rdma, 1) == 0);
    if (!set)
        rg_error("out of memory");
    return set ? RG_OK : RG_ERR_NO_MEMORY;
}

enum rg_cli_load rg_cli_settings_load(struct rg_cli_settings *settings, enum rg_cli_command command, int argc,
                                      char **argv, int *next)
{
    rg_cli_settings_init(settings, command);
    char why[512] = "";
    if (rg_options_load_arguments(&settings->options, argc, argv, next, why, sizeof why) != RG_OK) {
        rg_error("%s; see remote-gpu %s --help", why, argv[0]);
        return RG_CLI_WRONG;
    }
    if (settings->help)
        return RG_CLI_HELP;
    if (rg_options_load_environment(&settings->options, why, sizeof why) != RG_OK ||
        load_files(&settings->options, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_CLI_WRONG;
    }
    settle_memory(settings);
    if (export_security(settings) != RG_OK)
        return RG_CLI_WRONG;
    if (take_joined(settings) != RG_OK) {
        rg_error("out of memory");
        return RG_CLI_WRONG;
    }
    if (!(command & RG_CLI_RUNS) && part_alternatives(&settings->server) != RG_OK) {
        rg_error("out of memory");
        return RG_CLI_WRONG;
    }
    return RG_CLI_GO;
}

bool rg_cli_check_project(const struct rg_cli_settings *settings)
{
    if (!settings->project || strlen(settings->project) < RG_CONTROL_TEXT)
        return true;
    rg_error("--project: the name is longer than %d bytes; shorten it", RG_CONTROL_TEXT - 1);
    return false;
}

bool rg_cli_check_share(const struct rg_cli_settings *settings)
{
    const unsigned memory = rg_options_source(&settings->options, AT(memory)),
                   fraction = rg_options_source(&settings->options, AT(fraction));
    if (memory && memory == fraction) {
        rg_error("-m and -p do not go together: one is a size, the other a part of each GPU's memory; leave "
                 "one out");
        return false;
    }
    if (memory && !settings->memory && !settings->fraction) {
        rg_error("-m 0: no memory at all is no share of a GPU; ask for more, or leave -m out");
        return false;
    }
    return rg_cli_check_project(settings);
}

bool rg_cli_no_words(const char *subcommand, int argc, char **argv)
{
    if (argc > 0)
        rg_error("%s takes no '%s'; see remote-gpu %s --help", subcommand, argv[0], subcommand);
    return argc == 0;
}
