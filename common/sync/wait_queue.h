/*
 * wait_queue.h - threads that sleep until they are woken one by one: a list, in which each has a condition variable of
 * its own.
 *
 * Several threads that wait on one condition variable cannot rely on pthread_cond_signal: that of glibc before 2.41 loses
 * wake-ups now and then where three threads or more are in it at a time, of which one was woken and has yet to return
 * (glibc's bug 25847). One that has a single waiter, or whose waiters are always woken together, loses none. Here,
 * besides, it is known who is woken, and a wake-up goes to one that sleeps, never to one that was woken before.
 *
 * The list is guarded by a mutex of its owner's. All calls are made under it; what waits gives it up meanwhile.
 */
#ifndef RG_COMMON_SYNC_WAIT_QUEUE_H
#define RG_COMMON_SYNC_WAIT_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct rg_wait_queue_entry;

/** Those that sleep and have not been woken. All zero: nobody. */
struct rg_wait_queue {
    struct rg_wait_queue_entry *first, *last; /* in the order in which they came */
    unsigned count;
};

/** Sleeps until woken. */
void rg_wait_queue_wait(struct rg_wait_queue *list, pthread_mutex_t *lock);
/** Sleeps until woken (true), or until a time of CLOCK_MONOTONIC (false: nobody has woken it, and it is in the list no more). */
bool rg_wait_queue_wait_until(struct rg_wait_queue *list, pthread_mutex_t *lock,
                              const struct timespec *until);
/** Wakes the one that came first, or last, and takes it out of the list; false: nobody sleeps. */
bool rg_wait_queue_wake_first(struct rg_wait_queue *list);
bool rg_wait_queue_wake_last(struct rg_wait_queue *list);

#endif
