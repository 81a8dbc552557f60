/* wait_queue.c - each wake-up reaches one that sleeps, in the order that is asked for; time limits; many threads at once. */
#include "common/sync/wait_queue.h"

#include "common/base/clock.h"
#include "tests/check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 6
#define ROUNDS  20000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_wait_queue sleepers;
static int awake[THREADS], n_awake; /* in the order in which they awoke */

static void *sleep_once(void *number)
{
    pthread_mutex_lock(&lock);
    rg_wait_queue_wait(&sleepers, &lock);
    awake[n_awake++] = (int)(uintptr_t)number;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void wait_until_asleep(unsigned count)
{
    for (bool all = false; !all; usleep(100)) {
        pthread_mutex_lock(&lock);
        all = sleepers.count == count;
        pthread_mutex_unlock(&lock);
    }
}

static bool wake(bool first)
{
    pthread_mutex_lock(&lock);
    bool any = first ? rg_wait_queue_wake_first(&sleepers) : rg_wait_queue_wake_last(&sleepers);
    pthread_mutex_unlock(&lock);
    return any;
}

static void test_order(bool first)
{
    pthread_t threads[3];
    n_awake = 0;
    CHECK(!wake(first));
    for (uintptr_t i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, sleep_once, (void *)i) == 0);
        wait_until_asleep((unsigned)i + 1);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(wake(first));
        CHECK(pthread_join(threads[first ? i : 2 - i], NULL) == 0);
        CHECK(n_awake == i + 1 && awake[i] == (first ? i : 2 - i));
    }
    CHECK(!wake(first));
}

static struct timespec in_ms(unsigned ms)
{
    uint64_t at = rg_now_ns() + ms * 1000000ull;
    return (struct timespec){(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
}

static void *sleep_at_most(void *ms)
{
    struct timespec until = in_ms((unsigned)(uintptr_t)ms);
    pthread_mutex_lock(&lock);
    bool woken = rg_wait_queue_wait_until(&sleepers, &lock, &until);
    pthread_mutex_unlock(&lock);
    return (void *)(uintptr_t)woken;
}

/* One whose time is over leaves the list, wherever it was in it. */
static void test_limits(void)
{
    pthread_t before, limited, after;
    void *woken;
    n_awake = 0;
    CHECK(sleep_at_most((void *)1) == NULL && sleepers.count == 0);
    CHECK(pthread_create(&before, NULL, sleep_once, (void *)0) == 0);
    wait_until_asleep(1);
    CHECK(pthread_create(&limited, NULL, sleep_at_most, (void *)500) == 0);
    wait_until_asleep(2);
    CHECK(pthread_create(&after, NULL, sleep_once, (void *)1) == 0);
    CHECK(pthread_join(limited, &woken) == 0 && woken == NULL);
    wait_until_asleep(2);
    CHECK(wake(true) && wake(true));
    pthread_join(before, NULL);
    pthread_join(after, NULL);
    CHECK(n_awake == 2 && !sleepers.first && !sleepers.last);

    CHECK(pthread_create(&limited, NULL, sleep_at_most, (void *)600000) == 0);
    wait_until_asleep(1);
    CHECK(wake(false));
    CHECK(pthread_join(limited, &woken) == 0 && woken != NULL);
}

/* Work is handed out one piece a wake-up; who is woken takes one, and some also take others' (who then sleep again). */
static unsigned pieces, taken;
static bool over;

static void *take_pieces(void *greedy)
{
    unsigned own = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!pieces && !over)
            rg_wait_queue_wait(&sleepers, &lock);
        if (!pieces)
            break;
        pieces--;
        taken++;
        own++;
        if (greedy)
            continue;
        pthread_mutex_unlock(&lock);
        if (own % 64 == 0)
            usleep(1);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void test_many(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_pieces, (void *)(uintptr_t)(i % 3 == 0)) == 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        unsigned before = sleepers.count;
        pieces++;
        bool any = i % 2 ? rg_wait_queue_wake_first(&sleepers) : rg_wait_queue_wake_last(&sleepers);
        CHECK(any == (before != 0) && sleepers.count == before - any);
        pthread_mutex_unlock(&lock);
        while (i % 16 == 0) { /* each wake-up by itself: without it nobody would take the piece */
            pthread_mutex_lock(&lock);
            bool all = taken == i + 1;
            pthread_mutex_unlock(&lock);
            if (all)
                break;
            sched_yield();
        }
    }
    pthread_mutex_lock(&lock);
    over = true;
    while (rg_wait_queue_wake_first(&sleepers))
        continue;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(taken == ROUNDS && !pieces && !sleepers.count);
}

int main(void)
{
    test_order(true);
    test_order(false);
    test_limits();
    test_many();
    printf("sleepers: ok\n");
    return 0;
}
