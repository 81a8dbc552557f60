/* place.c - see place.h. */
#include "client/nccl/place.h"

#include "common/base/printable.h"
#include "transport/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* False: it is of no family that there is. */
static bool write_address(const struct rg_nccl_place *place, const char *server, char *out, size_t size)
{
    struct rg_address address = {.port = place->port};
    const bool is_unix = place->family == RG_NCCL_PLACE_UNIX;
    if (!is_unix && place->family != RG_NCCL_PLACE_IPV4 && place->family != RG_NCCL_PLACE_IPV6)
        return false;
    snprintf(address.scheme, sizeof address.scheme, "%s", is_unix ? "unix" : "tcp");
    snprintf(address.transport, sizeof address.transport, "tcp");
    if (is_unix)
        snprintf(address.name, sizeof address.name, "%s", server);
    else
        (void)inet_ntop(place->family == RG_NCCL_PLACE_IPV6 ? AF_INET6 : AF_INET, place->address,
                        address.host, sizeof address.host);
    rg_address_format(&address, out, size);
    return true;
}

static bool is_loopback(const char *host)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    return strcasecmp(host, "localhost") == 0 ||
           (inet_pton(AF_INET, host, &v4.sin_addr) == 1 && rg_address_is_loopback((const void *)&v4)) ||
           (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 && rg_address_is_loopback((const void *)&v6));
}

/* Whether the client's name for a server leads where its address does, as far as that can be told: over a network, and not here. */
static bool fits(const char *server, const struct rg_address *reached)
{
    struct rg_address named;
    return rg_address_parse(server, &named, NULL, 0) == RG_OK && named.host[0] &&
           (!is_loopback(named.host) || is_loopback(reached->host));
}

/* Whether they are what an address is made of: a path could be read as something else. */
static bool leads_somewhere(const struct rg_nccl_place *place, const struct rg_nccl_way *way)
{
    struct rg_address reached;
    if (rg_address_parse(way->address, &reached, NULL, 0) != RG_OK)
        return false;
    return place->family == RG_NCCL_PLACE_UNIX ? strcmp(reached.name, way->server) == 0
                                               : fits(way->server, &reached);
}

bool rg_nccl_place_read(const struct rg_nccl_place *place, struct rg_nccl_way *out, char *why,
                        size_t why_size)
{
    char clean[sizeof out->server];
    snprintf(out->server, sizeof out->server, "%.*s", (int)sizeof place->server, place->server);
    snprintf(clean, sizeof clean, "%s", out->server);
    rg_printable_clean(clean);
    if (strcmp(clean, out->server) == 0 && *clean &&
        write_address(place, out->server, out->address, sizeof out->address) && leads_somewhere(place, out))
        return true;
    rg_explain(why, why_size,
               "the id of the communicator names '%s' as a server, which none can be: it is damaged, or was "
               "made to lead "
               "astray",
               clean);
    return false;
}
