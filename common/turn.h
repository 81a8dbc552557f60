/*
 * turn.h - a lock whose holders are in a hurry or not: who is not waits for those who are, but not for ever.
 *
 * For sending on one connection: small messages are in a hurry, pieces of bulk data are not. An ordinary mutex is given
 * back to who has just released it as often as not, so that a thread that sends one piece after another keeps all
 * others waiting.
 */
#ifndef RG_COMMON_TURN_H
#define RG_COMMON_TURN_H

#include "common/sleepers.h"

#include <pthread.h>
#include <stdbool.h>

struct rg_turn {
    pthread_mutex_t lock;
    struct rg_sleepers hurry, calm; /* those that wait for the turn */
    bool taken;
    unsigned hurrying, waiting; /* those in a hurry, and those not */
    unsigned passed;            /* in a hurry, since somebody waits who is not */
};

void rg_turn_init(struct rg_turn *turn);
void rg_turn_fini(struct rg_turn *turn);
void rg_turn_take(struct rg_turn *turn, bool hurry);
/** Takes the turn in a hurry, unless that lasts longer than `ms`; false: it does. */
bool rg_turn_take_within(struct rg_turn *turn, int ms);
void rg_turn_give(struct rg_turn *turn);

#endif
