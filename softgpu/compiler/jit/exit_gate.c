/*
 * exit_gate.c - see exit_gate.h. A thread that itself exits the process out of LLVM is not waited for, nor is anything for ever: a thread
 * may have been cancelled.
 */
#include "softgpu/compiler/jit/exit_gate.h"
#include "softgpu/compiler/jit/llvm_library.h"

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
    _Atomic pid_t
        process; /* whose threads they are: a fork's child has none of them, and maybe its lock is held for ever */
    bool registered, ending;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static __thread unsigned own;

static void at_exit(void)
{
    const struct timespec until = rg_timespec(rg_now_ns() + PATIENCE_S * 1000000000ull);
    if (gate.process != getpid())
        return;
    pthread_mutex_lock(&gate.lock);
    gate.ending = true;
    while (gate.threads > own &&
           pthread_cond_clockwait(&gate.changed, &gate.lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&gate.lock);
}

bool sg_exit_gate_enter(void)
{
    pthread_mutex_lock(&gate.lock);
    if (gate.process != getpid()) {
        gate.process = getpid();
        gate.threads = 0;
    }
    if (!gate.registered) {
        sg_llvm_keep_objects();
        gate.registered = atexit(at_exit) == 0;
    }
    const bool good = !gate.ending;
    gate.threads += good;
    own += good;
    pthread_mutex_unlock(&gate.lock);
    return good;
}

void sg_exit_gate_leave(void)
{
    pthread_mutex_lock(&gate.lock);
    own--;
    gate.threads--;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}
