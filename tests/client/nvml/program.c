/*
 * program.c - a user of NVML for the tests.
 *
 *   nvml_program names            prints the list of functions: "served NAME", "asked NAME", "device NAME", …
 *   nvml_program threads LIBRARY  many threads start, ask and stop at once, and fork in between; prints "done"
 *   nvml_program inert LIBRARY    loads the library and reports what that changed: libraries, threads, descriptors
 */
#include "client/nvml/functions.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS  50

static void *library;
static _Atomic int faults;

#define LOOK_UP(name) ((__typeof__(name) *)dlsym(library, #name))

static void expect(int holds, const char *what, int result)
{
    if (holds)
        return;
    fprintf(stderr, "nvml_program: %s gave %d\n", what, result);
    atomic_fetch_add(&faults, 1);
}

static void ask(int with_memory)
{
    unsigned count = 0, index = 99;
    char name[96] = "", uuid[96] = "";
    rg_nvml_device device, again;
    struct rg_nvml_memory memory = {0};
    int result = LOOK_UP(nvmlDeviceGetCount_v2)(&count);
    expect(result == RG_NVML_SUCCESS && count == 2, "nvmlDeviceGetCount_v2", result);
    result = LOOK_UP(nvmlDeviceGetHandleByIndex_v2)(1, &device);
    expect(result == RG_NVML_SUCCESS, "nvmlDeviceGetHandleByIndex_v2", result);
    result = LOOK_UP(nvmlDeviceGetName)(device, name, sizeof name);
    expect(result == RG_NVML_SUCCESS && strncmp(name, "Fake GPU 1", 10) == 0, "nvmlDeviceGetName", result);
    result = LOOK_UP(nvmlDeviceGetUUID)(device, uuid, sizeof uuid);
    expect(result == RG_NVML_SUCCESS, "nvmlDeviceGetUUID", result);
    result = LOOK_UP(nvmlDeviceGetHandleByUUID)(uuid, &again);
    expect(result == RG_NVML_SUCCESS && again == device, "nvmlDeviceGetHandleByUUID", result);
    result = LOOK_UP(nvmlDeviceGetIndex)(device, &index);
    expect(result == RG_NVML_SUCCESS && index == 1, "nvmlDeviceGetIndex", result);
    if (!with_memory)
        return;
    result = LOOK_UP(nvmlDeviceGetMemoryInfo)(device, &memory);
    expect(result == RG_NVML_SUCCESS && memory.total == 2ull << 33 &&
               memory.used + memory.free == memory.total,
           "nvmlDeviceGetMemoryInfo", result);
}

static void fork_and_ask(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a lock that stayed behind would hold it for ever */
        atomic_store(&faults, 0);
        ask(1);
        _exit(atomic_load(&faults) ? 1 : 0);
    }
    int status = -1;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child's end", status);
}

static void *run(void *argument)
{
    size_t number = (size_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        int result = LOOK_UP(nvmlInit_v2)();
        expect(result == RG_NVML_SUCCESS, "nvmlInit_v2", result);
        ask(round % 5 == 0);
        if (number < 2 && round % 16 == 0)
            fork_and_ask();
        result = LOOK_UP(nvmlShutdown)();
        expect(result == RG_NVML_SUCCESS, "nvmlShutdown", result);
    }
    return NULL;
}

static int threads(void)
{
    pthread_t all[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&all[i], NULL, run, (void *)i) != 0)
            return 1;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    unsigned count;
    int result = LOOK_UP(nvmlDeviceGetCount_v2)(&count);
    expect(result == RG_NVML_UNINITIALIZED, "nvmlDeviceGetCount_v2 after all have stopped", result);
    puts(atomic_load(&faults) ? "faults" : "done");
    return atomic_load(&faults) ? 1 : 0;
}

static int entries(const char *folder)
{
    DIR *directory = opendir(folder);
    int n = 0;
    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

static int names(void)
{
#define SERVED(returns, name, parameters, arguments) puts("served " #name);
#define OLDER(name, served)                          puts("served " #name);
#define DEVICE(name)                                 puts("device " #name);
#define SYSTEM(name)                                 puts("system " #name);
#define ASKED(name, signature)                       puts("asked " #name);
#define REFUSED(name)                                puts("refused " #name);
#define REFUSED_SYSTEM(name)                         puts("refused-system " #name);
    RG_NVML_SERVED_FUNCTIONS(SERVED)
    RG_NVML_OLDER_NAMES(OLDER)
    RG_MANAGEMENT_QUESTIONS(ASKED)
    RG_NVML_UNSUPPORTED_FUNCTIONS(DEVICE, SYSTEM)
    RG_NVML_REFUSED_FUNCTIONS(REFUSED, REFUSED_SYSTEM)
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "names") == 0)
        return names();
    if (argc != 3)
        return 2;
    int descriptors = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
    library = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "nvml_program: %s\n", dlerror());
        return 2;
    }
    if (strcmp(argv[1], "threads") == 0)
        return threads();
    char core[4096];
    snprintf(core, sizeof core, "%.*s/client.so", (int)(strrchr(argv[2], '/') - argv[2]), argv[2]);
    int loaded = dlopen(core, RTLD_NOW | RTLD_NOLOAD) != NULL;
    printf("core %d, descriptors %d, tasks %d\n", loaded, entries("/proc/self/fd") - descriptors,
           entries("/proc/self/task") - tasks);
    /* the first call loads the core, and keeps it out of the application's scope */
    LOOK_UP(nvmlErrorString)(0);
    loaded = dlopen(core, RTLD_NOW | RTLD_NOLOAD) != NULL;
    printf("core %d, visible %d\n", loaded, dlsym(RTLD_DEFAULT, "rg_client_nvml_entry") != NULL);
    return 0;
}
