/* priority_lock.c - who is in a hurry goes first, and who is not has a lock now and then. */
#include "common/sync/priority_lock.h"
#include "tests/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct rg_priority_lock lock;
static unsigned inside, calm_turns, hurried_turns; /* the holder's */
static atomic_uint order, calm_at, hurry_at;
static atomic_bool stop;

static void hold(unsigned *count)
{
    CHECK(inside++ == 0);
    (*count)++;
    CHECK(--inside == 0);
}

static void *calm_many(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        rg_priority_lock_acquire(&lock, false);
        hold(&calm_turns);
        rg_priority_lock_release(&lock);
    }
    return unused;
}

static void *hurry_many(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        rg_priority_lock_acquire(&lock, true);
        hold(&hurried_turns);
        rg_priority_lock_release(&lock);
    }
    return unused;
}

/* Threads of both kinds: one at a time is inside, and all come to an end. */
static void test_exclusion(void)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, i % 2 ? calm_many : hurry_many, NULL) == 0);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    CHECK(calm_turns == 60000 && hurried_turns == 60000);
}

static void *calm_once(void *unused)
{
    rg_priority_lock_acquire(&lock, false);
    calm_at = ++order;
    rg_priority_lock_release(&lock);
    return unused;
}

static void *hurry_once(void *unused)
{
    rg_priority_lock_acquire(&lock, true);
    hurry_at = ++order;
    rg_priority_lock_release(&lock);
    return unused;
}

static void wait_for(unsigned hurrying, unsigned waiting)
{
    for (bool there = false; !there; usleep(1000)) {
        pthread_mutex_lock(&lock.mutex);
        there = lock.hurrying >= hurrying && lock.waiting >= waiting;
        pthread_mutex_unlock(&lock.mutex);
    }
}

/* The one in a hurry came later and goes first. */
static void test_hurry_first(void)
{
    pthread_t calm, hurry;
    rg_priority_lock_acquire(&lock, true);
    CHECK(pthread_create(&calm, NULL, calm_once, NULL) == 0);
    wait_for(0, 1);
    CHECK(pthread_create(&hurry, NULL, hurry_once, NULL) == 0);
    wait_for(1, 1);
    rg_priority_lock_release(&lock);
    pthread_join(calm, NULL);
    pthread_join(hurry, NULL);
    CHECK(hurry_at < calm_at);
}

static void *hurry_on(void *unused)
{
    while (!stop) {
        rg_priority_lock_acquire(&lock, true);
        rg_priority_lock_release(&lock);
    }
    return unused;
}

/* However many are in a hurry, one that is not has its lock. */
static void test_calm_at_last(void)
{
    pthread_t threads[3], calm;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, hurry_on, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        CHECK(pthread_create(&calm, NULL, calm_once, NULL) == 0);
        pthread_join(calm, NULL);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void test_limited_wait(void)
{
    CHECK(rg_priority_lock_acquire_within(&lock, 1));
    CHECK(!rg_priority_lock_acquire_within(&lock, 10));
    rg_priority_lock_release(&lock);
    CHECK(rg_priority_lock_acquire_within(&lock, 1));
    rg_priority_lock_release(&lock);
}

int main(void)
{
    rg_priority_lock_init(&lock);
    test_exclusion();
    test_hurry_first();
    test_calm_at_last();
    test_limited_wait();
    rg_priority_lock_fini(&lock);
    printf("lock: ok\n");
    return 0;
}
