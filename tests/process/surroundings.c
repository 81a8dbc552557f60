/* surroundings.c - what a process changes around itself while CUDA is up: signals, descriptors, limits, rights. */
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* --- signals ---------------------------------------------------------------------------------------------- */

static atomic_int n_signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_signals, 1);
}

static void handle(int number, int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

/* Copies to and fro, of sizes that take more than one system call. */
static int big_copies(unsigned rounds)
{
    enum { SIZE = 3 << 20 };
    CUdeviceptr data;
    unsigned char *bytes = malloc(SIZE), *back = malloc(SIZE);
    int result = bytes && back ? (int)cuMemAlloc_v2(&data, SIZE) : -1;
    for (unsigned round = 0; round < rounds && result == 0; round++) {
        for (size_t i = 0; i < SIZE; i++)
            bytes[i] = (unsigned char)(i * 7 + i / 256 + round);
        memset(back, 0, SIZE);
        result = (int)cuMemcpyHtoD_v2(data, bytes, SIZE);
        if (result == 0)
            result = (int)cuMemcpyDtoH_v2(back, data, SIZE);
        if (result == 0 && memcmp(bytes, back, SIZE) != 0)
            result = -1;
    }
    free(bytes);
    free(back);
    return result ? result : (int)cuMemFree_v2(data);
}

static int timer_storm(int flags)
{
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    handle(SIGALRM, flags);
    setitimer(ITIMER_REAL, &often, NULL);
    device_up(); /* connecting is interrupted as well */
    int failures = 0;
    for (unsigned i = 0; i < 200; i++)
        failures += device_work(i) != 0;
    int copies = big_copies(4);
    setitimer(ITIMER_REAL, &never, NULL);
    say("failures: %d, copies: %d, signals came: %d\n", failures, copies, atomic_load(&n_signals) > 0);
    return 0;
}

static int signals_interrupt(void)
{
    return timer_storm(0);
}

static int signals_restart(void)
{
    return timer_storm(SA_RESTART);
}

static atomic_bool stop;

static void *work_on(void *argument)
{
    size_t failures = 0;
    for (unsigned i = 0; !atomic_load(&stop); i++)
        failures += device_work((unsigned)(size_t)argument + i) != 0;
    return (void *)failures;
}

static int signals_to_threads(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    size_t failures = 0;
    handle(SIGUSR1, 0);
    device_up();
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work_on, (void *)i);
    for (int i = 0; i < 3000; i++) {
        pthread_kill(threads[i % THREADS], SIGUSR1);
        usleep(100);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failures += (size_t)result;
    }
    say("failures: %zu\n", failures);
    return 0;
}

/* A process that blocks all signals, or ignores those of pipes and children; and one that waits for its signals. */
static int signals_blocked(void)
{
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &all, NULL);
    device_up();
    say("blocked: %d, %d\n", device_work(3), big_copies(1));
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    say("still blocked: %d\n", sigismember(&mask, SIGUSR2));
    kill(getpid(), SIGUSR2); /* no thread but this one may take it */
    const struct timespec moment = {0, 100000000};
    sigset_t usr2 = none;
    sigaddset(&usr2, SIGUSR2);
    say("taken: %d\n", sigtimedwait(&usr2, NULL, &moment) == SIGUSR2);
    return 0;
}

/* --- descriptors ------------------------------------------------------------------------------------------ */

static int all_closed_before(void)
{
    closefrom(3);
    device_up();
    say("work: %d, %d\n", device_work(3), big_copies(1));
    return 0;
}

/* Standard streams are closed at the start: what is opened later must get their numbers, and nothing of ours. */
static int without_standard_streams(void)
{
    int out = fcntl(1, F_DUPFD, 200);
    close(0);
    close(1);
    close(2);
    CUdeviceptr data;
    CUcontext context;
    int result = (int)cuInit(0);
    result = result ? result : (int)cuDevicePrimaryCtxRetain(&context, 0);
    result = result ? result : (int)cuCtxSetCurrent(context);
    result = result ? result : (int)cuMemAlloc_v2(&data, 100);
    result = result ? result : (int)cuMemsetD8_v2(data, 1, 100);
    result = result ? result : (int)cuMemAllocManaged(&data, 4096, CU_MEM_ATTACH_GLOBAL);
    result = result ? result : (int)cuMemsetD8_v2(data, 7, 4096);
    result = result ? result : (int)cuCtxSynchronize();
    result = result ? result : *(const unsigned char *)data - 7;
    int first = open("/dev/null", O_RDWR), second = open("/dev/null", O_RDWR),
        third = open("/dev/null", O_RDWR);
    dprintf(out, "works: %d; next descriptors: %d %d %d\n", result, first, second, third);
    return 0;
}

