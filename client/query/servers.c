/* servers.c - see servers.h. */
#include "client/query/servers.h"

#include "client/credentials/credentials.h"
#include "client/query/query.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "transport/address.h"
#include "transport/connect/connect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n" /* variables that are filled from files end with the file's last line */

static char joined[320];
static pthread_once_t joined_once = PTHREAD_ONCE_INIT;

static void look_for_joined(void)
{
    if (!rg_credentials_joined(joined, sizeof joined))
        *joined = 0;
}

const char *rg_servers_named(void)
{
    const char *servers = secure_getenv("REMOTE_GPU_SERVER");
    if (servers && *servers)
        return servers;
    pthread_once(&joined_once, look_for_joined);
    return *joined ? joined : RG_DEFAULT_SERVER;
}

unsigned rg_servers_gpus(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *text = secure_getenv("REMOTE_GPU_GPUS");
    int64_t gpus = 0;
    char why[160];
    if (text && *text && rg_parse_integer(text, 1, RG_DEVICES_MAX, &gpus, why, sizeof why) != RG_OK &&
        !atomic_flag_test_and_set(&told))
        rg_warn("REMOTE_GPU_GPUS: %s; taking all", why);
    return (unsigned)gpus;
}

/* The next part of *rest that is not empty, without the blanks around it. */
static char *next_part(char **rest, const char *separator)
{
    char *part = NULL;
    while (*rest && (part = strsep(rest, separator))) {
        part += strspn(part, BLANKS);
        size_t size = strlen(part);
        while (size && strchr(BLANKS, part[size - 1]))
            part[--size] = 0;
        if (size)
            return part;
    }
    return NULL;
}

void rg_servers_place(unsigned number, char *pci, size_t size)
{
    unsigned domain;
    int used = 0;
    if (number == 0 || sscanf(pci, "%x%n", &domain, &used) != 1 || pci[used] != ':')
        return;
    char rest[32];
    snprintf(rest, sizeof rest, "%s", pci + used);
    snprintf(pci, size, "%04X%s", (domain + number * RG_SERVER_DOMAINS) & 0xffff, rest);
}

void rg_servers_describe(const char *server, char *out, size_t size)
{
    struct rg_address address;
    char ending[16];
    const size_t length = strlen(server);
    if (rg_address_parse(server, &address, NULL, 0) == RG_OK && strcmp(address.scheme, "tcp") == 0) {
        const size_t n = (size_t)snprintf(ending, sizeof ending, ":%u", address.port);
        if (length < n || strcmp(server + length - n, ending) != 0) {
            snprintf(out, size, "%s (port %u)", server, address.port);
            return;
        }
    }
    snprintf(out, size, "%s", server);
}

void rg_servers_unreached(const char *server, enum rg_status status, const char *reason, const char *advice,
                          char *out, size_t size)
{
    char described[320];
    rg_servers_describe(server, described, sizeof described);
    if (status == RG_ERR_REFUSED)
        rg_explain(out, size, "cannot use the server %s: %s", described, reason);
    else
        rg_explain(out, size, "cannot reach the server %s: %s; %s", described, reason, advice);
}

char *rg_servers_next(char **rest)
{
    return next_part(rest, "|");
}

struct loading {
    bool rdma, names;
};

/* What connecting to one server takes. The names of others than the first of alternatives are looked up when it comes to them. */
static void load_for(const struct loading *loading, const char *server, bool first)
{
    RG_CLEANUP_FREE struct rg_credentials *credentials = malloc(sizeof *credentials);
    if (!credentials || rg_credentials_find(server, credentials, NULL, 0) != RG_OK)
        return;
    rg_transport_load(server, credentials->found);
    const bool far = *credentials->server_name; /* no socket of this machine's */
    if (loading->rdma && far && rg_credentials_allow_rdma(credentials, NULL, 0))
        rg_transport_load("rdma://*:0", false);
    if (loading->names && first)
        rg_transport_look_up(server, credentials->found);
}

static void load(void *loading)
{
    RG_CLEANUP_FREE char *list = strdup(rg_servers_named());
    char *rest = list, *alternatives, *server;
    while ((alternatives = next_part(&rest, ",")))
        for (bool first = true; (server = rg_servers_next(&alternatives)); first = false)
            load_for(loading, server, first);
}

void rg_servers_load(bool rdma)
{
    const bool others = rg_thread_has_others(); /* else nobody is in a constructor meanwhile */
    struct loading loading = {.rdma = rdma && others, .names = others};
    rg_thread_with_room(load, &loading);
}

bool rg_servers_read(struct rg_servers *out, const char *list)
{
    *out = (struct rg_servers){.text = strdup(list)};
    char *rest = out->text, *item;
    while (rest && (item = next_part(&rest, ","))) {
        if (out->n == RG_SERVERS_MAX) {
            rg_error("more than %u servers are named; name fewer", RG_SERVERS_MAX);
            rg_servers_free(out);
            return false;
        }
        out->items[out->n++] = item;
    }
    if (out->n)
        return true;
    rg_error("REMOTE_GPU_SERVER names no server");
    rg_servers_free(out);
    return false;
}

void rg_servers_free(struct rg_servers *servers)
{
    free(servers->text);
    *servers = (struct rg_servers){0};
}
