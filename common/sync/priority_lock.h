/*
 * priority_lock.h - a lock whose holders are in a hurry or not: who is not waits for those who are, but not for ever.
 *
 * For sending on one connection: small messages are in a hurry, pieces of bulk data are not. An ordinary mutex is given
 * back to who has just released it as often as not, so that a thread that sends one piece after another keeps all
 * others waiting.
 */
#ifndef RG_COMMON_SYNC_PRIORITY_LOCK_H
#define RG_COMMON_SYNC_PRIORITY_LOCK_H

#include "common/sync/wait_queue.h"

#include <pthread.h>
#include <stdbool.h>

struct rg_priority_lock {
    pthread_mutex_t mutex;
    struct rg_wait_queue hurry, calm; /* those that wait for it */
    bool taken;
    unsigned hurrying, waiting; /* those in a hurry, and those not */
    unsigned passed;            /* in a hurry, since somebody waits who is not */
};

void rg_priority_lock_init(struct rg_priority_lock *lock);
void rg_priority_lock_fini(struct rg_priority_lock *lock);
/** `hurry`: before all that wait and are not in one. */
void rg_priority_lock_acquire(struct rg_priority_lock *lock, bool hurry);
/** Takes it in a hurry, unless that lasts longer than `ms`; false: it does. */
bool rg_priority_lock_acquire_within(struct rg_priority_lock *lock, int ms);
void rg_priority_lock_release(struct rg_priority_lock *lock);

#endif
