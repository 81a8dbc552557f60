/*
 * generate.c - remote-gpu cdi generate: what a container needs of this machine to use the servers, as a CDI specification.
 *
 * Everything of ours is below one folder of the container, so that nothing of the image is hidden: the client tree's parts, the
 * credentials of each server, the folders with unix sockets. The stand-ins are preloaded by their path, as `remote-gpu run` does;
 * LD_LIBRARY_PATH is the image's own, which a variable of ours would replace.
 *
 * Nothing is asked of a server: the specification is made once, before there is a container, perhaps before there is a server.
 */
#include "client/cli/base/cli.h"
#include "client/cli/base/environment.h"
#include "client/cli/base/output.h"
#include "client/cli/cdi/spec.h"
#include "client/cli/cdi/tree.h"
#include "client/credentials/credentials.h"
#include "client/query/servers.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "transport/address.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREDENTIALS RG_CDI_INSIDE "/credentials"
#define SOCKETS     RG_CDI_INSIDE "/sockets"
#define INFINIBAND  "/dev/infiniband"

/* --- the client tree ---------------------------------------------------------------------------------------- */

/* lib/remote-gpu and bin/remote-gpu of the tree that containers get. False: it was said that there is none. */
static bool find_tree(const struct rg_cli_settings *settings, char libraries[PATH_MAX],
                      char program[PATH_MAX])
{
    if (!settings->client_root) {
        if (rg_path_library("", libraries, PATH_MAX) == RG_OK &&
            rg_path_program("remote-gpu", program, PATH_MAX) == RG_OK)
            return true;
        rg_error("remote-gpu is not in its installed place: lib/remote-gpu is not beside bin; name a client "
                 "tree with --client-root");
        return false;
    }
    RG_CLEANUP_FREE char *root = realpath(settings->client_root, NULL);
    if (!root) {
        rg_error("--client-root %s: %s", settings->client_root, strerror(errno));
        return false;
    }
    if (snprintf(libraries, PATH_MAX, "%s" RG_CDI_LIBRARIES, root) < PATH_MAX &&
        snprintf(program, PATH_MAX, "%s/bin/remote-gpu", root) < PATH_MAX)
        return true;
    rg_error("--client-root: the folder's name is too long");
    return false;
}

static bool add_tree(const struct rg_cli_settings *settings, struct rg_cdi_spec *spec)
{
    char libraries[PATH_MAX], program[PATH_MAX];
    return find_tree(settings, libraries, program) &&
           rg_cdi_add_tree(spec, settings, libraries, program, libraries, program);
}

/* --- servers ------------------------------------------------------------------------------------------------ */

/* Servers as the container names them, of which there may be several. */
struct servers {
    char text[8192]; /* as REMOTE_GPU_SERVER has them */
    unsigned n_sockets;
    bool credentials, unauthenticated;
};

static bool append(struct servers *servers, const char *separator, const char *server)
{
    const size_t used = strlen(servers->text), room = sizeof servers->text - used;
    if (snprintf(servers->text + used, room, "%s%s", used ? separator : "", server) < (int)room)
        return true;
    rg_error("the list of servers is too long; name fewer");
    return false;
}

/* Folders that hold more than a server's socket. */
static bool is_shared(const char *folder)
{
    static const char *const shared[] = {"", "/run", "/var/run", "/tmp", "/var/tmp", "/dev", "/dev/shm"};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (strcmp(folder, shared[i]) == 0)
            return true;
    return false;
}

/* Its folder is mounted, not the socket itself, which is another one when the server has been started again. */
static bool add_socket(struct servers *servers, struct rg_cdi_spec *spec, const struct rg_address *address,
                       const char *separator)
{
    char folder[sizeof address->name], inside[64], server[sizeof inside + sizeof address->name];
    const char *name = strrchr(address->name, '/');
    if (address->name[0] != '/') {
        rg_error("unix:%s: a container does not see sockets that are no files; have the server listen on "
                 "unix:/run/remote-gpu/socket",
                 address->name);
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(name - address->name), address->name);
    if (is_shared(folder)) {
        rg_error("unix:%s: the folder %s would be given to containers with everything in it; have the server "
                 "listen in a folder of its own, as on unix:/run/remote-gpu/socket",
                 address->name, *folder ? folder : "/");
        return false;
    }
    snprintf(inside, sizeof inside, SOCKETS "/%u", servers->n_sockets++);
    rg_cdi_add_mount(spec, folder, inside);
    snprintf(server, sizeof server, "unix:%s%s", inside, name);
    return append(servers, separator, server);
}

