/* forks.c - processes that start others while CUDA is up in them. */
#include "scenario.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int fork_and_call(void)
{
    device_up();
    say("before: %d\n", device_work(3));
    int pid = fork();
    if (pid == 0) {
        calls_without_device();
        _exit(4);
    }
    say_child("child", pid);
    say("after: %d\n", device_work(5));
    return 0;
}

static void call_at_exit(void)
{
    CUdeviceptr data;
    say("at exit: %d %d\n", (int)cuMemAlloc_v2(&data, 16), (int)cuCtxSynchronize());
}

/* Exit handlers of the child call CUDA, as the runtime's do; the parent notices nothing. */
static int fork_and_exit(void)
{
    device_up();
    int pid = fork();
    if (pid == 0) {
        atexit(call_at_exit);
        exit(3);
    }
    say_child("child", pid);
    for (unsigned i = 0; i < 5; i++)
        say("after: %d\n", device_work(i));
    return 0;
}

static int fork_of_fork(void)
{
    device_up();
    int pid = fork();
    if (pid == 0) {
        int inner = fork();
        if (inner == 0) {
            calls_without_device();
            exit(5);
        }
        say_child("inner child", inner);
        exit(6);
    }
    say_child("child", pid);
    say("after: %d\n", device_work(5));
    return 0;
}

/* The child outlives the parent's session and ends when that is long over. */
static int child_outlives(void)
{
    device_up();
    say("parent: %d\n", device_work(7));
    int ends[2];
    if (pipe(ends) != 0)
        return 1;
    if (fork() == 0) {
        char byte;
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0) /* until the parent is gone */
            ;
        CUdeviceptr data;
        int result = (int)cuMemAlloc_v2(&data, 16);
        exit(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    return 0;
}

static atomic_bool stop;
static atomic_int failures;

static void *keep_busy(void *argument)
{
    unsigned seed = (unsigned)(size_t)argument;
    while (!atomic_load(&stop))
        if (device_work(seed++) != 0)
            atomic_fetch_add(&failures, 1);
    return NULL;
}

/* Whatever lock another thread holds at the time of the fork, the child's calls return. */
static int fork_while_busy(void)
{
    enum { THREADS = 4, CHILDREN = 40 };
    pthread_t threads[THREADS];
    int wrong = 0;
    device_up();
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, keep_busy, (void *)(i * 100));
    for (int i = 0; i < CHILDREN; i++) {
        int status, pid = fork();
        if (pid == 0) {
            alarm(20);
            if (!freopen("/dev/null", "w", stdout))
                _exit(2);
            calls_without_device();
            exit(device_work(1) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        wrong += status != 0;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    say("children that did otherwise: %d; failures of the parent: %d\n", wrong, atomic_load(&failures));
    return 0;
}

static void *init_only(void *argument)
{
    (void)argument;
    device_up();
    return NULL;
}

/* A fork in the middle of another thread's cuInit: whatever the child's calls return, they do. */
static int fork_during_init(void)
{
    pthread_t thread;
    int hung = 0;
    pthread_create(&thread, NULL, init_only, NULL);
    for (int i = 0; i < 20; i++) {
        int status, pid = fork();
        if (pid == 0) {
            alarm(20);
            int count;
            cuInit(0);
            cuDeviceGetCount(&count);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        hung += status != 0;
    }
    pthread_join(thread, NULL);
    say("children that did not end: %d\n", hung);
    say("after: %d\n", device_work(2));
    return 0;
}

static int work_in_child(void)
{
    int pid = fork();
    if (pid == 0) {
        device_up();
        say("in the child: %d\n", device_work(2));
        exit(0);
    }
    say_child("child", pid);
    device_up();
    say("in the parent: %d\n", device_work(2));
    pid = fork();
    if (pid == 0) {
        execl(program_path, program_path, ".plain", (char *)NULL);
        _exit(127);
    }
    say_child("executed", pid);
    say("in the parent: %d\n", device_work(2));
    return 0;
}

static int plain(void)
{
    device_up();
    say("plain: %d\n", device_work(11));
    return 0;
}

static int started_otherwise(void)
{
    device_up();
    int pid = vfork();
    if (pid == 0) {
        execl(program_path, program_path, ".plain", (char *)NULL);
        _exit(127);
    }
    say_child("vfork", pid);
    char *const arguments[] = {(char *)program_path, (char *)".plain", NULL};
    if (posix_spawn(&pid, program_path, NULL, NULL, arguments, environ) != 0)
        pid = -1;
    say_child("posix_spawn", pid);
    say("system: %d\n", system("exit 7") >> 8);
    char line[100] = "";
    FILE *pipe = popen("echo from a pipe", "r");
    if (!pipe || !fgets(line, sizeof line, pipe) || pclose(pipe) != 0)
        return 1;
    say("%s", line);
    say("after: %d\n", device_work(13));
    return 0;
}

/* Becomes a daemon, with what it says going to the parent. */
static int daemonise(void)
{
    int ends[2], pid;
    char text[4096];
    ssize_t n;
    if (pipe(ends) != 0 || (pid = fork()) < 0)
        return -1;
    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        close(ends[0]);
        dup2(ends[1], 1);
        close(ends[1]);
        return 1;
    }
    close(ends[1]);
    while ((n = read(ends[0], text, sizeof text - 1)) > 0) {
        text[n] = '\0';
        say("%s", text);
    }
    waitpid(pid, NULL, 0);
    return 0;
}

static int daemon_before_init(void)
{
    if (daemonise() == 1) {
        device_up();
        say("daemon: %d\n", device_work(3));
    }
    return 0;
}

static int daemon_after_init(void)
{
    device_up();
    if (daemonise() == 1)
        calls_without_device();
    else
        say("parent: %d\n", device_work(3));
    return 0;
}

static void fork_in_callback(void *argument)
{
    int pid = fork();
    if (pid == 0)
        _exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    waitpid(pid, argument, 0);
}

static int fork_in_host_function(void)
{
    int status = -1;
    device_up();
    TRY(cuLaunchHostFunc(NULL, fork_in_callback, &status));
    TRY(cuStreamSynchronize(NULL));
    say("child: %d\n", status);
    say("after: %d\n", device_work(2));
    return 0;
}

/* Memory that host and device share, in a child: pages that the device held have their contents. */
static int fork_with_managed(void)
{
    CUdeviceptr data;
    device_up();
    TRY(cuMemAllocManaged(&data, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemsetD8_v2(data, 9, 1 << 20));
    TRY(cuCtxSynchronize());
    TRY(cuMemsetD8_v2(data, 7, 1 << 19));
    TRY(cuCtxSynchronize());
    int pid = fork();
    if (pid == 0)
        _exit(0);
    say_child("child", pid);
    const unsigned char *bytes = (const unsigned char *)data;
    say("%d %d\n", bytes[0], bytes[(1 << 20) - 1]);
    say("after: %d\n", device_work(2));
    return 0;
}

const struct scenario scenarios[] = {
    {"fork_and_call", fork_and_call},
    {"fork_and_exit", fork_and_exit},
    {"fork_of_fork", fork_of_fork},
    {"child_outlives", child_outlives},
    {"fork_while_busy", fork_while_busy},
    {"fork_during_init", fork_during_init},
    {"fork_in_host_function", fork_in_host_function},
    {"fork_with_managed", fork_with_managed},
    {"work_in_child", work_in_child},
    {"started_otherwise", started_otherwise},
    {"daemon_before_init", daemon_before_init},
    {"daemon_after_init", daemon_after_init},
    {".plain", plain},
    {NULL, NULL},
};
