/* library.c - how programs open the driver's library. */
#include "scenario.h"

#include <dlfcn.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

typedef CUresult init_function(unsigned flags);
typedef CUresult count_function(int *count);

static void *open_library(void *argument)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    init_function *init = library ? (init_function *)dlsym(library, "cuInit") : NULL;
    count_function *count = library ? (count_function *)dlsym(library, "cuDeviceGetCount") : NULL;
    int n = 0;
    bool good = init && count && init(0) == CUDA_SUCCESS && count(&n) == CUDA_SUCCESS && n == 1;
    if (library)
        dlclose(library);
    (void)argument;
    return good ? NULL : (void *)"failed";
}

static int opened_by_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    int failures = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, open_library, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failures += result != NULL;
    }
    say("failures: %d\n", failures);
    for (int i = 0; i < 3; i++)
        say("again: %d\n", open_library(NULL) != NULL);
    device_up();
    say("work: %d\n", device_work(3));
    return 0;
}

/* --- in a namespace of its own, as plug-ins are opened: one more driver in the process ---------------------- */

typedef CUresult retain_function(CUcontext *context, CUdevice device);
typedef CUresult set_function(CUcontext context);
typedef CUresult allocate_function(CUdeviceptr *data, size_t size);
typedef CUresult fill_function(CUdeviceptr data, unsigned char value, size_t size);
typedef CUresult copy_function(void *to, CUdeviceptr from, size_t size);

/* 0, the first error, or -1 where the library or the data is wrong. */
static int use_library(void *library)
{
    enum { SIZE = 1000 };
    unsigned char bytes[SIZE] = {0};
    CUcontext context;
    CUdeviceptr data = 0;
    if (!library)
        return -1;
    init_function *init = (init_function *)dlsym(library, "cuInit");
    retain_function *retain = (retain_function *)dlsym(library, "cuDevicePrimaryCtxRetain");
    set_function *set = (set_function *)dlsym(library, "cuCtxSetCurrent");
    allocate_function *allocate = (allocate_function *)dlsym(library, "cuMemAlloc_v2");
    fill_function *fill = (fill_function *)dlsym(library, "cuMemsetD8_v2");
    copy_function *copy = (copy_function *)dlsym(library, "cuMemcpyDtoH_v2");
    CUresult result = init(0);
    result = result ? result : retain(&context, 0);
    result = result ? result : set(context);
    result = result ? result : allocate(&data, SIZE);
    result = result ? result : fill(data, 7, SIZE);
    result = result ? result : copy(bytes, data, SIZE);
    return result ? (int)result : bytes[0] == 7 && bytes[SIZE - 1] == 7 ? 0 : -1;
}

static int opened_in_namespaces(void)
{
    device_up();
    say("work: %d\n", device_work(3));
    for (int i = 0; i < 2; i++) {
        void *library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
        say("in a namespace of its own: %d\n", use_library(library));
    }
    say("work: %d\n", device_work(4));
    return 0;
}

/* --- libraries whose constructors make calls, while the loader has its lock ---------------------------------- */

/* A library beside this program; NULL: it cannot be opened. */
static void *open_beside(const char *name)
{
    char path[PATH_MAX] = "";
    const ssize_t size = readlink(program_path, path, sizeof path - 1);
    char *slash = size > 0 ? strrchr(path, '/') : NULL;
    if (!slash)
        return NULL;
    snprintf(slash, sizeof path - (size_t)(slash - path), "/%s", name);
    return dlopen(path, RTLD_NOW);
}

/* What the constructor of the library beside this program says. */
static int open_plugin(void)
{
    void *library = open_beside("process_plugin.so");
    const int *result = library ? (const int *)dlsym(library, "plugin_result") : NULL;
    return result ? *result : -1;
}

static int constructor_calls(void)
{
    say("constructor: %d\n", open_plugin());
    device_up();
    say("work: %d\n", device_work(3));
    return 0;
}

static void open_in_coroutine(void)
{
    say("constructor: %d\n", open_plugin());
}

