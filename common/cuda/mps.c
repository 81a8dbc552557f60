/*
 * mps.c - see mps.h.
 *
 * The daemon reads from `control` in its folder: a socket, or with older versions a named pipe. Either tells whether somebody is at its
 * other end, also to one who says nothing.
 */
#include "common/cuda/mps.h"

#include "common/base/cleanup.h"
#include "common/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket of another type than was tried has somebody, too: one that nobody holds refuses. */
static bool socket_answers(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    RG_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int size = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (size >= (int)sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    return fd >= 0 && (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
                       errno == EPROTOTYPE || errno == EAGAIN);
}

static bool pipe_answers(const char *path)
{
    RG_CLEANUP_FD int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0;
}

bool rg_mps_answers(const char *folder, char *why, size_t why_size)
{
    char path[PATH_MAX];
    struct stat about;
    if (folder[0] != '/') {
        rg_explain(why, why_size, "'%s' is not the whole path of a folder", folder);
        return false;
    }
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
        rg_explain(why, why_size, "there is no folder %s", folder);
        return false;
    }
    if (snprintf(path, sizeof path, "%s/control", folder) >= (int)sizeof path || stat(path, &about) != 0) {
        rg_explain(why, why_size, "there is no nvidia-cuda-mps-control in %s", folder);
        return false;
    }
    if (S_ISSOCK(about.st_mode) ? socket_answers(path) : S_ISFIFO(about.st_mode) && pipe_answers(path))
        return true;
    rg_explain(why, why_size, "no nvidia-cuda-mps-control answers in %s (%s)", folder,
               !S_ISSOCK(about.st_mode) && !S_ISFIFO(about.st_mode) ? "control is neither a socket nor a pipe"
                                                                    : strerror(errno));
    return false;
}
