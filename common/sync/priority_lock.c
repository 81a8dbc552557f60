/* priority_lock.c - see priority_lock.h. */
#include "common/sync/priority_lock.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <time.h>

enum { PASS_MOST = 64 }; /* in a hurry, before one that is not has its turn */

void rg_priority_lock_init(struct rg_priority_lock *lock)
{
    *lock = (struct rg_priority_lock){.taken = false};
    pthread_mutex_init(&lock->mutex, NULL);
}

void rg_priority_lock_fini(struct rg_priority_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

/* Whether the next turn is for one who is not in a hurry. */
static bool is_for_calm(const struct rg_priority_lock *lock)
{
    return lock->waiting && (!lock->hurrying || lock->passed >= PASS_MOST);
}

static bool take_hurrying(struct rg_priority_lock *lock, const struct timespec *until)
{
    bool late = false;
    RG_SCOPED_LOCK(&lock->mutex);
    lock->hurrying++;
    while ((lock->taken || is_for_calm(lock)) && !late) {
        if (until)
            late = !rg_wait_queue_wait_until(&lock->hurry, &lock->mutex, until);
        else
            rg_wait_queue_wait(&lock->hurry, &lock->mutex);
    }
    lock->hurrying--;
    const bool got = !lock->taken;
    if (got) {
        lock->taken = true;
        lock->passed += lock->waiting != 0;
    }
    return got;
}

void rg_priority_lock_acquire(struct rg_priority_lock *lock, bool hurry)
{
    if (hurry) {
        (void)take_hurrying(lock, NULL);
        return;
    }
    RG_SCOPED_LOCK(&lock->mutex);
    lock->waiting++;
    while (lock->taken || !is_for_calm(lock))
        rg_wait_queue_wait(&lock->calm, &lock->mutex);
    lock->waiting--;
    lock->passed = 0;
    lock->taken = true;
}

bool rg_priority_lock_acquire_within(struct rg_priority_lock *lock, int ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)ms * 1000000u;
    return take_hurrying(lock,
                         &(struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)});
}

void rg_priority_lock_release(struct rg_priority_lock *lock)
{
    RG_SCOPED_LOCK(&lock->mutex);
    lock->taken = false;
    /* Who was woken before and has yet to run looks for itself. */
    rg_wait_queue_wake_first(is_for_calm(lock) ? &lock->calm : &lock->hurry);
}
