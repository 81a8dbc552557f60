/* poll.c - see poll.h. */
#include "common/base/poll.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOMENT_NS = 1000000 };

bool rg_poll_is_refused(void)
{
    return errno != EINTR;
}

static int refused(int error)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const struct timespec moment = rg_timespec(MOMENT_NS);
    if (!atomic_flag_test_and_set(&told))
        rg_error("poll and ppoll are refused in this process (%s), as by a filter of system calls (seccomp): "
                 "it cannot wait for servers; let the filter allow one of them",
                 strerror(error));
    nanosleep(&moment, NULL);
    errno = error;
    return -1;
}

int rg_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int ready = poll(fds, n, timeout_ms);
    if (ready >= 0 || !rg_poll_is_refused())
        return ready;
    const int error = errno;
    const struct timespec time = rg_timespec((uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u);
    ready = ppoll(fds, n, timeout_ms < 0 ? NULL : &time, NULL);
    return ready >= 0 || !rg_poll_is_refused() ? ready : refused(error);
}
