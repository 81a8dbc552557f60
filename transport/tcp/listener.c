/*
 * listener.c - listening sockets, TCP and unix.
 *
 * A unix path left behind by a process that is gone would make its successor fail with "address already in
 * use": if nobody answers there, it is removed and bound anew. The path is removed at the end by the process
 * that made it, if it is still the one that was made.
 */
#include "transport/tcp/socket.h"

#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, SHORTAGE_PAUSE_MS = 100 };

struct tcp_listener {
    struct rg_listener head;
    int fd;
    int wake_fd; /* eventfd: readable for ever once interrupted */
    atomic_bool interrupted;
    enum rg_wait_mode wait;
    pid_t owner;
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* of a unix socket in the file system */
    dev_t path_dev;
    ino_t path_ino;
};

static int bind_and_listen(int family, const struct sockaddr *address, socklen_t length, bool both_families)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const int on = 1, v6only = !both_families;
    if (family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
    if (bind(fd, address, length) != 0 || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* --- unix --- */

/* Whether `path` is a socket that no process has open. */
static bool is_stale(const char *path, const struct sockaddr *address, socklen_t length)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    /* of another type than a listener has: connecting to a live one fails, too (EPROTOTYPE), and does not
     * disturb it */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool stale = connect(fd, address, length) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

static int listen_unix(struct tcp_listener *l, const struct rg_address *address, char *why, size_t why_size)
{
    struct sockaddr_storage storage;
    socklen_t length = rg_tcp_unix_address(address, &storage, why, why_size);
    if (length == 0)
        return -1;
    const struct sockaddr *sa = (struct sockaddr *)&storage;
    const char *path = address->name[0] == '@' ? NULL : address->name;
    int fd = bind_and_listen(AF_UNIX, sa, length, false);
    int reason = errno;
    if (fd < 0 && reason == EADDRINUSE && path && is_stale(path, sa, length) && unlink(path) == 0) {
        fd = bind_and_listen(AF_UNIX, sa, length, false);
        reason = errno;
    }
    char buffer[128];
    if (fd < 0) {
        rg_explain(why, why_size, "%s",
                   reason == ENOENT ? "no such folder" : rg_tcp_phrase(reason, buffer, sizeof buffer));
        return -1;
    }
    struct stat st;
    if (path && lstat(path, &st) == 0) {
        strcpy(l->path, path);
        l->path_dev = st.st_dev;
        l->path_ino = st.st_ino;
    }
    snprintf(l->head.address, sizeof l->head.address, "unix:%s", address->name);
    return fd;
}

static void remove_path(const struct tcp_listener *l)
{
    struct stat st;
    if (l->path[0] && l->owner == getpid() && lstat(l->path, &st) == 0 && st.st_dev == l->path_dev &&
        st.st_ino == l->path_ino)
        unlink(l->path);
}

/* --- TCP --- */

static int listen_tcp(struct tcp_listener *l, const struct rg_address *address, char *why, size_t why_size)
{
    bool any = strcmp(address->host, "*") == 0;
    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(any ? NULL : address->host, port, &hints, &list);
    char buffer[128];
    if (error != 0) {
        rg_explain(why, why_size, "%s", rg_tcp_name_phrase(error, buffer, sizeof buffer));
        return -1;
    }
    /* of the wildcard, prefer IPv6, which takes IPv4 as well; of a name, IPv4 first */
    int fd = -1, reason = EADDRNOTAVAIL;
    for (int round = 0; round < 2 && fd < 0; round++) {
        int family = (round == 0) == any ? AF_INET6 : AF_INET;
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if (a->ai_family != family)
                continue;
            fd = bind_and_listen(family, a->ai_addr, a->ai_addrlen, any);
            if (fd < 0)
                reason = errno;
        }
    }
    freeaddrinfo(list);
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        rg_explain(why, why_size, "%s", rg_tcp_phrase(reason, buffer, sizeof buffer));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    strcpy(l->head.address, "tcp://");
    rg_tcp_sockaddr_name(&bound, length, l->head.address + 6, sizeof l->head.address - 6);
    return fd;
}

/* --- the listener --- */

void rg_tcp_listener_destroy(struct rg_listener *listener)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    if (l->fd >= 0) {
        remove_path(l);
        close(l->fd);
    }
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    free(l);
}

