/* standard_streams.c - see standard_streams.h. A new file gets the lowest number that is free: from 0 on, that of the stream. */
#include "common/base/standard_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void rg_standard_streams_take(bool inherited)
{
    const int before = errno, flags = inherited ? 0 : O_CLOEXEC;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) /* opened for what it is not used for */
            (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | flags);
    errno = before;
}
