/* turn.c - see turn.h. */
#include "common/turn.h"

#include "common/clock.h"

#include <time.h>

enum { PASS_MOST = 64 }; /* in a hurry, before one that is not has its turn */

void rg_turn_init(struct rg_turn *turn)
{
    *turn = (struct rg_turn){.taken = false};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&turn->lock, NULL);
    pthread_cond_init(&turn->hurry, &attributes);
    pthread_cond_init(&turn->calm, &attributes);
    pthread_condattr_destroy(&attributes);
}

void rg_turn_fini(struct rg_turn *turn)
{
    pthread_cond_destroy(&turn->calm);
    pthread_cond_destroy(&turn->hurry);
    pthread_mutex_destroy(&turn->lock);
}

/* Whether the next turn is for one who is not in a hurry. */
static bool is_for_calm(const struct rg_turn *turn)
{
    return turn->waiting && (!turn->hurrying || turn->passed >= PASS_MOST);
}

static bool take_hurrying(struct rg_turn *turn, const struct timespec *until)
{
    bool late = false;
    pthread_mutex_lock(&turn->lock);
    turn->hurrying++;
    while ((turn->taken || is_for_calm(turn)) && !late)
        late = (until ? pthread_cond_timedwait(&turn->hurry, &turn->lock, until)
                      : pthread_cond_wait(&turn->hurry, &turn->lock)) != 0;
    turn->hurrying--;
    const bool got = !turn->taken;
    if (got) {
        turn->taken = true;
        turn->passed += turn->waiting != 0;
    }
    pthread_mutex_unlock(&turn->lock);
    return got;
}

void rg_turn_take(struct rg_turn *turn, bool hurry)
{
    if (hurry) {
        (void)take_hurrying(turn, NULL);
        return;
    }
    pthread_mutex_lock(&turn->lock);
    turn->waiting++;
    while (turn->taken || !is_for_calm(turn))
        pthread_cond_wait(&turn->calm, &turn->lock);
    turn->waiting--;
    turn->passed = 0;
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
}

bool rg_turn_take_within(struct rg_turn *turn, int ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)ms * 1000000u;
    return take_hurrying(turn,
                         &(struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)});
}

void rg_turn_give(struct rg_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_t *next = is_for_calm(turn) ? &turn->calm : turn->hurrying ? &turn->hurry : NULL;
    if (next)
        pthread_cond_signal(next);
    pthread_mutex_unlock(&turn->lock);
}
