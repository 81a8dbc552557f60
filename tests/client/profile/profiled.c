/*
 * profiled.c - calls that are counted where they are made: the last lines of the output are NAME COUNT.
 *
 *   profiled work               two threads, exit by return
 *   profiled _exit | abort      the same, 0.5 s without a call, then that
 *   profiled fork-after         a child that is forked in the middle tries a call and exits
 *   profiled fork-before        parent and child do all of it, each for itself
 *   profiled many N             N asynchronous calls
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES 16
#define SIZE  ((size_t)1 << 20)

static const char *names[NAMES];
static unsigned counts[NAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void counted(const char *name, CUresult result)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    names[i] = name;
    counts[i]++;
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: CUresult %d\n", name, (int)result);
    exit(2);
}

#define CALL(function, ...) counted(#function, function(__VA_ARGS__))

static CUcontext context;

/* Not inlined, so that it is in stacks. */
__attribute__((noinline)) static void wait_here(void)
{
    CALL(cuCtxSynchronize);
}

static void *other_thread(void *memory)
{
    CALL(cuCtxSetCurrent, context);
    for (int i = 0; i < 50; i++) {
        CALL(cuMemsetD32Async, (CUdeviceptr)(uintptr_t)memory, 1, 16, NULL);
        if (i >= 48) /* with something to wait for each time */
            wait_here();
    }
    return NULL;
}

static void start(void)
{
    CUdevice device;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
}

static void work(void)
{
    CUdeviceptr memory[3];
    for (int i = 0; i < 3; i++)
        CALL(cuMemAlloc_v2, &memory[i], SIZE);
    for (int i = 0; i < 1000; i++) {
        CALL(cuMemsetD32Async, memory[0], (unsigned)i, 16, NULL);
        if (i >= 993)
            wait_here();
    }
    char *host = calloc(1, SIZE);
    for (int i = 0; i < 2; i++)
        CALL(cuMemcpyHtoD_v2, memory[1], host, SIZE);
    for (int i = 0; i < 2; i++)
        CALL(cuMemcpyDtoH_v2, host, memory[1], SIZE);
    free(host);
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, (void *)(uintptr_t)memory[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        CALL(cuMemFree_v2, memory[i]);
}

static void many(int n)
{
    CUdeviceptr memory;
    CALL(cuMemAlloc_v2, &memory, SIZE);
    for (int i = 0; i < n; i++)
        CALL(cuMemsetD32Async, memory, (unsigned)i, 16, NULL);
    wait_here();
}

static void print_counts(void)
{
    for (int i = 0; names[i]; i++)
        printf("%s %u\n", names[i], counts[i]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "work";
    pid_t child = strcmp(mode, "fork-before") == 0 ? fork() : -1;
    start();
    if (strcmp(mode, "many") == 0)
        many(argc > 2 ? atoi(argv[2]) : 1000);
    else
        work();
    if (strcmp(mode, "fork-after") == 0 && (child = fork()) == 0)
        exit(cuCtxSynchronize() == CUDA_SUCCESS);
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        return 3;
    if (child != 0)
        print_counts();
    if (mode[0] == '_' || mode[0] == 'a')
        usleep(500000);
    if (strcmp(mode, "_exit") == 0)
        _exit(4);
    if (strcmp(mode, "abort") == 0)
        abort();
    return 0;
}
