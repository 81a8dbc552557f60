/*
 * segv.c - programs with handlers of SIGSEGV of their own, and threads that block it, beside memory that host and device share: where
 * its pages are trapped by that signal, a program notices nothing of it.
 */
#include "scenario.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

static sigjmp_buf back;
static volatile sig_atomic_t calls, usr1_blocked, usr2_blocked, segv_blocked;
static volatile unsigned char *guard; /* nobody may touch it */
static volatile unsigned char *shared;

static void jump(int number)
{
    (void)number;
    calls++;
    siglongjmp(back, 1);
}

static void look_and_open(int number, siginfo_t *info, void *context)
{
    sigset_t now;
    (void)number, (void)context;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    calls++;
    usr1_blocked = sigismember(&now, SIGUSR1);
    usr2_blocked = sigismember(&now, SIGUSR2);
    segv_blocked = sigismember(&now, SIGSEGV);
    mprotect((void *)((unsigned long)info->si_addr & ~(PAGE - 1ul)), PAGE, PROT_READ | PROT_WRITE);
}

static void handle(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
}

/* Shared memory that the device has written last, so that the next touch is trapped. */
static void device_writes(unsigned char value)
{
    TRY(cuMemsetD8_v2((CUdeviceptr)(unsigned long)shared, value, SIZE));
    TRY(cuCtxSynchronize());
}

