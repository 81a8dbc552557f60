/*
 * waits.c - see waits.h. Linked in the place of pthread_cond_wait, pthread_cond_timedwait, pthread_cond_signal, pthread_cond_broadcast and
 * clock_gettime.
 *
 * A thread that waits is in a list, and is taken out by who wakes it, who counts it as running at once: so a moment in which none is
 * counted is one in which all wait. It waits on a condition of its own; those of the target are only names.
 */
#include "tests/fuzz/waits.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

enum { LEAPS_MAX = 64 }; /* of the clock, without progress */

struct waiting {
    struct waiting *next;
    pthread_cond_t wake;
    const pthread_cond_t *on;
    uint64_t until_ns; /* UINT64_MAX: without an end */
    enum state { WAITS, WOKEN, LATE } state;
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of all that follows, but for the clock and threads' own */
static struct waiting *first, **last = &first;
static unsigned running, leaps;
static void (*call_stuck)(void);
static bool calls;
static _Atomic uint64_t ahead_ns; /* of the clock */
static __thread struct waiting self = {.wake = PTHREAD_COND_INITIALIZER};
static __thread bool counts;

int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int error = __real_clock_gettime(clock, out);
    if (!error && clock == CLOCK_MONOTONIC)
        *out = rg_timespec((uint64_t)out->tv_sec * 1000000000u + (uint64_t)out->tv_nsec +
                           atomic_load(&ahead_ns));
    return error;
}

/* --- who waits; the lock is held -------------------------------------------------------------------------------------- */

static void wake(struct waiting **at, enum state state)
{
    struct waiting *woken = *at;
    *at = woken->next;
    if (last == &woken->next)
        last = at;
    woken->state = state;
    running++;
    __real_pthread_cond_signal(&woken->wake);
}

/* Ends the wait that the clock would end first. False: there is none. */
static bool leap(void)
{
    struct waiting **next = NULL;
    for (struct waiting **at = &first; *at; at = &(*at)->next)
        if ((*at)->until_ns != UINT64_MAX && (!next || (*at)->until_ns < (*next)->until_ns))
            next = at;
    if (!next)
        return false;
    const uint64_t now = rg_now_ns();
    if ((*next)->until_ns > now)
        atomic_fetch_add(&ahead_ns, (*next)->until_ns - now);
    leaps++;
    wake(next, LATE);
    return true;
}

/* One thread fewer runs. */
static void leave(void)
{
    running--;
    if (running || calls || !call_stuck || (leaps < LEAPS_MAX && leap()))
        return;
    calls = true;
    running++;
    pthread_mutex_unlock(&lock);
    call_stuck();
    pthread_mutex_lock(&lock);
    running--;
    calls = false;
    if (!running)
        (void)leap();
}

/* --- conditions --------------------------------------------------------------------------------------------------------- */

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    pthread_mutex_lock(&lock);
    self.next = NULL;
    self.on = cond;
    self.until_ns = until_ns;
    self.state = WAITS;
    *last = &self;
    last = &self.next;
    pthread_mutex_unlock(mutex);
    leave();
    while (self.state == WAITS)
        __real_pthread_cond_wait(&self.wake, &lock);
    const bool late = self.state == LATE;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(mutex);
    return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return counts ? wait_on(cond, mutex, UINT64_MAX) : __real_pthread_cond_wait(cond, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    return counts ? wait_on(cond, mutex, (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec)
                  : __real_pthread_cond_timedwait(cond, mutex, until);
}

static void wake_waiting(const pthread_cond_t *cond, bool all)
{
    RG_SCOPED_LOCK(&lock);
    for (struct waiting **at = &first; *at;) {
        if ((*at)->on != cond) {
            at = &(*at)->next;
            continue;
        }
        wake(at, WOKEN);
        if (!all)
            return;
    }
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    wake_waiting(cond, false);
    return __real_pthread_cond_signal(cond); /* those that are not counted */
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    wake_waiting(cond, true);
    return __real_pthread_cond_broadcast(cond);
}

/* --- threads -------------------------------------------------------------------------------------------------------------- */

bool fuzz_waits_counts(void)
{
    return counts;
}

void fuzz_waits_count(bool wanted)
{
    counts = wanted;
}

void fuzz_waits_enter(void)
{
    RG_SCOPED_LOCK(&lock);
    running++;
}

void fuzz_waits_leave(void)
{
    RG_SCOPED_LOCK(&lock);
    leave();
}

void fuzz_waits_begin(void (*stuck)(void))
{
    RG_SCOPED_LOCK(&lock);
    call_stuck = stuck;
    leaps = 0;
    running++;
    counts = true;
}

void fuzz_waits_progress(void)
{
    RG_SCOPED_LOCK(&lock);
    leaps = 0;
}

void fuzz_waits_end(void)
{
    RG_SCOPED_LOCK(&lock);
    call_stuck = NULL;
    running--;
    counts = false;
}