static int few_descriptors(void)
{
    const struct rlimit few = {24, 24};
    setrlimit(RLIMIT_NOFILE, &few);
    device_up();
    say("work: %d, %d\n", device_work(3), big_copies(1));
    int n = 0, fd, last = -1;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) {
        last = fd;
        n++;
    }
    say("some were left: %d; without any: %d\n", n > 0, device_work(4));
    close(last);
    say("work: %d\n", device_work(4));
    return 0;
}

enum { FILLED = 1100 };

/*
 * Closes every descriptor above the standard ones, and puts sockets of its own there: CUDA may be lost by that, but
 * nothing of the application's is touched.
 */
static int all_closed_after(void)
{
    int pair[2], n = 0;
    device_up();
    say("before: %d\n", device_work(3));
    const struct rlimit many = {FILLED + 200, FILLED + 200};
    setrlimit(RLIMIT_NOFILE, &many);
    closefrom(3);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    while (n < FILLED && dup(pair[1]) >= 0)
        n++;
    CUdeviceptr data;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; i++) {
        result = cuMemAlloc_v2(&data, 100);
        result = result ? result : cuMemsetD8_v2(data, 1, 100);
        result = result ? result : cuCtxSynchronize();
    }
    say("after: %s\n",
        result == CUDA_SUCCESS || result == CUDA_ERROR_DEVICE_UNAVAILABLE ? "works or is lost" : "else");
    char byte;
    say("something came: %d\n", read(pair[0], &byte, 1) >= 0);
    if (write(pair[0], "x", 1) != 1)
        return 1;
    (void)cuCtxSynchronize();
    say("something is left: %d\n", read(pair[1], &byte, 1) == 1 && byte == 'x');
    say("still open: %d\n", fcntl(pair[1] + FILLED, F_GETFD) >= 0);
    return 0;
}

/* The same, and what it goes on with: with a session that may outlive its connection. */
static int outlives_closing(void)
{
    device_up();
    say("before: %d\n", device_work(3));
    closefrom(3);
    say("at once: %d, %d\n", device_work(4), big_copies(1));
    closefrom(3);
    sleep(3); /* longer than a server waits for a program that has ended */
    say("later: %d, %d\n", device_work(5), big_copies(1));
    closefrom(3);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    say("with files of its own: %d, %d\n", device_work(6), big_copies(1));
    say("still open: %d %d\n", write(pair[0], "x", 1) == 1, fcntl(pair[1], F_GETFD) >= 0);
    return 0;
}

/* --- limits and rights ------------------------------------------------------------------------------------- */

static int environment_cleared(void)
{
    device_up();
    clearenv();
    if (chdir("/") != 0)
        return 1;
    say("work: %d, %d\n", device_work(3), big_copies(1));
    return 0;
}

/* From now on these system calls fail. */
static bool refuse(const int *refused, size_t n_refused)
{
    struct sock_filter filter[40];
    unsigned short n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n_refused; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {n, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* A filter as sandboxes set it: no files, no sockets, no processes any more, only what is open goes on. */
static int sandboxed(void)
{
    static const int refused[] = {SYS_openat,   SYS_socket,           SYS_connect,
                                  SYS_execve,   SYS_process_vm_readv, SYS_process_vm_writev,
                                  SYS_unlinkat, SYS_mkdirat,          SYS_ptrace};
    device_up();
    say("before: %d, %d\n", device_work(3), big_copies(1));
    if (!refuse(refused, sizeof refused / sizeof *refused))
        return 1;
    say("a file: %d\n", open("/etc/passwd", O_RDONLY));
    for (unsigned i = 0; i < 3; i++)
        say("work: %d, %d\n", device_work(i), big_copies(1));
    TRY(cuMemcpyHtoD_v2(0, refused, 2));
    return 0;
}

static void *let_go(void *argument)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &until) == 0) /* sleep may be refused */
        ;
    pthread_mutex_unlock(&lock);
    atomic_store((atomic_uint *)argument, 1);
    return NULL;
}

static double processor_time(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Waits for a stream that waits for a thread; whether that took a processor. */
static void wait_long(void)
{
    void *word;
    CUdeviceptr on_device;
    pthread_t thread;
    TRY(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&on_device, word, 0));
    memset(word, 0, 4096);
    const double before = processor_time();
    pthread_create(&thread, NULL, let_go, word);
    TRY(cuStreamWaitValue32_v2(NULL, on_device, 1, CU_STREAM_WAIT_VALUE_EQ));
    TRY(cuStreamSynchronize(NULL));
    pthread_join(thread, NULL);
    say("busy: %d\n", processor_time() - before > 0.5);
    TRY(cuMemFreeHost(word));
}

