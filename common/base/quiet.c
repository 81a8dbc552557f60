/* quiet.c - see quiet.h. A signal that was pending before is another's, and stays. */
#include "common/base/quiet.h"

#include <errno.h>
#include <time.h>

void rg_quiet_begin(struct rg_quiet *quiet)
{
    static const int raised[] = {SIGPIPE, SIGXFSZ};
    sigset_t pending;
    sigemptyset(&quiet->held);
    sigemptyset(&pending);
    sigpending(&pending);
    for (unsigned i = 0; i < sizeof raised / sizeof raised[0]; i++)
        if (sigismember(&pending, raised[i]) != 1)
            sigaddset(&quiet->held, raised[i]);
    pthread_sigmask(SIG_BLOCK, &quiet->held, &quiet->before);
}

void rg_quiet_end(const struct rg_quiet *quiet, int error)
{
    const int saved = errno, raised = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (raised && sigismember(&quiet->held, raised) == 1) {
        const struct timespec at_once = {0};
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, raised);
        while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = saved;
}
