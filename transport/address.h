/*
 * address.h - addresses of transports, taken apart.
 *
 *   tcp://HOST:PORT  HOST:PORT  HOST  [V6]:PORT  [V6]  *:PORT (to listen on every interface)
 *   rdma://HOST:PORT  likewise
 *   unix:/PATH  unix:@NAME
 *   SCHEME:NAME or SCHEME://NAME   of any other transport (mem:NAME)
 */
#ifndef RG_TRANSPORT_ADDRESS_H
#define RG_TRANSPORT_ADDRESS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rg_address {
    char scheme[16];    /* "tcp", "unix", "mem", … */
    char transport[16]; /* whose table serves the scheme: "tcp" for unix, else the scheme itself */
    char host[256];     /* tcp, rdma: name or number, without brackets */
    uint16_t port;      /* tcp, rdma */
    char name[256];     /* all others: what stands after the scheme */
};

/** Takes `text` apart. RG_ERR_INVALID with the reason in `why`. */
RG_MUST_CHECK enum rg_status rg_address_parse(const char *text, struct rg_address *out, char *why,
                                              size_t why_size);
/** Writes "tcp://HOST:PORT" (with brackets where needed), "unix:…" and so on. */
void rg_address_format(const struct rg_address *address, char *out, size_t size);

/** Ends an address before the link that it is on ("fe80::1%eth0"), which only this machine knows by that name. */
static inline void rg_address_cut_zone(char *host)
{
    char *zone = strchr(host, ':') ? strchr(host, '%') : NULL;
    if (zone)
        *zone = '\0';
}

struct sockaddr;
/** Whether it is one of this machine's loopback addresses, IPv4 ones in IPv6 included. */
bool rg_address_is_loopback(const struct sockaddr *address);
/** Whether both are addresses of one machine's, without their ports, IPv4 ones in IPv6 included: the same, or both loopback. */
bool rg_address_is_same_host(const struct sockaddr *one, const struct sockaddr *other);
/** Whether both ends of a connected socket are on this machine; -1: there is none. One that was reset has no other end any more. */
bool rg_address_is_within_host(int socket);

#endif
