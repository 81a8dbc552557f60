/* rails.c - see rails.h. */
#include "server/handshake/rails.h"
#include "transport/state.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The address of this machine that the client has come to, as a number, and its port. False: none that others reach. */
static bool find_own(const struct rg_conn *conn, char out[INET6_ADDRSTRLEN], uint16_t *port)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (rg_conn_fd(conn) < 0 || getsockname(rg_conn_fd(conn), (struct sockaddr *)&own, &size) != 0)
        return false;
    if (own.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)&own;
        *port = ntohs(in->sin_port);
        return inet_ntop(AF_INET, &in->sin_addr, out, INET6_ADDRSTRLEN) && strncmp(out, "127.", 4) != 0;
    }
    if (own.ss_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *in6 = (const void *)&own;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
    *port = ntohs(in6->sin6_port);
    return inet_ntop(mapped ? AF_INET : AF_INET6,
                     mapped ? &in6->sin6_addr.s6_addr[12] : in6->sin6_addr.s6_addr, out, INET6_ADDRSTRLEN) &&
           !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) && strncmp(out, "127.", 4) != 0;
}

/* One entry, of which the session's client is told if it belongs to the port that it came to. */
static void take(const char *entry, size_t size, uint16_t port, struct rg_server_hello *hello)
{
    unsigned at_port, rail;
    char text[80], number[RG_CONTROL_NUMBER];
    snprintf(text, sizeof text, "%.*s", (int)size, entry);
    if (sscanf(text, "%u/%u/%47s", &at_port, &rail, number) != 3 || (at_port && at_port != port) ||
        hello->n_tcp_addresses == RG_CONTROL_ADDRESSES)
        return;
    hello->tcp_rails[hello->n_tcp_addresses] = rail;
    snprintf(hello->tcp_addresses[hello->n_tcp_addresses++], sizeof hello->tcp_addresses[0], "%s", number);
}

/* Whether they lead by another link than that of `own`. */
static bool leads_elsewhere(const struct rg_server_hello *hello, const char *own)
{
    const uint32_t *link = NULL;
    for (uint32_t i = 0; i < hello->n_tcp_addresses; i++)
        if (strcmp(hello->tcp_addresses[i], own) == 0)
            link = &hello->tcp_rails[i];
    for (uint32_t i = 0; i < hello->n_tcp_addresses; i++)
        if (!link || hello->tcp_rails[i] != *link)
            return true;
    return false;
}

bool rg_rails_tell(const char *rails, const struct rg_conn *conn, struct rg_server_hello *hello)
{
    struct rg_conn_security security;
    char own[INET6_ADDRSTRLEN];
    uint16_t port;
    rg_conn_security(conn, &security);
    if (!rails || !security.encrypted || !find_own(conn, own, &port))
        return false;
    for (const char *at = rails; *at;) {
        const size_t size = strcspn(at, ",");
        take(at, size, port, hello);
        at += size + (at[size] == ',');
    }
    if (!leads_elsewhere(hello, own))
        hello->n_tcp_addresses = 0;
    return hello->n_tcp_addresses != 0;
}
