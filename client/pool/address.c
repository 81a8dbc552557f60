/*
 * address.c - whether a client goes where a server of a pool sends it: see internal.h. Any thread.
 *
 * A server may send it to any other, which has to prove what it is as the one does that was asked. Sockets of the client's own machine need
 * prove nothing, and are for programs of that machine: a server elsewhere has nothing to do with them.
 */
#include "transport/address.h"
#include "client/credentials/credentials.h"
#include "client/pool/internal.h"
#include "common/base/printable.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* Whether it is the number of a machine, in whatever spelling connecting takes ("127.1", "0x7f000001"), that leads to this one. */
static bool is_number_of_ours(const char *host)
{
    static const struct in6_addr any = IN6ADDR_ANY_INIT;
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    bool ours = false;
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    for (const struct addrinfo *at = list; at; at = at->ai_next) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)at->ai_addr)->sin6_addr;
        ours |= rg_address_is_loopback(at->ai_addr);
        ours |= at->ai_family == AF_INET &&
                ((const struct sockaddr_in *)(const void *)at->ai_addr)->sin_addr.s_addr == INADDR_ANY;
        ours |= at->ai_family == AF_INET6 &&
                (memcmp(v6, &any, sizeof any) == 0 || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr32[3] == 0));
    }
    freeaddrinfo(list);
    return ours;
}

/* Names that stand for this machine everywhere: RFC 6761, and what distributions have in /etc/hosts. */
static bool is_name_of_ours(const char *host)
{
    static const char *const names[] = {"localhost", "localhost.localdomain", "ip6-localhost",
                                        "ip6-loopback"};
    const size_t size = strlen(host), used = size - (size > 0 && host[size - 1] == '.'); /* "localhost." */
    static const char last[] = ".localhost";
    bool ours =
        used >= sizeof last - 1 && strncasecmp(host + used - (sizeof last - 1), last, sizeof last - 1) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ours |= strlen(names[i]) == used && strncasecmp(host, names[i], used) == 0;
    return ours;
}

/* Whether only processes of this machine are there. */
static bool is_here(const struct rg_address *address)
{
    return !address->host[0] || strcmp(address->host, "*") == 0 || rg_credentials_is_loopback(address) ||
           is_name_of_ours(address->host) || is_number_of_ours(address->host);
}

bool rg_pool_may_lead(const char *asked, const char *address)
{
    struct rg_address from, to;
    char clean[sizeof to.host + sizeof to.name];
    snprintf(clean, sizeof clean, "%s", address);
    rg_printable_clean(clean);
    if (strcmp(clean, address) != 0 ||
        strpbrk(address, ",| ") || /* in a list of servers, these are between them */
        rg_address_parse(address, &to, NULL, 0) != RG_OK)
        return false;
    return !is_here(&to) || (rg_address_parse(asked, &from, NULL, 0) == RG_OK && is_here(&from));
}