enum rg_status rg_tcp_listen(const struct rg_address *address, const struct rg_transport_options *options,
                             char *why, size_t why_size, struct rg_listener **out)
{
    struct tcp_listener *l = calloc(1, sizeof *l);
    if (!l)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    l->wait = options->wait;
    l->owner = getpid();
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool is_unix = strcmp(address->scheme, "unix") == 0;
    l->fd = is_unix ? listen_unix(l, address, why, why_size) : listen_tcp(l, address, why, why_size);
    if (l->fd >= 0 && l->wake_fd < 0)
        rg_explain(why, why_size, "out of descriptors");
    if (l->fd < 0 || l->wake_fd < 0) {
        rg_tcp_listener_destroy(&l->head);
        return RG_ERR_UNREACHABLE;
    }
    *out = &l->head;
    return RG_OK;
}

/* What the socket is bound to, as listeners of our own are called. False: it is none that listens for streams, or cannot be named. */
static bool name_of_socket(int fd, char *out, size_t size)
{
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound, int_length = sizeof(int), type_length = sizeof(int);
    int listens = 0, type = 0;
    char name[sizeof((struct rg_listener *)0)->address];
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_length) != 0 || !listens ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0 || type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0)
        return false;
    const bool tcp = bound.ss_family == AF_INET || bound.ss_family == AF_INET6;
    if (!tcp && (bound.ss_family != AF_UNIX || length <= offsetof(struct sockaddr_un, sun_path)))
        return false;
    rg_tcp_sockaddr_name(&bound, length, name, sizeof name);
    return snprintf(out, size, "%s%s", tcp ? "tcp://" : "", name) < (int)size;
}

enum rg_status rg_tcp_adopt_listener(int fd, const struct rg_transport_options *options, char *why,
                                     size_t why_size, struct rg_listener **out)
{
    struct tcp_listener *l = calloc(1, sizeof *l);
    if (!l)
        return RG_FAILED(RG_ERR_NO_MEMORY, why, why_size, "out of memory");
    const int flags = fcntl(fd, F_GETFL);
    l->fd = -1;
    l->wait = options->wait;
    l->owner = getpid();
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!name_of_socket(fd, l->head.address, sizeof l->head.address)) {
        rg_explain(why, why_size, "it is no TCP or unix socket that listens");
    } else if (l->wake_fd < 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
               fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        rg_explain(why, why_size, "%s", strerror(errno));
    } else {
        l->fd = fd;
        *out = &l->head;
        return RG_OK;
    }
    rg_tcp_listener_destroy(&l->head);
    return RG_ERR_INVALID;
}

/* What accept4 failed with: RG_OK to try again. */
static enum rg_status accept_failure(const struct tcp_listener *l, int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        /* the connection stays in the queue and the socket readable: do not let the caller turn in circles */
        rg_warn("%s: cannot accept a connection: %s", l->head.address, strerror(error));
        poll(NULL, 0, SHORTAGE_PAUSE_MS);
        return RG_ERR_NO_MEMORY;
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
    case EOPNOTSUPP:
    case EFAULT:
        rg_error("%s: accept: %s", l->head.address, strerror(error));
        return RG_ERR_IO;
    default:
        return RG_OK; /* the peer went away before it was accepted, or nothing is there */
    }
}

enum rg_status rg_tcp_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    uint64_t deadline = rg_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u;
    for (;;) {
        if (atomic_load_explicit(&l->interrupted, memory_order_acquire))
            return RG_ERR_CLOSED;
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            const struct rg_transport_options options = {.wait = l->wait};
            enum rg_status status = rg_tcp_conn_create(fd, &options, out);
            if (status != RG_OK)
                close(fd);
            return status;
        }
        RG_TRY(accept_failure(l, errno));
        uint64_t now = rg_now_ns();
        if (timeout_ms >= 0 && now >= deadline)
            return RG_ERR_TIMEOUT;
        int left = timeout_ms < 0 ? -1 : (int)((deadline - now + 999999u) / 1000000u);
        struct pollfd p[2] = {{.fd = l->fd, .events = POLLIN}, {.fd = l->wake_fd, .events = POLLIN}};
        poll(p, 2, left);
    }
}

void rg_tcp_listener_interrupt(struct rg_listener *listener)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    atomic_store_explicit(&l->interrupted, true, memory_order_release);
    eventfd_write(l->wake_fd, 1);
}

int rg_tcp_listener_fd(const struct rg_listener *listener)
{
    return ((const struct tcp_listener *)listener)->fd;
}
