/* library.c - how programs open the driver's library. */
#include "scenario.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

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

const struct scenario scenarios[] = {
    {"opened_by_threads", opened_by_threads},
    {"opened_in_namespaces", opened_in_namespaces},
    {NULL, NULL},
};
