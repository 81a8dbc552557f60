/*
 * cancelled.c - threads that are cancelled while they wait for the device, or for another thread's launch: a call that waits is no place
 * to end in. It ends when the device is there, then the thread does, and other threads can go on.
 */
#include "must.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { SIZE = 1 << 20, KERNELS = 1200 /* more than a stream has room for */ };

static const char code[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static CUcontext context;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;
static unsigned char host[SIZE];
static CUgraphExec graph;

static void CUDA_CB nap(void *unused)
{
    (void)unused;
    usleep(300000);
}

static void synchronize(void)
{
    CHECK(cuStreamSynchronize(stream));
}

static void await_event(void)
{
    CHECK(cuEventSynchronize(event));
}

static void copy(void)
{
    CHECK(cuMemcpyDtoHAsync_v2(host, memory, SIZE, stream));
}

static void wait_for_context(void)
{
    CHECK(cuCtxSynchronize());
}

static void launch(void)
{
    CHECK(cuGraphLaunch(graph, stream));
}

/* A graph whose launch waits until the stream has room. */
static void make_graph(void)
{
    CUmodule module;
    CUfunction nothing;
    CUgraph captured;
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < KERNELS; i++)
        CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuStreamEndCapture(stream, &captured));
    CHECK(cuGraphInstantiateWithFlags(&graph, captured, 0));
    CHECK(cuGraphDestroy(captured));
}

static void *wait_in(void *argument)
{
    CHECK(cuCtxSetCurrent(context));
    (*(void (**)(void))argument)();
    pthread_testcancel();
    return NULL;
}

int main(void)
{
    void (*const ways[])(void) = {synchronize, await_event, copy, wait_for_context, launch};
    context = use_first_device();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc_v2(&memory, SIZE));
    make_graph();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const bool launches = ways[i] == launch;
        pthread_t thread, first;
        void *result = NULL;
        CUdeviceptr more = 0;
        CHECK(cuLaunchHostFunc(stream, nap, NULL));
        CHECK(cuMemsetD8Async(memory, (unsigned char)(i + 1), SIZE, stream));
        CHECK(cuEventRecord(event, stream));
        if (launches && pthread_create(&first, NULL, wait_in, (void *)(uintptr_t)&ways[i]) != 0)
            return 1;
        usleep(launches ? 50000 : 0); /* most likely that one is inside of its launch now */
        if (pthread_create(&thread, NULL, wait_in, (void *)(uintptr_t)&ways[i]) != 0)
            return 1;
        usleep(100000); /* most likely it waits now */
        printf("way %zu: cancelled: %d", i, pthread_cancel(thread));
        printf(", joined: %d", pthread_join(thread, &result));
        printf(", by that: %d", result == PTHREAD_CANCELED);
        if (launches)
            printf(", the other: %d", pthread_join(first, NULL));
        printf(", allocated: %d", cuMemAlloc_v2(&more, SIZE));
        printf(", copied: %d", cuMemcpyDtoH_v2(host, memory, SIZE));
        printf(" %u", host[SIZE - 1]);
        printf(", freed: %d", cuMemFree_v2(more));
        printf(", done: %d\n", cuCtxSynchronize());
    }
    return 0;
}
