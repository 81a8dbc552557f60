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

#include <stdio.h>
#include <string.h>

/* Whether only processes of this machine are there. */
static bool is_here(const struct rg_address *address)
{
    return !address->host[0] || rg_credentials_is_loopback(address) ||
           strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0;
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
