/* packet.c - see packet.h. */
#include "common/base/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool rg_packet_send(int socket, const void *data, size_t size, const int *fds, unsigned n_fds)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int) * RG_PACKET_FDS_MAX)];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_fds > RG_PACKET_FDS_MAX) {
        errno = EINVAL;
        return false;
    }
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * n_fds);
    }
    ssize_t sent;
    while ((sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return sent == (ssize_t)size;
}

void rg_packet_close(const int *fds, unsigned n_fds)
{
    for (unsigned i = 0; i < n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

enum rg_status rg_packet_receive(int socket, int flags, void *data, size_t size, int *fds, unsigned max,
                                 unsigned *n_fds)
{
    struct iovec part = {data, size};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int) * RG_PACKET_FDS_MAX)];
    } control;
    /* no room behind the last one: what the head's alignment adds would take one more than there are places for */
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(sizeof(int) * max)};
    ssize_t got;
    bool more = false;
    *n_fds = 0;
    if (max > RG_PACKET_FDS_MAX)
        return RG_ERR_INVALID;
    while ((got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? RG_ERR_TIMEOUT : RG_ERR_CLOSED;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            const unsigned n = (unsigned)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (unsigned i = 0; i < n; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
                if (*n_fds < max) {
                    fds[(*n_fds)++] = fd;
                } else {
                    close(fd);
                    more = true;
                }
            }
        }
    if (got == 0 && *n_fds == 0)
        return RG_ERR_CLOSED;
    const bool whole = got == (ssize_t)size && !(message.msg_flags & MSG_TRUNC) && !more;
    if (whole && (message.msg_flags & MSG_CTRUNC) && *n_fds < max) {
        rg_packet_close(fds, *n_fds);
        *n_fds = 0;
        return RG_ERR_LIMIT;
    }
    if (!whole || (message.msg_flags & MSG_CTRUNC)) {
        rg_packet_close(fds, *n_fds);
        *n_fds = 0;
        return RG_ERR_PROTOCOL;
    }
    return RG_OK;
}

int rg_packet_receive_fd(int socket)
{
    char byte;
    int fd = -1;
    unsigned n;
    return rg_packet_receive(socket, 0, &byte, sizeof byte, &fd, 1, &n) == RG_OK && n == 1 ? fd : -1;
}