static void share(void)
{
    CUdeviceptr managed = 0;
    device_up();
    say("work: %d\n", device_work(3)); /* what runs kernels in the process may have a handler, too */
    TRY(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    shared = (volatile unsigned char *)managed;
    shared[0] = 1;
    device_writes(7);
    say("shared: %d\n", shared[PAGE]);
    guard = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void touch_guard(void)
{
    if (sigsetjmp(back, 0) == 0)
        say("the guard holds %d\n", guard[0]);
    else
        say("called %d times\n", (int)calls);
}

/* One that somebody has sent does what it does without CUDA. */
static int sent(void)
{
    share();
    raise(SIGSEGV);
    say("still here\n");
    return 0;
}

static int sent_and_ignored(void)
{
    signal(SIGSEGV, SIG_IGN);
    share();
    raise(SIGSEGV);
    raise(SIGSEGV);
    device_writes(8);
    say("still here: %d\n", shared[0]);
    return 0;
}

/* The handler does not return, and the signal is not blocked in it. */
static int not_deferred(void)
{
    handle(jump, SA_NODEFER);
    share();
    for (int i = 0; i < 3; i++) {
        touch_guard();
        device_writes((unsigned char)(i + 20));
        say("shared: %d\n", shared[PAGE]);
    }
    return 0;
}

static int only_once(void)
{
    handle(jump, (int)SA_RESETHAND | SA_NODEFER);
    share();
    touch_guard();
    touch_guard();
    return 0;
}

static int mask_of_handler(void)
{
    struct sigaction action = {.sa_sigaction = look_and_open, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &action, NULL);
    share();
    guard[0] = 5;
    say("called %d times; blocked: %d %d %d; guard: %d\n", (int)calls, (int)usr1_blocked, (int)usr2_blocked,
        (int)segv_blocked, guard[0]);
    return 0;
}

/* Set while the device is at work: it is not called for shared memory. */
static int set_late(void)
{
    share();
    TRY(cuMemsetD8Async((CUdeviceptr)(unsigned long)shared, 9, SIZE, NULL));
    handle(jump, 0);
    TRY(cuCtxSynchronize());
    if (sigsetjmp(back, 1) == 0)
        say("shared: %d\n", shared[0]);
    say("called %d times\n", (int)calls);
    return 0;
}

/* --- handlers that stand before others ------------------------------------------------------------------ */

static struct sigaction found;

static void set_before(void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &found);
}

static void enough_is_enough(void)
{
    if (++calls > 5)
        _exit(9);
}

static void call_found(int number, siginfo_t *info, void *context)
{
    enough_is_enough();
    if (found.sa_flags & SA_SIGINFO)
        found.sa_sigaction(number, info, context);
    else if (found.sa_handler == SIG_DFL)
        signal(number, SIG_DFL);
    else
        found.sa_handler(number);
}

static void put_found_back(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    enough_is_enough();
    sigaction(number, &found, NULL);
}

static void put_found_back_and_raise(int number, siginfo_t *info, void *context)
{
    put_found_back(number, info, context);
    raise(number);
}

/* Another handler comes before, and the program ends by its signal all the same. */
static int stands_before(void (*handler)(int, siginfo_t *, void *), int flags)
{
    share();
    set_before(handler, flags);
    device_writes(30);
    say("shared: %d, called %d times\n", shared[PAGE], (int)calls);
    say("the guard holds %d\n", guard[0]);
    return 0;
}

static int passes_on_by_call(void)
{
    return stands_before(call_found, 0);
}

static int passes_on_by_return(void)
{
    return stands_before(put_found_back, 0);
}

static int passes_on_by_raise(void)
{
    return stands_before(put_found_back_and_raise, SA_NODEFER);
}

static int passes_on_after_all(void)
{
    return stands_before(put_found_back_and_raise, 0);
}

/* A child has the program's handler, and pages that are protected stay so: also those between memory that was shared. */
static int in_child(void)
{
    unsigned char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address[2];
    handle(jump, SA_NODEFER);
    device_up();
    for (int i = 0; i < 2; i++) {
        TRY(cuMemHostRegister_v2(pages + 2 * i * PAGE, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
        TRY(cuMemHostGetDevicePointer_v2(&address[i], pages + 2 * i * PAGE, 0));
        TRY(cuMemsetD8_v2(address[i], (unsigned char)(i + 3), PAGE));
    }
    TRY(cuCtxSynchronize());
    guard = pages + PAGE;
    mprotect(pages + PAGE, PAGE, PROT_NONE);
    const int pid = fork();
    if (pid == 0) {
        touch_guard();
        say("child: %d %d\n", pages[0], pages[2 * PAGE]);
        pages[0] = pages[2 * PAGE] = 1;
        touch_guard();
        _exit(3);
    }
    say_child("child", pid);
    say("parent: %d %d\n", pages[0], pages[2 * PAGE]);
    return 0;
}

static void *release(void *memory)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    TRY(cuMemHostUnregister(memory));
    return NULL;
}

/* A thread that blocks all signals gives up memory that the device has written. */
static int blocked_in_thread(void)
{
    unsigned char *pages = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    pthread_t thread;
    device_up();
    TRY(cuMemHostRegister_v2(pages, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&address, pages, 0));
    TRY(cuMemsetD8_v2(address, 6, SIZE));
    TRY(cuCtxSynchronize());
    pthread_create(&thread, NULL, release, pages);
    pthread_join(thread, NULL);
    say("pages: %d %d\n", pages[0], pages[SIZE - 1]);
    return 0;
}

enum { WRITERS = 4, ROUNDS = 20, PAGES = 1024, WORDS = PAGE / sizeof(unsigned) };
static pthread_barrier_t turn;

/* Each has a word of its own on every page. */
static void *write_words(void *number)
{
    volatile unsigned *words = (volatile unsigned *)(volatile void *)shared;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&turn);
        for (size_t i = 0, page = (size_t)number * (PAGES / WRITERS); i < PAGES;
             i++, page = (page + 1) % PAGES)
            words[page * WORDS + (size_t)number] += round;
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

/* Several threads write at once to a file's memory that the device has written before. */
static int write_together(int flags)
{
    FILE *file = tmpfile();
    pthread_t threads[WRITERS];
    CUdeviceptr address;
    unsigned wrong = 0;
    device_up();
    if (!file || ftruncate(fileno(file), PAGES * PAGE) != 0)
        return 1;
    unsigned *words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, fileno(file), 0);
    shared = (volatile unsigned char *)words;
    TRY(cuMemHostRegister_v2(words, PAGES * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&address, words, 0));
    pthread_barrier_init(&turn, NULL, WRITERS + 1);
    for (size_t i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, write_words, (void *)i);
    for (unsigned round = 0; round < ROUNDS; round++) {
        cuMemsetD32_v2(address, 5, PAGES * WORDS);
        cuCtxSynchronize();
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        for (size_t i = 0; i < PAGES * WORDS; i++)
            wrong += words[i] != 5 + (i % WORDS < WRITERS ? round : 0);
    }
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    TRY(cuMemHostUnregister(words));
    say("words that were lost: %u\n", wrong);
    return 0;
}

static int write_private(void)
{
    return write_together(MAP_PRIVATE);
}

static int write_shared(void)
{
    return write_together(MAP_SHARED);
}

static atomic_bool enough;

static void *work_elsewhere(void *unused)
{
    CUdeviceptr other;
    int bad = (int)cuCtxSetCurrent(device_context);
    bad |= (int)cuMemAlloc_v2(&other, SIZE);
    while (!atomic_load(&enough)) {
        bad |= (int)cuMemsetD8_v2(other, 4, SIZE);
        bad |= (int)cuStreamSynchronize(NULL);
    }
    say("work: %d\n", bad);
    return unused;
}

/* Memory is the program's again, with what the device has written, while another thread gives the device other work. */
static int given_up(void)
{
    unsigned *words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    pthread_t thread;
    unsigned wrong = 0;
    device_up();
    pthread_create(&thread, NULL, work_elsewhere, NULL);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        int bad = (int)cuMemHostRegister_v2(words, PAGES * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP);
        bad |= (int)cuMemHostGetDevicePointer_v2(&address, words, 0);
        bad |= (int)cuMemsetD32_v2(address, round, PAGES * WORDS);
        bad |= (int)cuMemHostUnregister(words);
        for (size_t i = 0; i < PAGES * WORDS; i++)
            wrong += words[i] != round;
        wrong += bad != 0;
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    say("wrong: %u\n", wrong);
    return 0;
}

/* So does a child that is made meanwhile have it. */
static int forked_meanwhile(void)
{
    unsigned *words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    pthread_t thread;
    int good = 0, bad = 0;
    device_up();
    TRY(cuMemHostRegister_v2(words, PAGES * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&address, words, 0));
    pthread_create(&thread, NULL, work_elsewhere, NULL);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        int status = -1;
        bad |= (int)cuMemsetD32_v2(address, round, PAGES * WORDS);
        bad |= (int)cuCtxSynchronize();
        const int pid = fork();
        if (pid == 0) {
            for (size_t i = 0; i < PAGES * WORDS; i++)
                bad |= words[i] != round;
            _exit(bad);
        }
        waitpid(pid, &status, 0);
        good += status == 0;
        words[round] = 0; /* the parent goes on with it as before */
        bad |= words[round + 1] != round;
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    say("children: %d; parent: %d\n", good, bad);
    return 0;
}

static void *work(void *unused)
{
    int bad = 0;
    (void)unused;
    cuCtxSetCurrent(device_context);
    while (!atomic_load(&enough)) {
        bad |= (int)cuMemsetD8Async((CUdeviceptr)(unsigned long)shared, 4, SIZE, NULL);
        bad |= (int)cuCtxSynchronize();
        for (int i = 0; i < SIZE; i += PAGE)
            shared[i] = 1;
    }
    say("work: %d\n", bad);
    return NULL;
}

/* Children that are made while another thread shares memory with the device have children of their own. */
static int busy_forks(void)
{
    pthread_t thread;
    int good = 0;
    share();
    pthread_create(&thread, NULL, work, NULL);
    for (int i = 0; i < 200; i++) {
        int status = -1;
        const int pid = fork();
        if (pid == 0) {
            const int inner = fork();
            if (inner == 0)
                _exit(5);
            waitpid(inner, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
        waitpid(pid, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 5;
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    say("children: %d\n", good);
    return 0;
}

const struct scenario scenarios[] = {
    {"sent", sent},
    {"sent_and_ignored", sent_and_ignored},
    {"not_deferred", not_deferred},
    {"only_once", only_once},
    {"mask_of_handler", mask_of_handler},
    {"set_late", set_late},
    {"passes_on_by_call", passes_on_by_call},
    {"passes_on_by_return", passes_on_by_return},
    {"passes_on_by_raise", passes_on_by_raise},
    {"passes_on_after_all", passes_on_after_all},
    {"in_child", in_child},
    {"blocked_in_thread", blocked_in_thread},
    {"busy_forks", busy_forks},
    {"given_up", given_up},
    {"forked_meanwhile", forked_meanwhile},
    {"write_private", write_private},

    {"write_shared", write_shared},
    {NULL, NULL},
};
