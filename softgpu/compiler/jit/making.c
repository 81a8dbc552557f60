/*
 * making.c - see making.h. A thread that itself exits the process out of LLVM is not waited for, nor is anything for ever: a thread
 * may have been cancelled.
 */
#include "softgpu/compiler/jit/making.h"

#include "common/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_S 60

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned threads;
    pid_t process; /* whose threads they are: a fork's child has none of them */
    bool registered, ending;
} making = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static __thread unsigned own;

static void at_exit(void)
{
    const struct timespec until = rg_timespec(rg_now_ns() + PATIENCE_S * 1000000000ull);
    pthread_mutex_lock(&making.lock);
    making.ending = making.process == getpid();
    while (making.ending && making.threads > own &&
           pthread_cond_clockwait(&making.changed, &making.lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&making.lock);
}

bool sg_making_begin(void)
{
    pthread_mutex_lock(&making.lock);
    if (making.process != getpid()) {
        making.process = getpid();
        making.threads = 0;
    }
    if (!making.registered)
        making.registered = atexit(at_exit) == 0;
    const bool good = !making.ending;
    making.threads += good;
    own += good;
    pthread_mutex_unlock(&making.lock);
    return good;
}

void sg_making_end(void)
{
    pthread_mutex_lock(&making.lock);
    own--;
    making.threads--;
    pthread_cond_broadcast(&making.changed);
    pthread_mutex_unlock(&making.lock);
}
