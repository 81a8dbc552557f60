/*
 * frees.c - a program of several threads gives back memory and modules while the device may or may not have something to do.
 *
 * usage: frees waited      after it has waited for each of its streams, though not for the context
 *        frees destroyed   the same, but one stream was destroyed with a kernel in it
 *        frees busy        one stream has not been waited for
 *        frees exit        the same, and the module is unloaded when the process exits, as the CUDA runtime does
 */
#undef __CUDA_API_VERSION_INTERNAL /* names mean the newest versions, as in programs */
#include "tests/add_kernel.h"
#include "tests/ok.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 3, BLOCKS = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread, which might end what the device is at, for all that the client knows. */
static void *other(void *unused)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void launch(CUfunction function, CUstream stream, CUdeviceptr memory)
{
    unsigned n = 1;
    void *parameters[] = {&memory, &n};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static CUmodule module;

static void unload(void)
{
    OK(cuModuleUnload(module));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "waited";
    CUdevice device;
    CUstream streams[STREAMS];
    CUfunction function;
    CUdeviceptr memory[BLOCKS];
    pthread_t thread;
    const bool at_exit = strcmp(how, "exit") == 0;
    if (at_exit && atexit(unload) != 0)
        return 1;
    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, NULL, other, NULL) != 0)
        return 1;
    use_first_device();
    OK(cuDeviceGet(&device, 0));
    OK(cuModuleLoadData(&module, ADD_KERNEL));
    OK(cuModuleGetFunction(&function, module, "add"));
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemAlloc(&memory[i], 1000u * (unsigned)(i + 1)));
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    for (int i = 0; i < STREAMS; i++)
        launch(function, streams[i], memory[i]);
    if (strcmp(how, "destroyed") == 0)
        OK(cuStreamDestroy(streams[1]));
    for (int i = 0; i < STREAMS; i++)
        if (i != 1 || strcmp(how, "waited") == 0)
            OK(cuStreamSynchronize(streams[i]));
    launch(function, NULL, memory[0]);
    OK(cuStreamSynchronize(NULL));
    for (int i = 0; i < BLOCKS && !at_exit; i++)
        OK(cuMemFree(memory[i]));
    printf("%s\n", how);
    if (at_exit) { /* the other thread is still there */
        launch(function, streams[1], memory[0]);
        return 0;
    }
    unload();
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return 0;
}
