/*
 * connect.c - connecting sockets.
 *
 * A name may have several addresses, and the first need not lead anywhere: IPv6 that ends at the next router, a machine that has
 * moved. So each is tried a moment after the one before, which goes on meanwhile, and the first that is connected is taken (as
 * RFC 8305 has it). What fails is a phrase for people.
 */
#include "transport/tcp/socket.h"

#include "common/base/clock.h"
#include "common/base/poll.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    AT_ONCE = 16, /* attempts */
    LEAST_MS =
        3000, /* of the time to connect, however long it took to look up where to: no other attempt would take less */
    NEXT_AFTER_MS = 250, /* the delay that RFC 8305 recommends */
};

/* Milliseconds until then, rounded up, for poll. */
static int left_ms(uint64_t deadline)
{
    const uint64_t now = rg_now_ns(), left = now >= deadline ? 0 : (deadline - now) / 1000000u + 1;
    return left < INT_MAX ? (int)left : INT_MAX;
}

/* A socket that connects; *error: 0 if it has already, EINPROGRESS. -1: *error says why not. */
static int begin(int family, const struct sockaddr *address, socklen_t length, int *error)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *error = fd < 0 || connect(fd, address, length) != 0 ? errno : 0;
    if (*error == EINTR)
        *error = EINPROGRESS;
    if (fd < 0 || *error == 0 || *error == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

/* In blocking mode; -1: errno says why not. */
static int make_blocking(int fd)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* --- unix --- */

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

/* A socket whose backlog is full answers EAGAIN at once, and there is nothing to poll for. */
static int connect_patiently(const struct sockaddr *address, socklen_t length, uint64_t deadline, int *error)
{
    int fd;
    while ((fd = begin(AF_UNIX, address, length, error)) < 0 && *error == EAGAIN) {
        *error = ETIMEDOUT;
        if (rg_now_ns() >= deadline)
            break;
        (void)rg_poll(NULL, 0, 5);
    }
    return fd;
}

static int connect_unix(const struct rg_address *address, uint64_t deadline, char *why, size_t why_size)
{
    struct sockaddr_storage storage;
    const socklen_t length = rg_tcp_unix_address(address, &storage, why, why_size);
    if (length == 0)
        return -1;
    int error;
    int fd = connect_patiently((struct sockaddr *)&storage, length, deadline, &error);
    if (fd >= 0 && (fd = make_blocking(fd)) < 0)
        error = errno;
    char buffer[128];
    if (fd < 0)
        rg_explain(why, why_size, "%s", rg_tcp_phrase(error, buffer, sizeof buffer));
    return fd;
}

/* --- TCP --- */

struct attempts {
    const struct addrinfo *next; /* what has not been tried */
    uint64_t next_ns;            /* when it is to be */
    struct pollfd under_way[AT_ONCE];
    unsigned n;
    int error; /* of those that have failed, the most telling */
};

/* That a machine is there and refuses says more than that one is silent, and that more than that there is no way. */
static void note_failure(struct attempts *a, int error)
{
    if (a->error != ECONNREFUSED && (a->error != ETIMEDOUT || error == ECONNREFUSED))
        a->error = error;
    a->next_ns = 0;
}

/* Tries the next address. The socket if it is connected at once, else -1. */
static int try_next(struct attempts *a)
{
    int error;
    const int fd = begin(a->next->ai_family, a->next->ai_addr, a->next->ai_addrlen, &error);
    a->next = a->next->ai_next;
    if (fd < 0) {
        note_failure(a, error);
        return -1;
    }
    if (error == 0)
        return fd;
    a->under_way[a->n++] = (struct pollfd){.fd = fd, .events = POLLOUT};
    a->next_ns = rg_now_ns() + NEXT_AFTER_MS * 1000000u;
    return -1;
}

/* Takes out what has come to an end. The socket if one is connected, else -1. */
static int look(struct attempts *a)
{
    for (unsigned i = a->n; i-- > 0;) {
        int error = 0;
        socklen_t size = sizeof error;
        const int fd = a->under_way[i].fd;
        if (!a->under_way[i].revents)
            continue;
        a->under_way[i] = a->under_way[--a->n];
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
            return fd;
        close(fd);
        note_failure(a, error ? error : errno);
    }
    return -1;
}

int rg_tcp_connect_first(const struct addrinfo *list, int timeout_ms)
{
    const uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct attempts a = {.next = list};
    int fd = -1;
    while (fd < 0 && (a.next || a.n)) {
        const bool may_begin = a.next && a.n < AT_ONCE;
        const uint64_t now = rg_now_ns(), next = may_begin && a.next_ns < deadline ? a.next_ns : deadline;
        if (may_begin && now >= a.next_ns) {
            fd = try_next(&a);
        } else if (now >= deadline) {
            note_failure(&a, ETIMEDOUT);
            break;
        } else {
            const int n = rg_poll(a.under_way, a.n, left_ms(next));
            if (n < 0 && rg_poll_is_refused()) {
                note_failure(&a, errno);
                break;
            }
            fd = n > 0 ? look(&a) : -1;
        }
    }
    while (a.n)
        close(a.under_way[--a.n].fd);
    errno = a.error;
    return fd < 0 ? -1 : make_blocking(fd);
}

int rg_tcp_connect_socket(const struct rg_address *address, int timeout_ms, char *why, size_t why_size)
{
    const uint64_t deadline = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    if (strcmp(address->scheme, "unix") == 0)
        return connect_unix(address, deadline, why, why_size);

    char buffer[128];
    struct addrinfo *list = NULL;
    const int error = rg_tcp_find_addresses(address, &list);
    if (error != 0) {
        rg_explain(why, why_size, "%s", rg_tcp_name_phrase(error, buffer, sizeof buffer));
        return -1;
    }
    const int least = timeout_ms < LEAST_MS ? timeout_ms : LEAST_MS, left = left_ms(deadline);
    const int fd = rg_tcp_connect_first(list, left > least ? left : least), reason = errno;
    freeaddrinfo(list);
    if (fd < 0)
        rg_explain(why, why_size, "%s", rg_tcp_phrase(reason, buffer, sizeof buffer));
    return fd;
}
