/* ends.c - the ways in which processes and threads end while they use CUDA. */
#include "scenario.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

extern int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *object);
extern void *__dso_handle;

static bool want_destructor;

/* As a static destructor of a library does: after the exit handlers of main. */
__attribute__((destructor)) static void at_unload(void)
{
    CUdeviceptr data;
    int count = 0;
    if (!want_destructor)
        return;
    say("destructor: cuDeviceGetCount %d\n", (int)cuDeviceGetCount(&count));
    (void)cuMemAlloc_v2(&data, 16);
    (void)cuCtxSynchronize();
    (void)cuDevicePrimaryCtxRelease_v2(0);
    say("destructor: ends\n");
}

static CUmodule kept_module;
static CUstream kept_stream;

static void free_at_exit(void)
{
    TRY(cuStreamDestroy_v2(kept_stream));
    TRY(cuModuleUnload(kept_module));
    say("exit handler: %d\n", device_work(3));
    TRY(cuDevicePrimaryCtxRelease_v2(0));
}

static void keep_objects(void)
{
    static const char empty[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry e()\n{\n ret;\n}\n";
    TRY(cuModuleLoadData(&kept_module, empty));
    TRY(cuStreamCreate(&kept_stream, 0));
}

/* Handlers registered before and after the start of CUDA, and a destructor. */
static int exit_handlers(void)
{
    want_destructor = true;
    atexit(free_at_exit);
    device_up();
    keep_objects();
    say("main: %d\n", device_work(3));
    return 5;
}

static int exit_handlers_after(void)
{
    device_up();
    atexit(free_at_exit);
    keep_objects();
    return 6;
}

static int exit_without_waiting(void)
{
    CUdeviceptr data;
    device_up();
    TRY(cuMemAlloc_v2(&data, 64 << 20));
    for (unsigned i = 0; i < 100; i++)
        (void)cuMemsetD32Async(data, i, 16 << 20, NULL);
    say("exits\n");
    return 0;
}

static void take_long(void *argument)
{
    atomic_store((atomic_bool *)argument, true);
    sleep(100);
}

static void *exit_from_thread(void *argument)
{
    while (!atomic_load((atomic_bool *)argument))
        usleep(1000);
    usleep(20000);
    say("the thread: exits\n");
    exit(8);
}

/* The main thread waits for what never comes; another ends the process. */
static int exit_from_other_thread(void)
{
    static atomic_bool inside;
    pthread_t thread;
    want_destructor = false;
    device_up();
    TRY(cuLaunchHostFunc(NULL, take_long, &inside));
    pthread_create(&thread, NULL, exit_from_thread, &inside);
    TRY(cuStreamSynchronize(NULL));
    return 1;
}

static void exit_inside(void *argument)
{
    (void)argument;
    exit(11);
}

static int exit_from_host_function(void)
{
    device_up();
    say("about to end\n");
    (void)cuLaunchHostFunc(NULL, exit_inside, NULL);
    (void)cuStreamSynchronize(NULL);
    sleep(100);
    return 1;
}

static void *work_for_ever(void *argument)
{
    for (unsigned i = 0;; i++)
        (void)device_work((unsigned)(size_t)argument + i);
    return NULL;
}

static int start_workers(void)
{
    device_up();
    for (size_t i = 0; i < 6; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work_for_ever, (void *)i) != 0)
            return 1;
    }
    usleep(50000);
    say("main: %d\n", device_work(3));
    return 0;
}

static int exit_while_others_call(void)
{
    want_destructor = true;
    return start_workers() ? 1 : 12;
}

static int underscore_exit(void)
{
    start_workers();
    _exit(13);
}

static int quickly(void)
{
    start_workers();
    quick_exit(14);
}

static int aborts(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    start_workers();
    abort();
}

static void *last_thread(void *argument)
{
    usleep(50000);
    say("the last thread: %d\n", device_work((unsigned)(size_t)argument));
    exit(15); /* threads of a driver would keep the process otherwise */
}

static int main_ends_first(void)
{
    pthread_t thread;
    device_up();
    pthread_create(&thread, NULL, last_thread, (void *)7);
    pthread_detach(thread);
    pthread_exit(NULL);
}

/* --- threads ---------------------------------------------------------------------------------------------- */

static pthread_key_t key_before, key_after;

static void key_destructor(void *value)
{
    CUcontext context = NULL;
    CUresult result = cuCtxGetCurrent(&context);
    CUdeviceptr data;
    say("destructor of a thread's %s value: %d, its context: %d\n", (const char *)value, (int)result,
        context == device_context);
    CUresult allocated = cuMemAlloc_v2(&data, 16);
    say("  allocates: %d, frees: %d\n", (int)allocated, (int)cuMemFree_v2(data));
}

static void thread_local_destructor(void *value)
{
    (void)value;
    say("thread-local destructor: %d\n", device_work(9));
}

static void *thread_with_destructors(void *argument)
{
    __cxa_thread_atexit_impl(thread_local_destructor, NULL, &__dso_handle);
    pthread_setspecific(key_before, "first");
    say("thread: %d\n", device_work(2));
    pthread_setspecific(key_after, "second");
    return argument;
}

