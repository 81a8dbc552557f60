/* priority_lock.c - see priority_lock.h. */
#include "common/sync/priority_lock.h"

#include "common/base/clock.h"

#include <time.h>

enum { PASS_MOST = 64 }; /* in a hurry, before one that is not has its turn */

void rg_priority_lock_init(struct rg_priority_lock *turn)
{
    *turn = (struct rg_priority_lock){.taken = false};
    pthread_mutex_init(&turn->lock, NULL);
}

void rg_priority_lock_fini(struct rg_priority_lock *turn)
{
    pthread_mutex_destroy(&turn->lock);
}

/* Whether the next turn is for one who is not in a hurry. */
static bool is_for_calm(const struct rg_priority_lock *turn)
{
    return turn->waiting && (!turn->hurrying || turn->passed >= PASS_MOST);
}

static bool take_hurrying(struct rg_priority_lock *turn, const struct timespec *until)
{
    bool late = false;
    pthread_mutex_lock(&turn->lock);
    turn->hurrying++;
    while ((turn->taken || is_for_calm(turn)) && !late) {
        if (until)
            late = !rg_wait_queue_wait_until(&turn->hurry, &turn->lock, until);
        else
            rg_wait_queue_wait(&turn->hurry, &turn->lock);
    }
    turn->hurrying--;
    const bool got = !turn->taken;
    if (got) {
        turn->taken = true;
        turn->passed += turn->waiting != 0;
    }
    pthread_mutex_unlock(&turn->lock);
    return got;
}

void rg_priority_lock_acquire(struct rg_priority_lock *turn, bool hurry)
{
    if (hurry) {
        (void)take_hurrying(turn, NULL);
        return;
    }
    pthread_mutex_lock(&turn->lock);
    turn->waiting++;
    while (turn->taken || !is_for_calm(turn))
        rg_wait_queue_wait(&turn->calm, &turn->lock);
    turn->waiting--;
    turn->passed = 0;
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
}

bool rg_priority_lock_acquire_within(struct rg_priority_lock *turn, int ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)ms * 1000000u;
    return take_hurrying(turn,
                         &(struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)});
}

void rg_priority_lock_release(struct rg_priority_lock *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    /* Who was woken before and has yet to run looks for itself. */
    rg_wait_queue_wake_first(is_for_calm(turn) ? &turn->calm : &turn->hurry);
    pthread_mutex_unlock(&turn->lock);
}
