/* poll.c - see poll.h. */
#include "common/base/poll.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOMENT_NS = 1000000 };

/* A lock's waits need no call that a program could do without. */
static void wait_for_nothing(uint64_t until)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    const struct timespec end = rg_timespec(until);
    rg_cond_init(&never);
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &end) == 0)
        ; /* as it may return early */
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&never);
}

void rg_pause(uint64_t ns)
{
    const struct timespec time = rg_timespec(ns);
    const uint64_t until = rg_now_ns() + ns;
    if (nanosleep(&time, NULL) != 0 && errno != EINTR)
        wait_for_nothing(until);
}

bool rg_poll_is_refused(void)
{
    return errno != EINTR;
}

static int refused(int error)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        rg_error("poll and ppoll are refused in this process (%s), as by a filter of system calls (seccomp): "
                 "it cannot wait for servers; let the filter allow one of them",
                 strerror(error));
    rg_pause(MOMENT_NS);
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
