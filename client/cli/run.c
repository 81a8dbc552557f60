/*
 * run.c - remote-gpu run: a command whose CUDA calls go to a server.
 *
 * With a server: check that it answers, set the environment, exec; nothing of remote-gpu stays but the
 * libraries in the command's process. With --local: start a private server, run the command as a child, stop
 * the server.
 */
#include "client/cli/cli.h"
#include "client/cli/environment.h"
#include "client/cli/local.h"
#include "client/query.h"
#include "common/log.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static bool supported(const struct rg_cli_settings *settings)
{
    if (settings->memory || settings->fraction) {
        rg_error("sharing a GPU by memory (-m, -p) is not supported yet; run without it");
        return false;
    }
    if (strcmp(settings->transport, "rdma") == 0) {
        rg_error("transport rdma is not built into this version; use --transport auto or tcp");
        return false;
    }
    return true;
}

/* Whether the server answers and has what is wanted. `why` says why not. */
static bool serves(const struct rg_cli_settings *settings, const char *server, char *why, size_t why_size)
{
    struct rg_control answer;
    if (rg_query(server, RG_PURPOSE_INVENTORY, settings->timeout_ns, &answer, why, why_size) != RG_OK)
        return false;
    uint32_t n = answer.inventory.n_devices;
    bool full = answer.inventory.limits.sessions &&
                answer.inventory.sessions_running >= answer.inventory.limits.sessions;
    rg_control_fini(&answer);
    if (settings->gpus > n)
        rg_explain(why, why_size,
                   "the server %s has %u GPU%s, and %d were asked for; ask for fewer, or another server",
                   server, n, n == 1 ? "" : "s", (int)settings->gpus);
    else if (full)
        rg_explain(why, why_size, "the server %s runs as many sessions as it takes; try again later", server);
    else
        return true;
    return false;
}

/* The first server of the list that will do; NULL: it was said why none will. */
static const char *choose_server(const struct rg_cli_settings *settings)
{
    const struct rg_text_list *servers = &settings->server;
    if (servers->n == 0) {
        rg_error("the list of servers is empty; name one with -s HOST or REMOTE_GPU_SERVER, or use --local");
        return NULL;
    }
    if (settings->no_check)
        return servers->items[0];
    bool named = rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, server));
    for (size_t i = 0; i < servers->n; i++) {
        char why[1024] = "";
        if (serves(settings, servers->items[i], why, sizeof why))
            return servers->items[i];
        if (i + 1 < servers->n)
            rg_warn("%s", why);
        else
            rg_error("%s%s", why,
                     named ? "" : " (no server was named: -s HOST names one, --local starts one)");
    }
    return NULL;
}

static int run_on(const struct rg_cli_settings *settings, char **argv)
{
    const char *server = choose_server(settings);
    if (!server || rg_cli_set_environment(settings, server) != RG_OK)
        return RG_EXIT_FAILURE;
    execvp(argv[0], argv);
    int error = errno;
    rg_error("cannot run %s: %s", argv[0], strerror(error));
    return error == ENOENT || error == ENOTDIR ? RG_EXIT_NOT_FOUND : RG_EXIT_NOT_EXECUTABLE;
}

static int run_local(const struct rg_cli_settings *settings, char **argv)
{
    struct rg_local_server server;
    if (rg_local_start(&server, settings->driver) != RG_OK)
        return RG_EXIT_FAILURE;
    int status = RG_EXIT_FAILURE;
    if (rg_cli_set_environment(settings, server.address) == RG_OK)
        status = rg_local_run(argv);
    rg_local_stop(&server);
    return status;
}

int rg_cli_run(const struct rg_cli_settings *settings, int argc, char **argv)
{
    if (argc == 0) {
        rg_error("which command? see remote-gpu run --help");
        return RG_EXIT_FAILURE;
    }
    if (!supported(settings))
        return RG_EXIT_FAILURE;
    return settings->local ? run_local(settings, argv) : run_on(settings, argv);
}
