/* waker.c - see waker.h. */
#include "transport/resumable/waker.h"

#include "common/base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_ours(const struct rg_waker *waker, int end)
{
    struct stat st;
    return waker->fds[end] >= 0 && fstat(waker->fds[end], &st) == 0 && st.st_ino == waker->inode &&
           st.st_dev == waker->device;
}

bool rg_waker_init(struct rg_waker *waker)
{
    struct stat st;
    waker->fds[0] = waker->fds[1] = -1;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    waker->fds[0] = rg_descriptor_move_up(fds[0]);
    waker->fds[1] = rg_descriptor_move_up(fds[1]);
    if (fstat(waker->fds[0], &st) != 0) {
        rg_waker_fini(waker);
        return false;
    }
    waker->inode = st.st_ino;
    waker->device = st.st_dev;
    return true;
}

int rg_waker_fd(struct rg_waker *waker)
{
    if (!is_ours(waker, 0) || !is_ours(waker, 1)) {
        rg_waker_fini(waker);
        (void)rg_waker_init(waker);
    }
    return waker->fds[0];
}

void rg_waker_wake(struct rg_waker *waker)
{
    if (is_ours(waker, 1))
        (void)!write(waker->fds[1], "", 1); /* a full pipe wakes as well */
}

void rg_waker_rest(struct rg_waker *waker)
{
    char bytes[64];
    while (is_ours(waker, 0) && read(waker->fds[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        ;
}

void rg_waker_fini(struct rg_waker *waker)
{
    for (int end = 0; end < 2; end++)
        if (is_ours(waker, end))
            close(waker->fds[end]);
    waker->fds[0] = waker->fds[1] = -1;
}
