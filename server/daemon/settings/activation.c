/*
 * activation.c - see activation.h: LISTEN_PID names the process that LISTEN_FDS is for, whose descriptors begin at 3.
 */
#include "server/daemon/settings/activation.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST = 3 };

static bool take(int *first, unsigned *n)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int64_t for_whom, number;
    char why[160] = "";
    *first = FIRST;
    *n = 0;
    if (!pid || !fds)
        return true;
    if (rg_parse_integer(pid, 1, INT32_MAX, &for_whom, why, sizeof why) != RG_OK) {
        rg_error("LISTEN_PID: %s", why);
        return false;
    }
    if (for_whom != getpid()) /* of whoever started us by another program */
        return true;
    if (rg_parse_integer(fds, 0, RG_LISTENERS_MAX, &number, why, sizeof why) != RG_OK) {
        rg_error("LISTEN_FDS: %s", why);
        return false;
    }
    for (int fd = FIRST; fd < FIRST + (int)number; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            rg_error("LISTEN_FDS=%s: descriptor %d: %s", fds, fd, strerror(errno));
            return false;
        }
    *n = (unsigned)number;
    return true;
}

bool rg_activation_take(int *first, unsigned *n)
{
    const bool good = take(first, n);
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return good;
}