/* On a stack that the threads library knows nothing of. */
static int constructor_in_coroutine(void)
{
    enum { SIZE = 128 << 10 };
    static ucontext_t outside, inside;
    void *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || getcontext(&inside) != 0)
        return 1;
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = SIZE;
    inside.uc_link = &outside;
    makecontext(&inside, open_in_coroutine, 0);
    return swapcontext(&outside, &inside);
}

static void *call_first(void *unused)
{
    int count;
    cuInit(0);
    cuDeviceGetCount(&count);
    return unused;
}

/* One thread makes the process's first call while another opens the library. */
static int beside_first_call(useconds_t later)
{
    pthread_t thread;
    alarm(120);
    if (pthread_create(&thread, NULL, call_first, NULL) != 0)
        return 2;
    usleep(later);
    const int result = open_plugin();
    pthread_join(thread, NULL);
    return result != 0;
}

static int constructor_beside_first_call(void)
{
    enum { CHILDREN = 12, STEP_US = 300 };
    int wrong = 0;
    for (unsigned i = 0; i < CHILDREN; i++) {
        int status = -1;
        const int pid = fork();
        if (pid == 0)
            _exit(beside_first_call(i * STEP_US));
        waitpid(pid, &status, 0);
        wrong += status != 0;
        if (WIFSIGNALED(status))
            break; /* it hung */
    }
    say("children that did otherwise: %d\n", wrong);
    return 0;
}

/* Set: the next connection takes long, and this is told of it. */
static atomic_bool connects_slowly, connects;

__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    if (atomic_exchange(&connects_slowly, false)) {
        atomic_store(&connects, true);
        usleep(300000);
    }
    return (int)syscall(SYS_connect, fd, address, size);
}

/* A thread makes the first call; the plug-in is opened when that thread does something slowly, or when it has not come to do so for long. */
static int open_plugin_beside(atomic_bool *slowly, const atomic_bool *does)
{
    enum { LOOKS = 100, LOOK_US = 5000 };
    pthread_t thread;
    alarm(20);
    atomic_store(slowly, true);
    if (pthread_create(&thread, NULL, call_first, NULL) != 0)
        return 2;
    for (int i = 0; i < LOOKS && !atomic_load(does); i++)
        usleep(LOOK_US);
    say("constructor: %d\n", open_plugin());
    return pthread_join(thread, NULL);
}

/*
 * Likewise, while that thread connects to a server, where there is one. Behind that it looks which compiler the program has, and for
 * libraries that compress.
 */
static int constructor_beside_connecting(void)
{
    say("compiler: %d\n", open_beside("process/libnvrtc.so") != NULL);
    if (setenv("REMOTE_GPU_COMPRESS", "auto", 1) != 0)
        return 2;
    return open_plugin_beside(&connects_slowly, &connects);
}

static atomic_bool looks_up_slowly, looks_up;

typedef int look_up_function(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* As where the C library has modules for names (nsswitch.conf), which it opens when it first needs them. */
__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port,
                                                       const struct addrinfo *hints, struct addrinfo **list)
{
    look_up_function *next = (look_up_function *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (atomic_exchange(&looks_up_slowly, false)) {
        atomic_store(&looks_up, true);
        usleep(300000);
        (void)dlopen("libresolv.so.2", RTLD_NOW);
    }
    return next(host, port, hints, list);
}

/* While that thread looks up where the server is. */
static int constructor_beside_look_up(void)
{
    return open_plugin_beside(&looks_up_slowly, &looks_up);
}

const struct scenario scenarios[] = {
    {"constructor_calls", constructor_calls},
    {"constructor_in_coroutine", constructor_in_coroutine},
    {"constructor_beside_first_call", constructor_beside_first_call},
    {"constructor_beside_connecting", constructor_beside_connecting},
    {"constructor_beside_look_up", constructor_beside_look_up},
    {"opened_by_threads", opened_by_threads},
    {"opened_in_namespaces", opened_in_namespaces},
    {NULL, NULL},
};
