/*
 * floods.c - calls in long rows without one that waits: what the worker has to say about them must not fill the connection
 * while the program does nothing but send. Threads with small stacks do the same work as others. A thread that launches more than a
 * device has room for, into a stream that waits for another thread, holds up nothing that this one does before, and
 * nothing where it waits for its work by itself.
 *
 *   floods CALLS [gates|two-streams|streams]
 *
 * gates: also that thread, which takes more room than a device may have for a context; two-streams: only that, by turns into two streams;
 * streams: only that, by turns into eight, and after work that was done as fast as it was launched.
 */
#include "must.h"
#include "tests/add_kernel.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char ptx[] = ADD_KERNEL;

enum { ROW_MAX = 100000, SIZES = 1000, SMALL_STACK = 64 << 10, ROOM = 1024 /* launches of a stream */ };

static CUcontext context;
static CUfunction function;
static int row; /* so many calls */

static CUresult add(CUdeviceptr where, unsigned value, CUstream in)
{
    void *parameters[] = {&where, &value};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

/* More sizes than are made ready at a time, each of them again and again. */
static void allocate(void)
{
    static CUdeviceptr blocks[ROW_MAX];
    for (int i = 0; i < row; i++)
        CHECK(cuMemAlloc_v2(&blocks[i], 1 + (size_t)(i % SIZES)));
    for (int i = 0; i < row; i++)
        CHECK(cuMemFree_v2(blocks[i]));
    printf("allocated, freed\n");
}

static void copy(CUstream stream, CUdeviceptr memory)
{
    unsigned back = 0;
    for (unsigned i = 0; i < (unsigned)row; i++) {
        const unsigned value = i;
        CHECK(cuMemcpyHtoDAsync_v2(memory, &value, sizeof value, stream));
        CHECK(add(memory, 1, stream));
    }
    CHECK(cuMemcpyDtoHAsync_v2(&back, memory, sizeof back, stream));
    CHECK(cuStreamSynchronize(stream));
    printf("copied: %u\n", back);
}

static void ask(CUstream stream, CUdeviceptr memory)
{
    static CUevent events[ROW_MAX / 10];
    for (int i = 0; i < row / 10; i++) {
        CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
        CHECK(add(memory, 1, stream));
        CHECK(cuEventRecord(events[i], stream));
        const CUresult done = cuEventQuery(events[i]);
        if (done != CUDA_SUCCESS && done != CUDA_ERROR_NOT_READY)
            printf("a query: %d\n", (int)done);
    }
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < row / 10; i++)
        CHECK(cuEventDestroy_v2(events[i]));
    printf("asked\n");
}

static void *work_in_little(void *argument)
{
    CUdeviceptr memory, managed;
    unsigned back = 0;
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&memory, sizeof back));
    CHECK(cuMemsetD32_v2(memory, 1, 1));
    CHECK(add(memory, 2, NULL));
    CHECK(cuMemcpyDtoH_v2(&back, memory, sizeof back));
    CHECK(cuMemFree_v2(memory));
    CHECK(cuMemAllocManaged(&managed, sizeof back, CU_MEM_ATTACH_GLOBAL));
    unsigned *shared = (unsigned *)managed;
    *shared = 4;
    CHECK(add(managed, 5, NULL));
    CHECK(cuCtxSynchronize());
    printf("with a small stack: %u %u\n", back, *shared);
    CHECK(cuMemFree_v2(managed));
    return NULL;
}

static void start_with_little(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, SMALL_STACK) != 0 ||
        pthread_create(&thread, &attributes, work_in_little, NULL) != 0)
        exit(2);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

enum { STREAMS = 8, WARM = 100 * ROOM };

struct flood {
    CUstream streams[STREAMS]; /* by turns */
    int n, before;             /* so many launches go before it */
    CUdeviceptr gate;
    CUdeviceptr memory;
    CUevent event; /* other work goes with the launches */
    atomic_int launched;
};

static void *launch_many(void *argument)
{
    struct flood *flood = argument;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < flood->before; i++)
        CHECK(add(flood->memory, 1, flood->streams[0]));
    CHECK(cuStreamSynchronize(flood->streams[0]));
    for (int i = 0; i < flood->n; i++)
        CHECK(cuStreamWaitValue32_v2(flood->streams[i], flood->gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < 2 * ROOM * (flood->n + 1); i++) {
        CHECK(add(flood->memory, 1, flood->streams[i % flood->n]));
        if (flood->event && i % 3 == 0)
            CHECK(cuEventRecord(flood->event, flood->streams[0]));
        atomic_store(&flood->launched, i + 1);
    }
    return NULL;
}

