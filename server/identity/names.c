/* names.c - see names.h. */
#include "server/identity/names.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME_MAX_SIZE 254

/* A host's name, or an address without brackets. */
static bool is_name(const char *text)
{
    unsigned char address[16];
    if (inet_pton(AF_INET6, text, address) == 1)
        return true;
    if (!*text || strlen(text) >= NAME_MAX_SIZE || *text == '.' || *text == '-')
        return false;
    for (; *text; text++)
        if (!isascii((unsigned char)*text) || (!isalnum((unsigned char)*text) && !strchr(".-_", *text)))
            return false;
    return true;
}

static void add(struct rg_names *names, const char *text)
{
    if (!is_name(text) || names->n == RG_IDENTITY_NAMES_MAX)
        return;
    for (size_t i = 0; i < names->n; i++)
        if (strcasecmp(names->items[i], text) == 0)
            return;
    names->items[names->n] = strdup(text);
    names->n += names->items[names->n] != NULL;
}

void rg_names_canonical(char *name, size_t size)
{
    char host[256] = "";
    const struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    name[0] = 0;
    if (gethostname(host, sizeof host - 1) != 0 || getaddrinfo(host, NULL, &hints, &found) != 0)
        return;
    if (found->ai_canonname && strlen(found->ai_canonname) < size)
        strcpy(name, found->ai_canonname);
    freeaddrinfo(found);
}

/* Addresses that others can use: not those of one link, which need a scope. */
static void add_addresses(struct rg_names *names)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        const struct sockaddr *address = at->ifa_addr;
        if (address && address->sa_family == AF_INET &&
            inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text))
            add(names, text);
        if (address && address->sa_family == AF_INET6) {
            const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
            if (!IN6_IS_ADDR_LINKLOCAL(v6) && inet_ntop(AF_INET6, v6, text, sizeof text))
                add(names, text);
        }
    }
    freeifaddrs(all);
}

enum rg_status rg_names_collect(struct rg_names *names, const char *const *more, size_t n_more,
                                const char *canonical, char *why, size_t why_size)
{
    char host[256] = "";
    names->n = 0;
    if (gethostname(host, sizeof host - 1) == 0)
        add(names, host);
    for (size_t i = 0; i < n_more; i++) {
        if (!is_name(more[i]))
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "'%.80s' is neither the name of a host nor an address (--tls-name)", more[i]);
        add(names, more[i]);
    }
    add(names, "localhost");
    add(names, "127.0.0.1");
    add(names, "::1");
    add(names, canonical);
    add_addresses(names);
    return names->n ? RG_OK : RG_ERR_NO_MEMORY;
}

void rg_names_fini(struct rg_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    names->n = 0;
}