static int thread_destructors(void)
{
    pthread_t thread;
    pthread_key_create(&key_before, key_destructor);
    device_up();
    pthread_key_create(&key_after, key_destructor);
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, thread_with_destructors, NULL);
        pthread_join(thread, NULL);
    }
    say("main: %d\n", device_work(2));
    return 0;
}

static void *work_once(void *argument)
{
    size_t seed = (size_t)argument;
    CUcontext context;
    cuCtxPushCurrent_v2(device_context);
    int result = device_work((unsigned)seed);
    if (seed % 3)
        cuCtxPopCurrent_v2(&context);
    return (void *)(size_t)result;
}

static long resident(void)
{
    long total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &pages) != 2)
        pages = -1;
    if (file)
        fclose(file);
    return pages * 4;
}

static int wave(size_t n, size_t seed)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int failures = 0;
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, work_once, (void *)(seed + i)) != 0)
            return -1;
    for (size_t i = 0; i < n; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failures += result != NULL;
    }
    return failures;
}

/* Thousands of threads come and go: nothing of them stays. */
static int many_threads(void)
{
    int failures = 0;
    device_up();
    for (size_t i = 0; i < 20; i++)
        failures += wave(50, i * 50);
    long before = resident();
    for (size_t i = 0; i < 40; i++)
        failures += wave(50, i * 50);
    long grown = resident() - before;
    say("failures: %d\n", failures);
    if (grown < 4096)
        say("memory stays\n");
    else
        say("memory has grown by %ld kB\n", grown);
    return 0;
}

static pthread_key_t keys[PTHREAD_KEYS_MAX];

static void *hold_keys(void *n_keys)
{
    const size_t n = *(const size_t *)n_keys;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        pthread_setspecific(keys[i], &keys[i]);
    say("thread: %d\n", device_work(5));
    for (size_t i = 0; i < n; i++)
        kept += pthread_getspecific(keys[i]) == &keys[i];
    say("values that are another's: %zu\n", n - kept);
    return NULL;
}

/* The program has all the keys for values of threads that there are, but for few that libraries take when they are loaded. */
static int keys_used_up(void)
{
    pthread_t thread;
    enum { LEFT = 2 };
    size_t n = 0;
    while (n < PTHREAD_KEYS_MAX && pthread_key_create(&keys[n], NULL) == 0)
        n++;
    for (int i = 0; i < LEFT; i++)
        pthread_key_delete(keys[--n]);
    device_up();
    (void)hold_keys(&n);
    pthread_create(&thread, NULL, hold_keys, &n);
    return pthread_join(thread, NULL);
}

/* --- contexts --------------------------------------------------------------------------------------------- */

static int reset_and_again(void)
{
    device_up();
    for (int round = 0; round < 3; round++) {
        CUdeviceptr data;
        CUstream stream;
        CUevent event;
        CUmodule module;
        void *pinned;
        static const char empty[] =
            ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry e()\n{\n ret;\n}\n";
        TRY(cuMemAlloc_v2(&data, 1000));
        TRY(cuStreamCreate(&stream, 0));
        TRY(cuEventCreate(&event, 0));
        TRY(cuModuleLoadData(&module, empty));
        TRY(cuMemHostAlloc(&pinned, 100, 0));
        TRY(cuMemsetD8Async(data, 1, 1000, stream));
        TRY(cuEventRecord(event, stream));
        TRY(cuDevicePrimaryCtxReset_v2(0));
        unsigned flags;
        int active;
        TRY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        say("active: %d\n", active);
        TRY(cuMemAlloc_v2(&data, 16));
        TRY(cuStreamQuery(stream));
        TRY(cuEventQuery(event));
        TRY(cuModuleUnload(module));
        TRY(cuEventRecord(event, stream));
        TRY(cuMemsetD8Async(data, 1, 16, stream));
        TRY(cuEventDestroy_v2(event));
        TRY(cuEventDestroy_v2(event));
        CUcontext again;
        TRY(cuDevicePrimaryCtxRetain(&again, 0));
        say("the same context: %d\n", again == device_context);
        TRY(cuCtxSetCurrent(again));
        TRY(cuStreamQuery(stream));
        TRY(cuStreamDestroy_v2(stream));
        TRY(cuStreamQuery(stream));
        TRY(cuMemAlloc_v2(&data, 16));
        TRY(cuMemsetD8_v2(data, 1, 16));
        TRY(cuCtxSynchronize());
        TRY(cuMemFree_v2(data));
        device_up();
        say("work: %d\n", device_work(4));
    }
    TRY(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}

const struct scenario scenarios[] = {
    {"exit_handlers", exit_handlers},
    {"exit_handlers_after", exit_handlers_after},
    {"exit_without_waiting", exit_without_waiting},
    {"exit_from_other_thread", exit_from_other_thread},
    {"exit_from_host_function", exit_from_host_function},
    {"exit_while_others_call", exit_while_others_call},
    {"underscore_exit", underscore_exit},
    {"quick_exit", quickly},
    {"abort", aborts},
    {"main_ends_first", main_ends_first},
    {"thread_destructors", thread_destructors},
    {"many_threads", many_threads},
    {"keys_used_up", keys_used_up},
    {"reset_and_again", reset_and_again},
    {NULL, NULL},
};
