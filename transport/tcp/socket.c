/*
 * socket.c - connecting, options and names of sockets.
 *
 * A peer that vanished (power, cable) is noticed in about a minute. With nothing on its way the kernel's
 * keepalive does it. With data unacknowledged, keepalive rests and retransmission goes on for a quarter of an
 * hour; TCP_USER_TIMEOUT would shorten that, but it also ends a connection whose peer is alive and merely
 * does not read (stopped in a debugger, busy with a long kernel), window closed. So calls that wait wake up
 * every RG_TCP_HEALTH_MS (SO_RCVTIMEO, SO_SNDTIMEO) and look at TCP_INFO: retransmissions or window probes
 * unanswered, and no acknowledgement of any kind for RG_TCP_LOST_AFTER_MS.
 */
#include "transport/tcp/socket.h"

#include "common/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

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
    default:
        return strerror_r(error, buffer, size);
    }
}

/* --- connecting --- */

/* Connects within timeout_ms. Returns the descriptor, in blocking mode, or -1 with errno set. */
static int connect_one(int family, const struct sockaddr *address, socklen_t length, int timeout_ms)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int error = 0;
    uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    /* a unix socket whose backlog is full answers EAGAIN at once, and there is nothing to poll for */
    while (connect(fd, address, length) != 0 && (error = errno) == EAGAIN && rg_now_ns() < deadline) {
        poll(NULL, 0, 5);
        error = 0;
    }
    if (error == EINPROGRESS || error == EINTR) {
        for (;;) {
            uint64_t now = rg_now_ns();
            int left = now >= deadline ? 0 : (int)((deadline - now) / 1000000u) + 1;
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            int n = poll(&p, 1, left);
            if (n < 0 && errno == EINTR)
                continue;
            socklen_t size = sizeof error;
            if (n == 0)
                error = ETIMEDOUT;
            else if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
                error = errno;
            break;
        }
    } else if (error == EAGAIN) {
        error = ETIMEDOUT;
    }
    if (error == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0)
        error = errno;
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

socklen_t rg_tcp_unix_address(const struct rg_address *address, struct sockaddr_storage *out, char *why,
                              size_t why_size)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    size_t length = strlen(address->name);
    if (length >= sizeof sun.sun_path) {
        rg_explain(why, why_size, "the path is longer than %zu bytes", sizeof sun.sun_path - 1);
        return 0;
    }
    memcpy(sun.sun_path, address->name, length + 1);
    bool abstract = sun.sun_path[0] == '@';
    if (abstract)
        sun.sun_path[0] = '\0';
    memset(out, 0, sizeof *out);
    memcpy(out, &sun, sizeof sun);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + !abstract);
}

static int connect_unix(const struct rg_address *address, int timeout_ms, char *why, size_t why_size)
{
    struct sockaddr_storage storage;
    socklen_t length = rg_tcp_unix_address(address, &storage, why, why_size);
    if (length == 0)
        return -1;
    int fd = connect_one(AF_UNIX, (struct sockaddr *)&storage, length, timeout_ms);
    char buffer[128];
    if (fd < 0)
        rg_explain(why, why_size, "%s", rg_tcp_phrase(errno, buffer, sizeof buffer));
    return fd;
}

int rg_tcp_connect_socket(const struct rg_address *address, int timeout_ms, char *why, size_t why_size)
{
    if (strcmp(address->scheme, "unix") == 0)
        return connect_unix(address, timeout_ms, why, why_size);

    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    int error = getaddrinfo(address->host, port, &hints, &list);
    if (error == EAI_NONAME || error == EAI_ADDRFAMILY || error == EAI_NODATA) {
        /* a machine without a configured interface still reaches itself by number */
        const struct addrinfo numeric = {
            .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
        if (getaddrinfo(address->host, port, &numeric, &list) == 0)
            error = 0;
    }
    if (error != 0) {
        rg_explain(why, why_size, "%s",
                   error == EAI_NONAME || error == EAI_NODATA ? "no such host" : gai_strerror(error));
        return -1;
    }
    int left = 0, fd = -1, reason = ECONNREFUSED;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        left++;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next, left--) {
        /* each gets its share of the time, so that a dead first address leaves some for the second */
        uint64_t now = rg_now_ns();
        int share = now >= deadline ? 1 : (int)((deadline - now) / 1000000u) / left + 1;
        fd = connect_one(a->ai_family, a->ai_addr, a->ai_addrlen, share);
        reason = errno;
    }
    freeaddrinfo(list);
    char buffer[128];
    if (fd < 0)
        rg_explain(why, why_size, "%s", rg_tcp_phrase(reason, buffer, sizeof buffer));
    return fd;
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

bool rg_tcp_peer_alive(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return true; /* a unix socket: the kernel knows when the peer ends */
    bool unanswered = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes >= 2;
    return !unanswered || info.tcpi_last_ack_recv < RG_TCP_LOST_AFTER_MS;
}

/* --- names --- */

void rg_tcp_sockaddr_name(const struct sockaddr_storage *address, socklen_t length, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
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
            snprintf(out, size, "[%s]:%u", host, ntohs(in6->sin6_port));
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
