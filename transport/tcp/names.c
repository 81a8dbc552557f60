/*
 * names.c - the addresses that a host has.
 *
 * A look-up may have the C library load parts of its own (nsswitch.conf). Who connects under a lock therefore looks up before, without it
 * (rg_tcp_look_up): what that finds, or why it finds nothing, is kept until a connection takes it, or for a moment.
 */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/sync/scoped_lock.h"
#include "transport/tcp/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KEPT_NS 10000000000ull

/* What a look-up gave. */
struct found {
    struct addrinfo *list;
    int error, system_error; /* getaddrinfo's, and errno with it */
};

static struct kept {
    char host[sizeof((struct rg_address *)0)->host]; /* "": there is none */
    uint16_t port;
    uint64_t until_ns;
    struct found found;
} kept[RG_SERVERS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what is kept */

static struct found look_up(const struct rg_address *address)
{
    struct found found = {0};
    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    found.error = getaddrinfo(address->host, port, &hints, &found.list);
    found.system_error = errno;
    if (found.error != EAI_NONAME && found.error != EAI_ADDRFAMILY && found.error != EAI_NODATA)
        return found;
    /* a machine without a configured interface still reaches itself by number */
    const struct addrinfo numeric = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(address->host, port, &numeric, &found.list) == 0)
        found.error = 0;
    return found;
}

/* Takes out of what is kept. Under the lock. */
static struct found take(struct kept *one)
{
    const struct found found = one->found;
    *one = (struct kept){0};
    return found;
}

static void drop(struct kept *one)
{
    const struct found found = take(one);
    if (found.list)
        freeaddrinfo(found.list);
}

void rg_tcp_look_up(const struct rg_address *address)
{
    if (strcmp(address->scheme, "unix") == 0)
        return;
    const struct found found = look_up(address);
    RG_SCOPED_LOCK(&lock);
    struct kept *oldest = &kept[0];
    for (size_t i = 1; i < RG_SERVERS_MAX; i++)
        if (kept[i].until_ns < oldest->until_ns)
            oldest = &kept[i];
    drop(oldest);
    *oldest = (struct kept){.port = address->port, .until_ns = rg_now_ns() + KEPT_NS, .found = found};
    memcpy(oldest->host, address->host, sizeof oldest->host);
}

/* What is kept for the address; false: there is nothing. */
static bool take_kept(const struct rg_address *address, struct found *out)
{
    bool good = false;
    RG_SCOPED_LOCK(&lock);
    for (size_t i = 0; i < RG_SERVERS_MAX && !good; i++) {
        struct kept *one = &kept[i];
        if (!one->host[0] || one->port != address->port || strcmp(one->host, address->host) != 0)
            continue;
        good = rg_now_ns() < one->until_ns;
        if (good)
            *out = take(one);
        else
            drop(one);
    }
    return good;
}

int rg_tcp_find_addresses(const struct rg_address *address, struct addrinfo **list)
{
    struct found found;
    if (!take_kept(address, &found))
        found = look_up(address);
    *list = found.list;
    errno = found.system_error;
    return found.error;
}
