/* descriptor.c - see descriptor.h. */
#include "common/base/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

int rg_descriptor_move_up(int fd)
{
    enum { HIGHEST = 1024, ROOM = 64 }; /* a limit of many processes; what we and others keep there */
    struct rlimit limit;
    int from = 3; /* at least none of standard streams' */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 2 * ROOM)
        from = (int)(limit.rlim_cur < HIGHEST ? limit.rlim_cur : HIGHEST) - ROOM;
    const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (moved < 0)
        return fd;
    close(fd);
    return moved;
}