/* The folder is mounted, not the files, which others replace when they are renewed: nobody else's may be in it. */
static bool is_its_own(const char *folder)
{
    char others[PATH_MAX + 16];
    snprintf(others, sizeof others, "%s/servers", folder);
    if (access(others, F_OK) != 0)
        return true;
    rg_error("the credentials folder %s would be given to containers with those of other servers in it; copy "
             "ca.crt, "
             "tls.crt and tls.key into a folder of their own, and name that with --credentials",
             folder);
    return false;
}

/*
 * Where the container's client looks for these credentials. Those for all servers are for all of them there, too: a pool leads to servers
 * that nobody has named.
 */
static bool place_of(const struct rg_credentials *credentials, const struct rg_address *address, char *out,
                     size_t size)
{
    char base[PATH_MAX];
    bool named;
    if (rg_credentials_base(base, sizeof base, &named) == RG_OK && strcmp(base, credentials->folder) == 0)
        return snprintf(out, size, "%s", CREDENTIALS) < (int)size;
    return rg_credentials_place(CREDENTIALS, address, out, size) == RG_OK;
}

/* With the credentials that this machine has for it. */
static bool add_network(struct servers *servers, struct rg_cdi_spec *spec, const struct rg_address *address,
                        const char *server, const char *separator)
{
    struct rg_credentials credentials;
    char why[1024] = "", place[PATH_MAX];
    if (rg_credentials_find(server, &credentials, why, sizeof why) != RG_OK) {
        rg_error("cannot use the server %s: %s", server, why);
        return false;
    }
    if (rg_credentials_is_loopback(address))
        rg_warn("%s is the container's own machine, unless it has the host's network (--network host)",
                server);
    if (!credentials.found) {
        servers->unauthenticated |= !rg_credentials_is_loopback(address);
        return append(servers, separator, server);
    }
    if (!place_of(&credentials, address, place, sizeof place)) {
        rg_error("the name of the server %s is too long", server);
        return false;
    }
    if (!is_its_own(credentials.folder))
        return false;
    servers->credentials = true;
    rg_cdi_add_mount(spec, credentials.folder, place);
    return append(servers, separator, server);
}