/* Until the thread has launched as many as it can. */
static void let_it_fill(struct flood *flood)
{
    for (int before = -1, still = 0; still < 10;) {
        const int now = atomic_load(&flood->launched);
        still = now && now == before ? still + 1 : 0;
        before = now;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

/* What this thread does does not wait for what the other one's stream waits for, which is this thread. */
static void do_other_things(CUdeviceptr memory)
{
    size_t left, all;
    unsigned value = 7, back = 0;
    CUstream own;
    CUevent event;
    CHECK(cuMemGetInfo_v2(&left, &all));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemcpyHtoDAsync_v2(memory, &value, sizeof value, own));
    CHECK(add(memory, 1, own));
    CHECK(cuEventRecord(event, own));
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        ;
    CHECK(cuMemcpyDtoHAsync_v2(&back, memory, sizeof back, own));
    CHECK(cuStreamSynchronize(own));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(own));
    printf("beside a flood: %u\n", back);
}

static void flood_behind_a_gate(int n, int before, CUevent event)
{
    struct flood flood = {.n = n, .before = before, .event = event};
    CUdeviceptr other;
    pthread_t thread;
    unsigned sum = 0;
    CHECK(cuMemAlloc_v2(&flood.gate, sizeof(unsigned)));
    CHECK(cuMemAlloc_v2(&other, sizeof(unsigned)));
    CHECK(cuMemAlloc_v2(&flood.memory, sizeof(unsigned)));
    CHECK(cuMemsetD32_v2(flood.gate, 0, 1));
    CHECK(cuMemsetD32_v2(flood.memory, 0, 1));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < n; i++)
        CHECK(cuStreamCreate(&flood.streams[i], CU_STREAM_NON_BLOCKING));
    if (pthread_create(&thread, NULL, launch_many, &flood) != 0)
        exit(2);
    let_it_fill(&flood);
    do_other_things(other);
    CUstream opens;
    CHECK(cuStreamCreate(&opens, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamWriteValue32_v2(opens, flood.gate, 1, 0));
    pthread_join(thread, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&sum, flood.memory, sizeof sum));
    printf("launched by another thread: %u\n", sum);
    CHECK(cuStreamDestroy_v2(opens));
    for (int i = 0; i < n; i++)
        CHECK(cuStreamDestroy_v2(flood.streams[i]));
    CHECK(cuMemFree_v2(flood.gate));
    CHECK(cuMemFree_v2(other));
    CHECK(cuMemFree_v2(flood.memory));
}

static void *stay(void *argument)
{
    pthread_mutex_lock(argument);
    pthread_mutex_unlock(argument);
    return NULL;
}

/* Many more records of events than there is room for, between launches that are waited for. */
static void record_between_launches(CUstream stream, CUdeviceptr memory, CUevent event)
{
    pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
    pthread_t other;
    pthread_mutex_lock(&busy);
    if (pthread_create(&other, NULL, stay, &busy) != 0)
        exit(2);
    unsigned sum = 0;
    CHECK(cuMemsetD32_v2(memory, 0, 1));
    CHECK(cuCtxSynchronize()); /* which the stream is not behind by itself */
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < ROOM / 4; i++) {
            CHECK(add(memory, 1, stream));
            CHECK(cuStreamSynchronize(stream));
        }
        for (int i = 0; i < 2 * ROOM; i++)
            CHECK(cuEventRecord(event, stream));
    }
    CHECK(cuMemcpyDtoH_v2(&sum, memory, sizeof sum));
    printf("launched between records: %u\n", sum);
    pthread_mutex_unlock(&busy);
    pthread_join(other, NULL);
}

/* When the fault is told is the driver's affair; that it is told is not. */
static void fail(CUstream stream)
{
    for (int i = 0; i < row; i++)
        (void)add(0, 1, stream);
    printf("after a fault: %d\n", (int)cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    row = argc > 1 ? atoi(argv[1]) : 0;
    if (row <= 0 || row > ROW_MAX)
        return 2;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory;
    context = use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "add"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&memory, 4));
    const char *more = argc > 2 ? argv[2] : "";
    if (strcmp(more, "two-streams") == 0) {
        flood_behind_a_gate(2, 0, NULL);
        return 0;
    }
    if (strcmp(more, "streams") == 0) {
        flood_behind_a_gate(STREAMS, 0, NULL);
        flood_behind_a_gate(1, WARM, NULL);
        return 0;
    }
    start_with_little();
    allocate();
    copy(stream, memory);
    ask(stream, memory);
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (strcmp(more, "gates") == 0) {
        flood_behind_a_gate(1, 0, NULL);
        flood_behind_a_gate(1, 0, event);
    }
    record_between_launches(stream, memory, event);
    CHECK(cuEventDestroy_v2(event));
    fail(stream);
    return 0;
}
