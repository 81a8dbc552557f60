/* handlers.c - signal handlers that call CUDA, and interrupt calls of the same thread that wait. */
#include "scenario.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LASTS_NS 400000000ull /* the kernel */
#define AFTER_NS 100000000    /* it began, the signal comes */

static const char image[] = ".version 7.0\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry last(.param .u64 ns)\n"
                            "{\n"
                            "    .reg .u64 %rd<5>;\n"
                            "    .reg .pred %p;\n"
                            "    ld.param.u64 %rd1, [ns];\n"
                            "    mov.u64 %rd2, %globaltimer;\n"
                            "again:\n"
                            "    mov.u64 %rd3, %globaltimer;\n"
                            "    sub.u64 %rd4, %rd3, %rd2;\n"
                            "    setp.lt.u64 %p, %rd4, %rd1;\n"
                            "    @%p bra again;\n"
                            "    ret;\n"
                            "}\n";

static CUfunction last;
static CUdeviceptr kept;
static volatile int results[6], n_signals;

static int launch_one_that_lasts(void)
{
    unsigned long long ns = LASTS_NS;
    void *arguments[] = {&ns};
    return (int)cuLaunchKernel(last, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* SIGALRM is that of whoever hangs (scenario.c). */
static void signal_soon(void)
{
    static timer_t timer;
    static bool made;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    const struct itimerspec once = {.it_value = {0, AFTER_NS}};
    if (!made && timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        exit(9);
    made = true;
    timer_settime(timer, 0, &once, NULL);
}

static void prepare(void (*handler)(int), int flags)
{
    CUmodule module;
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    device_up();
    TRY(cuModuleLoadData(&module, image));
    TRY(cuModuleGetFunction(&last, module, "last"));
    TRY(cuMemAlloc_v2(&kept, 4096));
    say("work: %d\n", device_work(1)); /* whatever is compiled is compiled */
    TRY(launch_one_that_lasts());
    TRY(cuCtxSynchronize());
    sigaction(SIGUSR2, &action, NULL);
}

/* Posted calls, calls with an answer, and one that does not wait for the kernel. */
static void call_all(int number)
{
    CUdeviceptr data = 0;
    CUcontext current = NULL;
    unsigned word = 77, back = 0;
    CUstream stream = NULL;
    (void)number;
    results[0] = (int)cuCtxGetCurrent(&current) + (current != device_context) * 1000;
    results[1] = (int)cuMemAlloc_v2(&data, sizeof word);
    results[2] = (int)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    results[3] = (int)cuMemcpyHtoDAsync_v2(data, &word, sizeof word, stream);
    results[4] = (int)cuMemcpyDtoHAsync_v2(&back, data, sizeof back, stream);
    results[5] = (int)cuStreamSynchronize(stream) + (back != word) * 1000;
    n_signals++;
}

/* On a busy machine the wait that a signal is to interrupt may have ended before: then it comes now. */
static void await_signals(int n)
{
    while (n_signals < n)
        usleep(1000);
}

static int in_waits(int flags)
{
    int again = 20; /* turns that a busy machine may spoil: the signal comes before the call waits */
    prepare(call_all, flags);
    for (int i = 0; i < 4; i++) {
        unsigned char bytes[4096] = {0};
        TRY(cuMemsetD8_v2(kept, (unsigned char)(i + 5), sizeof bytes));
        TRY(launch_one_that_lasts());
        signal_soon();
        if (i % 2)
            TRY(cuMemcpyDtoH_v2(bytes, kept, sizeof bytes));
        TRY(cuCtxSynchronize());
        await_signals(i + 1);
        if (results[1] == CUDA_ERROR_NOT_PERMITTED && again-- > 0) {
            n_signals = i--;
            continue;
        }
        say("signals: %d; %d %d %d %d %d %d; bytes: %d %d\n", n_signals, results[0], results[1], results[2],
            results[3], results[4], results[5], bytes[0], bytes[4095]);
    }
    say("work: %d\n", device_work(3));
    return 0;
}

static int in_waits_that_restart(void)
{
    return in_waits(SA_RESTART);
}

static int in_waits_that_end(void)
{
    return in_waits(0);
}

/* As programs do at Ctrl-C: what they have is given back, and they end from within the handler. */
static void clean_up(int number)
{
    (void)number;
    TRY(cuMemFree_v2(kept));
    TRY(cuDevicePrimaryCtxReset_v2(0));
    exit(3);
}

static int clean_up_and_exit(void)
{
    prepare(clean_up, 0);
    signal_soon();
    for (int i = 0; i < 100; i++) {
        TRY(launch_one_that_lasts());
        TRY(cuCtxSynchronize());
    }
    return 0;
}

/* A second signal comes while the handler of the first one waits. */
static void call_and_be_interrupted(int number)
{
    results[number == SIGUSR2] = (int)launch_one_that_lasts();
    if (number == SIGUSR2)
        raise(SIGUSR1);
    results[2 + (number == SIGUSR2)] = (int)cuCtxSynchronize();
    n_signals++;
}

static int handler_in_handler(void)
{
    prepare(call_and_be_interrupted, 0);
    struct sigaction action = {.sa_handler = call_and_be_interrupted};
    sigaction(SIGUSR1, &action, NULL);
    TRY(launch_one_that_lasts());
    signal_soon();
    TRY(cuCtxSynchronize());
    await_signals(2);
    say("signals: %d; %d %d %d %d\n", n_signals, results[0], results[1], results[2], results[3]);
    say("work: %d\n", device_work(3));
    return 0;
}

/* Makes the file HANDLING if there is to be one, and calls until there is a file HANDLED. */
static void call_for_long(int number)
{
    const char *begun = getenv("HANDLING"), *enough = getenv("HANDLED");
    (void)number;
    if (begun)
        close(open(begun, O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 3 || (enough && access(enough, F_OK) != 0); i++) {
        CUdeviceptr data = 0;
        results[0] |= (int)cuMemAlloc_v2(&data, 4096);
        results[1] |= (int)cuMemFree_v2(data);
        results[2] |= (int)cuCtxSynchronize();
        usleep(10000);
    }
    n_signals++;
}

/* The connection may be lost meanwhile (tests/examples/control.py). */
static int handler_for_long(void)
{
    unsigned char bytes[4096] = {0};
    prepare(call_for_long, 0);
    TRY(cuMemsetD8_v2(kept, 9, sizeof bytes));
    TRY(launch_one_that_lasts());
    signal_soon();
    TRY(cuCtxSynchronize());
    TRY(cuMemcpyDtoH_v2(bytes, kept, sizeof bytes));
    await_signals(1);
    say("signals: %d; %d %d %d; bytes: %d %d\n", n_signals, results[0], results[1], results[2], bytes[0],
        bytes[4095]);
    say("work: %d\n", device_work(3));
    return 0;
}

static atomic_bool destroyed;

static void CUDA_CB destroy(void *unused)
{
    (void)unused;
    atomic_store(&destroyed, true);
}

static void count_signal(int number)
{
    (void)number;
    n_signals++;
}

/* A signal of the program's is for the program's own threads, also where there is one for destructors of graphs' objects. */
static int beside_destructors(void)
{
    CUuserObject object;
    sigset_t usr2;
    const struct sigaction action = {.sa_handler = count_signal};
    const struct timespec moment = {0, 200000000};
    device_up();
    TRY(cuUserObjectCreate(&object, NULL, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    TRY(cuUserObjectRelease(object, 1));
    while (!atomic_load(&destroyed))
        usleep(1000);
    sigaction(SIGUSR2, &action, NULL);
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigprocmask(SIG_BLOCK, &usr2, NULL);
    kill(getpid(), SIGUSR2);
    nanosleep(&moment, NULL);
    if (n_signals)
        say("a signal fails: to wait for the program's own thread\n");
    say("taken: %d\n", sigtimedwait(&usr2, NULL, &moment) == SIGUSR2);
    return 0;
}

const struct scenario scenarios[] = {
    {"in_waits_that_restart", in_waits_that_restart},
    {"in_waits_that_end", in_waits_that_end},
    {"clean_up_and_exit", clean_up_and_exit},
    {"handler_in_handler", handler_in_handler},
    {"handler_for_long", handler_for_long},
    {"beside_destructors", beside_destructors},
    {NULL, NULL},
};
