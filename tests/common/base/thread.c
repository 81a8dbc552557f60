/* thread.c - a program's threads are told from our own; what needs a large stack gets one. */
#include "common/base/thread.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t there, go;

static void *wait_for_main(void *unused)
{
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&go);
    return unused;
}

/* A thread that has been joined may be seen for a moment. */
static bool alone_soon(void)
{
    for (int i = 0; i < 5000 && rg_thread_has_others(); i++)
        usleep(1000);
    return !rg_thread_has_others();
}

/* Needs more than a short stack, and tells where it was run. */
static void errand(void *arg)
{
    volatile char much[200 << 10];
    much[0] = much[sizeof much - 1] = 1;
    *(pthread_t *)arg = pthread_self();
}

static void *send_errand(void *where)
{
    rg_thread_with_room(errand, where);
    return where;
}

/* Stays on a thread with much stack, leaves one that has little, and those that we make have enough. */
static void check_room(void)
{
    pthread_t thread, where;
    pthread_attr_t little;
    rg_thread_with_room(errand, &where);
    CHECK(pthread_equal(where, pthread_self()));
    pthread_attr_init(&little);
    CHECK(pthread_attr_setstacksize(&little, 64 << 10) == 0);
    CHECK(pthread_create(&thread, &little, send_errand, &where) == 0);
    pthread_join(thread, NULL);
    CHECK(!pthread_equal(where, thread));
    CHECK(pthread_setattr_default_np(&little) == 0);
    CHECK(rg_thread_create(&thread, "ours", send_errand, &where) == RG_OK);
    pthread_join(thread, NULL);
    CHECK(pthread_equal(where, thread));
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&there, NULL, 2);
    pthread_barrier_init(&go, NULL, 2);
    CHECK(alone_soon());

    CHECK(rg_thread_create(&thread, "ours", wait_for_main, NULL) == RG_OK);
    pthread_barrier_wait(&there);
    CHECK(alone_soon());
    pthread_barrier_wait(&go);
    pthread_join(thread, NULL);
    CHECK(alone_soon());

    CHECK(pthread_create(&thread, NULL, wait_for_main, NULL) == 0);
    pthread_barrier_wait(&there);
    CHECK(rg_thread_has_others());
    pthread_barrier_wait(&go);
    pthread_join(thread, NULL);
    CHECK(alone_soon());

    check_room();
    CHECK(alone_soon());
    return 0;
}
