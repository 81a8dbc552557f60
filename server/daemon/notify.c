/*
 * notify.c - see notify.h: one datagram to a unix socket, whose name begins with '/', or with '@' if it is an
 * abstract one.
 */
#include "server/daemon/notify.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

void rg_notify(const char *state)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!name || !*name)
        return;
    const size_t length = strlen(name);
    if ((*name != '/' && *name != '@') || length >= sizeof address.sun_path) {
        rg_warn("NOTIFY_SOCKET=%s names no unix socket", name);
        return;
    }
    memcpy(address.sun_path, name, length);
    if (*name == '@')
        address.sun_path[0] = 0;
    RG_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, size) < 0)
        rg_warn("cannot tell the service manager '%s': %s", state, strerror(errno));
}
