/* thread.c - a program's threads are told from our own. */
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

    return 0;
}
