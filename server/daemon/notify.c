/*
 * notify.c - see notify.h: one datagram to a unix socket, whose name begins with '/', or with '@' if it is an
 * abstract one.
 */
#include "server/daemon/notify.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

void rg_notify_reloading(void)
{
    char state[64];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(rg_now_ns() / 1000));
    rg_notify(state);
}

/* How often: twice in the time that the manager waits. 0: nobody waits. */
static uint64_t find_interval(void)
{
    const char *time = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    int64_t microseconds = 0, for_whom = getpid();
    char why[160] = "";
    if ((pid && rg_parse_integer(pid, 1, INT32_MAX, &for_whom, why, sizeof why) != RG_OK) ||
        (time && rg_parse_integer(time, 1, INT64_MAX / 1000, &microseconds, why, sizeof why) != RG_OK))
        rg_warn("WATCHDOG_USEC or WATCHDOG_PID: %s", why);
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    return for_whom == getpid() ? (uint64_t)microseconds * 1000u / 2 : 0;
}

uint64_t rg_notify_alive(void)
{
    static bool known;
    static uint64_t interval_ns, due_ns;
    const uint64_t now = rg_now_ns();
    if (!known)
        interval_ns = find_interval();
    known = true;
    if (!interval_ns)
        return UINT64_MAX;
    if (now >= due_ns) {
        rg_notify("WATCHDOG=1");
        due_ns = now + interval_ns;
    }
    return due_ns;
}