/* How this process waits elsewhere is refused from the beginning: there are other ways. */
static int waits_refused(void)
{
    enum { SIZE = 1 << 20 };
    static const int refused[] = {SYS_poll, SYS_eventfd2, SYS_nanosleep, SYS_clock_nanosleep};
    CUdeviceptr data;
    if (!refuse(refused, sizeof refused / sizeof *refused))
        return 1;
    device_up();
    say("work: %d, %d\n", device_work(3), big_copies(1));
    TRY(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
    unsigned char *bytes = (unsigned char *)data;
    bytes[5] = 7;
    TRY(cuMemsetD8_v2(data + SIZE / 2, 3, SIZE / 2));
    TRY(cuCtxSynchronize());
    say("%d %d\n", bytes[5], bytes[SIZE - 1]);
    wait_long();
    TRY(cuMemFree_v2(data));
    return 0;
}

/* Which pages have been touched cannot be asked, as files cannot be read at a position: none has contents that are missed. */
static int no_page_map(void)
{
    enum { SIZE = 1 << 20, PAGE = 4096 };
    static const int refused[] = {SYS_pread64};
    CUdeviceptr data;
    device_up();
    TRY(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
    unsigned char *bytes = (unsigned char *)data;
    bytes[5] = 7;
    if (!refuse(refused, 1))
        return 1;
    say("work: %d\n", device_work(4)); /* a kernel, for which all of it goes to the device */
    TRY(cuMemsetD8_v2(data + PAGE, 3, PAGE));
    TRY(cuCtxSynchronize());
    say("%d %d %d\n", bytes[5], bytes[PAGE + 5], bytes[SIZE - 1]);
    TRY(cuMemFree_v2(data));
    return 0;
}

/* Memory that the process may not give up: what the device cannot have stays the host's. */
static int memory_kept(void)
{
    enum { SIZE = 1 << 20 };
    static const int refused[] = {SYS_madvise};
    CUdeviceptr data, other;
    device_up();
    TRY(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemAlloc_v2(&other, SIZE));
    unsigned char *bytes = (unsigned char *)data;
    bytes[5] = 17;
    if (!refuse(refused, 1))
        return 1;
    (void)cuMemcpyDtoDAsync_v2(other, data, SIZE, NULL); /* fails where the pages cannot go */
    (void)cuCtxSynchronize();
    say("%d %d\n", bytes[5], bytes[SIZE - 1]);
    bytes[SIZE - 1] = 18;
    bytes[5]++;
    say("%d %d\n", bytes[5], bytes[SIZE - 1]);
    TRY(cuMemFree_v2(data));
    return 0;
}

/* Where the process may: a root folder with nothing in it, and the rights of nobody. */
static int confined(void)
{
    char folder[] = "/tmp/confined-XXXXXX";
    device_up();
    if (!mkdtemp(folder) || chdir(folder) != 0 || rmdir(folder) != 0)
        return 1;
    if (chroot(".") == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 1;
    say("work: %d, %d\n", device_work(3), big_copies(1));
    void *pinned;
    TRY(cuMemHostAlloc(&pinned, 100000, 0));
    TRY(cuMemFreeHost(pinned));
    return 0;
}

/* As programs do that must not wait for a page: all that they have and will have is locked in memory. */
static int memory_locked(void)
{
    enum { SIZE = 1 << 20 };
    CUdeviceptr data;
    say("locked: %d\n", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    device_up();
    TRY(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
    unsigned char *bytes = (unsigned char *)data;
    for (unsigned round = 1; round < 4; round++) {
        bytes[5] = (unsigned char)round;
        bytes[SIZE - 1] = (unsigned char)(round + 100);
        TRY(cuMemsetD8_v2(data + 4096, (unsigned char)round, SIZE / 2));
        say("work: %d, %d\n", device_work(round), big_copies(1));
        TRY(cuCtxSynchronize());
        say("%d %d %d\n", bytes[5], bytes[SIZE / 4], bytes[SIZE - 1]);
    }
    TRY(cuMemFree_v2(data));
    return munlockall();
}

const struct scenario scenarios[] = {
    {"signals_interrupt", signals_interrupt},
    {"signals_restart", signals_restart},
    {"signals_to_threads", signals_to_threads},
    {"signals_blocked", signals_blocked},
    {"all_closed_before", all_closed_before},
    {"without_standard_streams", without_standard_streams},
    {"few_descriptors", few_descriptors},
    {"all_closed_after", all_closed_after},
    {"outlives_closing", outlives_closing},
    {"environment_cleared", environment_cleared},
    {"sandboxed", sandboxed},
    {"memory_kept", memory_kept},
    {"no_page_map", no_page_map},
    {"waits_refused", waits_refused},
    {"confined", confined},
    {"memory_locked", memory_locked},
    {NULL, NULL},
};
