/* address.c - taking addresses apart. No look-ups here: a name is resolved by the transport that connects. */
#include "transport/address.h"

#include "common/base/limits.h"
#include "common/base/parse.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static enum rg_status copy_field(char *field, size_t size, const char *text, size_t length, const char *what,
                                 char *why, size_t why_size)
{
    if (length == 0 || length >= size)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, length ? "the %s is too long" : "the %s is missing",
                         what);
    memcpy(field, text, length);
    field[length] = '\0';
    return RG_OK;
}

static bool is_scheme(const char *text, size_t length)
{
    if (length == 0 || length >= sizeof((struct rg_address *)0)->scheme)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!((text[i] >= 'a' && text[i] <= 'z') || (i > 0 && text[i] >= '0' && text[i] <= '9')))
            return false;
    return true;
}

static enum rg_status parse_host_port(const char *text, struct rg_address *out, char *why, size_t why_size)
{
    const char *host = text, *port = NULL;
    size_t host_length;
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (!end || (end[1] != '\0' && end[1] != ':'))
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "'%s' is not an address: expected [ADDRESS] or [ADDRESS]:PORT", text);
        host++;
        host_length = (size_t)(end - host);
        port = end[1] == ':' ? end + 2 : NULL;
    } else {
        const char *colon = strchr(text, ':');
        if (colon && strchr(colon + 1, ':'))
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "'%s': an IPv6 address is written in brackets, as in [::1]:%d", text,
                             RG_DEFAULT_PORT);
        host_length = colon ? (size_t)(colon - text) : strlen(text);
        port = colon ? colon + 1 : NULL;
    }
    RG_TRY(copy_field(out->host, sizeof out->host, host, host_length, "host", why, why_size));
    if (strpbrk(out->host, "/[] \t\n"))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not a host name", out->host);
    out->port = RG_DEFAULT_PORT;
    if (port) {
        int64_t number;
        if (rg_parse_integer(port, 0, 65535, &number, NULL, 0) != RG_OK || *port == '-')
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is not a port number", port);
        out->port = (uint16_t)number;
    }
    return RG_OK;
}

static bool has_host(const char *scheme)
{
    return strcmp(scheme, "tcp") == 0 || strcmp(scheme, "rdma") == 0;
}

enum rg_status rg_address_parse(const char *text, struct rg_address *out, char *why, size_t why_size)
{
    struct rg_address address = {0};
    if (!text || !*text)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "the address is empty");
    /* "SCHEME://" is always a scheme; "SCHEME:" only those that cannot be taken for HOST:PORT */
    const char *rest = text;
    size_t length = strcspn(text, ":");
    bool scheme = strncmp(text + length, "://", 3) == 0;
    bool opaque =
        (length == 4 && strncmp(text, "unix", 4) == 0) || (length == 3 && strncmp(text, "mem", 3) == 0);
    if (text[length] == ':' && (scheme || opaque)) {
        if (!is_scheme(text, length))
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%.*s' is not the name of a transport",
                             (int)length, text);
        memcpy(address.scheme, text, length);
        rest = text + length + 1;
        if (!opaque)
            rest += 2;
        else if (strncmp(rest, "//", 2) == 0) /* unix:///run/x, mem://x */
            rest += 2;
    } else {
        strcpy(address.scheme, "tcp");
    }
    bool is_unix = strcmp(address.scheme, "unix") == 0;
    strcpy(address.transport, is_unix ? "tcp" : address.scheme);

    enum rg_status status;
    if (has_host(address.scheme)) {
        status = parse_host_port(rest, &address, why, why_size);
    } else {
        status = copy_field(address.name, sizeof address.name, rest, strlen(rest), is_unix ? "path" : "name",
                            why, why_size);
        if (status == RG_OK && is_unix && rest[0] != '/' && (rest[0] != '@' || rest[1] == '\0')) {
            rg_explain(why, why_size, "'%s' is neither an absolute path nor @NAME", rest);
            status = RG_ERR_INVALID;
        }
    }
    if (status == RG_OK)
        *out = address;
    return status;
}

void rg_address_format(const struct rg_address *address, char *out, size_t size)
{
    bool brackets = strchr(address->host, ':') != NULL;
    /* only those of this machine are known without "//", which is needed where the name would begin with it */
    bool opaque = strcmp(address->scheme, "unix") == 0 || strcmp(address->scheme, "mem") == 0;
    if (has_host(address->scheme))
        snprintf(out, size, "%s://%s%s%s:%u", address->scheme, brackets ? "[" : "", address->host,
                 brackets ? "]" : "", address->port);
    else
        snprintf(out, size, "%s:%s%s", address->scheme,
                 opaque && strncmp(address->name, "//", 2) != 0 ? "" : "//", address->name);
}

bool rg_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
    }
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return false;
}

/* An IPv4 address as IPv6 has it, else the address itself. False: neither. */
static bool take_host(const struct sockaddr *address, struct in6_addr *out)
{
    if (address->sa_family == AF_INET) {
        *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)address)->sin_addr, 4);
        return true;
    }
    if (address->sa_family == AF_INET6)
        *out = ((const struct sockaddr_in6 *)address)->sin6_addr;
    return address->sa_family == AF_INET6;
}

bool rg_address_is_same_host(const struct sockaddr *one, const struct sockaddr *other)
{
    struct in6_addr first, second;
    if (!take_host(one, &first) || !take_host(other, &second))
        return false;
    return memcmp(&first, &second, sizeof first) == 0 ||
           (rg_address_is_loopback(one) && rg_address_is_loopback(other));
}

bool rg_address_is_within_host(int socket)
{
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    if (getsockname(socket, (struct sockaddr *)&own, &own_size) != 0)
        return false;
    return own.ss_family == AF_UNIX ||
           (getpeername(socket, (struct sockaddr *)&peer, &peer_size) == 0 &&
            rg_address_is_same_host((const struct sockaddr *)&own, (const struct sockaddr *)&peer));
}