static bool add_server(struct servers *servers, struct rg_cdi_spec *spec, const char *server,
                       const char *separator)
{
    struct rg_address address;
    char why[512] = "";
    if (rg_address_parse(server, &address, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    if (strcmp(address.scheme, "unix") == 0)
        return add_socket(servers, spec, &address, separator);
    return add_network(servers, spec, &address, server, separator);
}

static bool add_servers(const struct rg_cli_settings *settings, struct rg_cdi_spec *spec)
{
    struct servers servers = {0};
    for (size_t i = 0; i < settings->server.n; i++) {
        RG_CLEANUP_FREE char *alternatives = strdup(settings->server.items[i]);
        char *rest = alternatives, *server;
        if (!alternatives) {
            rg_error("out of memory");
            return false;
        }
        for (const char *separator = ","; rest && (server = rg_servers_next(&rest)); separator = "|")
            if (!add_server(&servers, spec, server, separator))
                return false;
    }
    if (!*servers.text) {
        rg_error("the list of servers is empty; name one with -s HOST or REMOTE_GPU_SERVER");
        return false;
    }
    rg_cdi_add_variable(spec, "REMOTE_GPU_SERVER", servers.text);
    if (servers.credentials)
        rg_cdi_add_variable(spec, "REMOTE_GPU_CREDENTIALS", CREDENTIALS);
    if (servers.unauthenticated)
        rg_cdi_add_variable(spec, "REMOTE_GPU_ALLOW_UNAUTHENTICATED", "yes");
    return true;
}

/* --- the rest ----------------------------------------------------------------------------------------------- */

static bool put_variable(void *context, const char *name, const char *value)
{
    rg_cdi_add_variable(context, name, value);
    return true;
}

static bool add_settings(const struct rg_cli_settings *settings, struct rg_cdi_spec *spec)
{
    const struct rg_cli_sink sink = {.set = put_variable, .context = spec};
    struct rg_cli_settings shared = *settings;
    const struct rg_security_policy policy = rg_security_policy();
    shared.gpus = 0; /* is each device's own */
    if (policy.control_only)
        rg_cdi_add_variable(spec, "REMOTE_GPU_ENCRYPT", "control");
    if (policy.no_rdma)
        rg_cdi_add_variable(spec, "REMOTE_GPU_RDMA_POLICY", "deny");
    return rg_cli_put_settings(&shared, &sink);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Every character device there: those of the adapters, and that of the connection manager. */
static bool add_infiniband(struct rg_cdi_spec *spec)
{
    struct dirent **entries;
    const int n = scandir(INFINIBAND, &entries, NULL, by_name);
    unsigned found = 0;
    for (int i = 0; i < n; i++) {
        char path[sizeof INFINIBAND + 1 + NAME_MAX];
        struct stat info;
        snprintf(path, sizeof path, INFINIBAND "/%s", entries[i]->d_name);
        if (stat(path, &info) == 0 && S_ISCHR(info.st_mode)) {
            rg_cdi_add_node(spec, path);
            found++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    if (!found)
        rg_error("--infiniband: there are no device files in " INFINIBAND
                 "; `remote-gpu doctor` says what this "
                 "machine lacks for RDMA");
    return found > 0;
}

/* --- the file ------------------------------------------------------------------------------------------------ */

/* A runtime knows the format by the name. */
static bool check_output(const char *path)
{
    const char *ending = strrchr(path, '.');
    if (ending && strcmp(ending, ".json") == 0)
        return true;
    rg_error("--output %s: container runtimes read files that end in .json; name it so", path);
    return false;
}

static bool generate(const struct rg_cli_settings *settings, struct rg_cdi_spec *spec)
{
    if (!add_tree(settings, spec) || !add_servers(settings, spec) || !add_settings(settings, spec) ||
        (settings->infiniband && !add_infiniband(spec)))
        return false;
    json_t *whole = rg_cdi_finish(spec, settings->kind, "REMOTE_GPU_GPUS", (unsigned)settings->count);
    if (!settings->output)
        return rg_cli_print_json(whole);
    char why[PATH_MAX + 256] = "cannot write JSON";
    const bool good = whole && rg_cdi_write(settings->output, 0644, whole, why, sizeof why);
    json_decref(whole);
    if (!good)
        rg_error("%s", why);
    return good;
}

int rg_cli_cdi(const struct rg_cli_settings *settings, int argc, char **argv)
{
    char why[256] = "";
    /* a word before the options has been put behind all others (file_first) */
    const bool first = argc > 0 && strcmp(argv[0], "generate") == 0,
               last = argc > 0 && strcmp(argv[argc - 1], "generate") == 0;
    if (argc == 0)
        rg_error("cdi does what? generate; see remote-gpu cdi --help");
    else if (!first && !last)
        rg_error("cdi knows no '%s': generate is what it does; see remote-gpu cdi --help", argv[0]);
    if (!first && !last)
        return RG_EXIT_FAILURE;
    if (!rg_cli_no_words("cdi generate", argc - 1, first ? argv + 1 : argv) || !rg_cli_check_share(settings))
        return RG_EXIT_FAILURE;
    if (!rg_cdi_kind_is_valid(settings->kind, why, sizeof why)) {
        rg_error("--kind: %s", why);
        return RG_EXIT_FAILURE;
    }
    if (settings->output && !check_output(settings->output))
        return RG_EXIT_FAILURE;
    struct rg_cdi_spec spec;
    rg_cdi_init(&spec);
    const bool good = generate(settings, &spec);
    rg_cdi_fini(&spec);
    return good ? 0 : RG_EXIT_FAILURE;
}
