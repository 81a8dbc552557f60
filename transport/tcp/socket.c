/*
 * socket.c - options and names of sockets.
 *
 * A peer that vanished (power, cable) is noticed in about a minute. With nothing on its way the kernel's
 * keepalive does it. With data unacknowledged, keepalive rests and retransmission goes on for a quarter of an
 * hour; TCP_USER_TIMEOUT would shorten that, but it also ends a connection whose peer is alive and merely
 * does not read (stopped in a debugger, busy with a long kernel), window closed. So calls that wait wake up
 * every RG_TCP_HEALTH_MS (SO_RCVTIMEO, SO_SNDTIMEO) and look at TCP_INFO: retransmissions or window probes
 * unanswered, and no acknowledgement of any kind for RG_TCP_LOST_AFTER_MS. Where there are other ways to the peer,
 * SO_RCVTIMEO is shorter (liveness.h), and four times of that are as long as it may be silent.
 */
#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h> /* what netinet/tcp.h does not know: what has not been sent, and the peer's window */
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

const char *rg_tcp_name_phrase(int error, char *buffer, size_t size)
{
    if (error == EAI_SYSTEM)
        return rg_tcp_phrase(errno, buffer, size);
    return error == EAI_NONAME || error == EAI_NODATA ? "no such host" : gai_strerror(error);
}

const char *rg_tcp_phrase(int error, char *buffer, size_t size)
{
    switch (error) {
    case ECONNREFUSED:
        return RG_WHY_REFUSED;
    case ETIMEDOUT:
        return "timed out";
    case EHOSTUNREACH:
        return "no route to host";
    case ENETUNREACH:
        return "network unreachable";
    case ENOENT:
        return RG_WHY_NO_SOCKET;
    case EACCES:
    case EPERM:
        return "permission denied";
    case EADDRINUSE:
        return "address already in use";
    case EADDRNOTAVAIL:
        return "not an address of this machine";
    case EINVAL:
        return "not a whole address: one that begins with fe80 needs its interface, as in [fe80::1%eth0]";
    default:
        return strerror_r(error, buffer, size);
    }
}

/* --- options and health --- */

static void set_option(int fd, int level, int name, int value)
{
    if (setsockopt(fd, level, name, &value, sizeof value) != 0)
        rg_debug("socket option %d/%d: %m", level, name);
}

bool rg_tcp_tune(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t size = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    const struct timeval wait = {.tv_sec = RG_TCP_HEALTH_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (domain != AF_INET && domain != AF_INET6)
        return false;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    return true;
}

void rg_tcp_tune_bulk(int fd)
{
    enum { UNSENT_BYTES = 256 << 10 };
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
}

int rg_tcp_health_ms(int fd)
{
    struct timeval wait;
    socklen_t size = sizeof wait;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, &size) != 0 || wait.tv_sec <= 0)
        return RG_TCP_HEALTH_MS;
    return wait.tv_sec < RG_TCP_HEALTH_MS / 1000 ? (int)wait.tv_sec * 1000 : RG_TCP_HEALTH_MS;
}

bool rg_tcp_peer_alive(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return true; /* a unix socket: the kernel knows when the peer ends */
    return rg_tcp_is_answered(&info, rg_tcp_health_ms(fd) * (RG_TCP_LOST_AFTER_MS / RG_TCP_HEALTH_MS));
}

/*
 * What is to be sent does not leave this machine, although the peer's window is open: something here rejects it (a firewall's rule for
 * what goes out). The peer's own repetitions still come, and count as acknowledgements, but acknowledge nothing.
 */
static bool is_held_back(const struct tcp_info *info)
{
    enum { PROBES = 4 }; /* 3 s at least */
    return info->tcpi_notsent_bytes > 0 && info->tcpi_unacked == 0 && info->tcpi_snd_wnd > 0 &&
           info->tcpi_probes >= PROBES;
}

bool rg_tcp_is_answered(const struct tcp_info *info, int patience_ms)
{
    const bool unanswered = (info->tcpi_unacked > 0 && info->tcpi_retransmits > 0) || info->tcpi_probes >= 2;
    const uint32_t silent_ms = is_held_back(info) ? info->tcpi_last_data_recv : info->tcpi_last_ack_recv;
    return !unanswered || silent_ms < (uint32_t)patience_ms;
}

/* --- names --- */

/* Which link an address is on that every link has: without it nobody can connect there. */
static void add_zone(const struct sockaddr_in6 *address, char *out, size_t size)
{
    char name[IF_NAMESIZE];
    if (!address->sin6_scope_id)
        return;
    if (if_indextoname(address->sin6_scope_id, name))
        snprintf(out, size, "%%%s", name);
    else
        snprintf(out, size, "%%%u", (unsigned)address->sin6_scope_id);
}

void rg_tcp_sockaddr_name(const struct sockaddr_storage *address, socklen_t length, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE + 1] = "";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof host);
            snprintf(out, size, "%s:%u", host, ntohs(in6->sin6_port));
        } else {
            inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
            add_zone(in6, zone, sizeof zone);
            snprintf(out, size, "[%s%s]:%u", host, zone, ntohs(in6->sin6_port));
        }
    } else {
        const struct sockaddr_un *sun = (const void *)address;
        size_t n = length > offsetof(struct sockaddr_un, sun_path)
                       ? length - offsetof(struct sockaddr_un, sun_path)
                       : 0;
        if (n > 0 && sun->sun_path[0] == '\0')
            snprintf(out, size, "unix:@%.*s", (int)(n - 1), sun->sun_path + 1);
        else
            snprintf(out, size, "unix:%.*s", (int)n, sun->sun_path);
    }
}

void rg_tcp_peer_name(int fd, char *out, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    snprintf(out, size, "a peer without a name");
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0)
        return;
    struct ucred peer;
    socklen_t peer_size = sizeof peer;
    if (address.ss_family == AF_UNIX && length <= offsetof(struct sockaddr_un, sun_path) &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 && peer.pid > 0)
        snprintf(out, size, "unix: process %d", (int)peer.pid);
    else
        rg_tcp_sockaddr_name(&address, length, out, size);
}
