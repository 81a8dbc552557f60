/* thread.c - a program's threads are told from our own; what needs a large stack gets one. */
#include "common/base/thread.h"
#include "tests/check.h"

#include <signal.h>
#include <stdbool.h>
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

/* Where an errand was run. */
struct place {
    pthread_t thread;
    bool on_its_stack; /* the thread's own */
};

static bool is_on_own_stack(const volatile void *at)
{
    pthread_attr_t attributes;
    void *least = NULL;
    size_t size = 0;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &least, &size) == 0);
    pthread_attr_destroy(&attributes);
    return (const volatile char *)at >= (char *)least && (const volatile char *)at < (char *)least + size;
}

/* Needs more than a short stack. */
static void errand(void *arg)
{
    volatile char much[200 << 10];
    much[0] = much[sizeof much - 1] = 1;
    *(struct place *)arg = (struct place){pthread_self(), is_on_own_stack(much)};
}

static void *send_errand(void *where)
{
    rg_thread_with_room(errand, where);
    return where;
}

static struct place signalled;

static void send_from_handler(int number)
{
    (void)number;
    rg_thread_with_room(errand, &signalled);
}

/* In a handler that has a little stack of its own, where the next signal's handler would begin at the top of that again. */
static void check_handler(void)
{
    static char stack[64 << 10];
    struct sigaction action = {.sa_handler = send_from_handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    CHECK(!pthread_equal(signalled.thread, pthread_self()) && signalled.on_its_stack);
    CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
}

/* Stays on a stack that has much, leaves one that has little, and those of the threads that we make have enough. */
static void check_room(void)
{
    pthread_t thread;
    struct place where;
    pthread_attr_t little;
    rg_thread_with_room(errand, &where);
    CHECK(pthread_equal(where.thread, pthread_self()) && where.on_its_stack);
    pthread_attr_init(&little);
    CHECK(pthread_attr_setstacksize(&little, 64 << 10) == 0);
    CHECK(pthread_create(&thread, &little, send_errand, &where) == 0);
    pthread_join(thread, NULL);
#if !defined(__SANITIZE_ADDRESS__) &&                                                                        \
    !defined(__SANITIZE_THREAD__) /* which have a thread of its own for that */
    CHECK(pthread_equal(where.thread, thread) && !where.on_its_stack);
#endif
    CHECK(pthread_setattr_default_np(&little) == 0);
    CHECK(rg_thread_create(&thread, "ours", send_errand, &where) == RG_OK);
    pthread_join(thread, NULL);
    CHECK(pthread_equal(where.thread, thread) && where.on_its_stack);
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
    check_handler();
    CHECK(alone_soon());
    return 0;
}
