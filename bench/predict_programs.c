/*
 * predict_programs.c - programs of different kinds, whose predicted times bench/predict compares with measured ones.
 *
 *   predict_programs NAME      prints "seconds N", from before cuInit until all is freed; --list prints the names
 *
 * The device's work is kernels that last a given time and use hardly any processor: the software device and the programs
 * share one machine, and what is predicted is the network. Results are checked; a wrong one is exit status 1.
 */
#include "timed_kernel.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUfunction kernel;
static CUdeviceptr counters; /* one for each stream or thread */

static void begin(void)
{
    use_first_device();
    CHECK(cuCtxGetCurrent(&context));
    kernel = load_timed_kernel("last");
    CHECK(cuMemAlloc(&counters, 4096));
    CHECK(cuMemsetD8(counters, 0, 4096));
}

static void launch(uint64_t us, unsigned counter, CUstream stream)
{
    launch_timed_kernel(kernel, us, counters + counter * sizeof(uint32_t), stream);
}

static uint32_t count(unsigned counter)
{
    uint32_t value = 0;
    CHECK(cuMemcpyDtoH(&value, counters + counter * sizeof value, sizeof value));
    return value;
}

static void expect(uint64_t found, uint64_t wanted)
{
    if (found == wanted)
        return;
    fprintf(stderr, "%llu instead of %llu\n", (unsigned long long)found, (unsigned long long)wanted);
    exit(1);
}

/* The program's own work. */
static void compute_on_host(uint64_t us)
{
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)(us * 1000);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

/* --- the programs ------------------------------------------------------------------------------------------ */

/* Long kernels, and a wait now and then. */
static void computing(void)
{
    for (unsigned i = 0; i < 40; i++) {
        launch(10000, 0, NULL);
        if (i % 10 == 9)
            CHECK(cuCtxSynchronize());
    }
    expect(count(0), 40);
}

/* One result for each launch. */
static void chatty(void)
{
    for (unsigned i = 1; i <= 300; i++) {
        launch(500, 0, NULL);
        expect(count(0), i);
        compute_on_host(100);
    }
}

/* Large copies of pageable memory. */
static void pageable(void)
{
    const size_t size = 8 * MIB;
    unsigned char *memory = malloc(size);
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, size));
    for (unsigned i = 0; i < 12; i++) {
        memset(memory, (int)i + 1, size);
        CHECK(cuMemcpyHtoD(device, memory, size));
        launch(3000, 0, NULL);
        memset(memory, 0, size);
        CHECK(cuMemcpyDtoH(memory, device, size));
        expect(memory[size - 1], i + 1);
    }
    CHECK(cuMemFree(device));
    free(memory);
}

/* Copies of pinned memory in two streams, with kernels between. */
static void pinned(void)
{
    const size_t size = 4 * MIB;
    unsigned char *memory[2];
    CUdeviceptr device[2];
    CUstream streams[2];
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cuMemHostAlloc((void **)&memory[i], size, 0));
        memset(memory[i], (int)i + 1, size);
        CHECK(cuMemAlloc(&device[i], size));
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (unsigned i = 0; i < 24; i++) {
        const unsigned k = i % 2;
        CHECK(cuMemcpyHtoDAsync(device[k], memory[k], size, streams[k]));
        launch(3000, k, streams[k]);
        CHECK(cuMemcpyDtoHAsync(memory[k], device[k], size, streams[k]));
        if (k == 1)
            for (unsigned j = 0; j < 2; j++) {
                CHECK(cuStreamSynchronize(streams[j]));
                expect(memory[j][size - 1], j + 1);
            }
    }
}

static void *thread_main(void *argument)
{
    const unsigned number = *(unsigned *)argument;
    CUstream stream;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 60; i++) {
        launch(2000, number, stream);
        CHECK(cuStreamSynchronize(stream));
        compute_on_host(50);
    }
    CHECK(cuStreamDestroy(stream));
    return NULL;
}

/* Threads with a stream each, which all wait often. */
static void threads(void)
{
    enum { N = 4 };
    pthread_t ids[N];
    unsigned numbers[N];
    for (unsigned i = 0; i < N; i++) {
        numbers[i] = i;
        if (pthread_create(&ids[i], NULL, thread_main, &numbers[i]) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < N; i++)
        pthread_join(ids[i], NULL);
    for (unsigned i = 0; i < N; i++)
        expect(count(i), 60);
}

/* Streams that wait for one another by events, and a host that asks for events. */
static void events(void)
{
    enum { N = 3, ROUNDS = 30 };
    CUstream streams[N];
    CUevent done[N];
    for (unsigned i = 0; i < N; i++) {
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < N; i++) {
            if (i > 0)
                CHECK(cuStreamWaitEvent(streams[i], done[i - 1], 0));
            launch(2000, i, streams[i]);
            CHECK(cuEventRecord(done[i], streams[i]));
        }
        if (round % 3 == 0) {
            CUresult status;
            while ((status = cuEventQuery(done[N - 1])) == CUDA_ERROR_NOT_READY)
                compute_on_host(20);
            CHECK(status);
        } else if (round % 3 == 1) {
            CHECK(cuEventSynchronize(done[N - 1]));
        }
    }
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < N; i++)
        expect(count(i), ROUNDS);
}

/* Many modules, of which each is used once. */
static void modules(void)
{
    for (unsigned i = 0; i < 60; i++) {
        char name[32];
        CUfunction function;
        snprintf(name, sizeof name, "last_%u", i);
        function = load_timed_kernel(name);
        int registers;
        CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
        kernel = function;
        launch(1000, 0, NULL);
    }
    expect(count(0), 60);
}

/* Steps of 300 short launches with one result, as training has them. */
static void training(void)
{
    const size_t size = MIB;
    float *batch = calloc(1, size);
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, size));
    for (unsigned step = 1; step <= 8; step++) {
        CHECK(cuMemcpyHtoD(device, batch, size));
        for (unsigned i = 0; i < 300; i++)
            launch(100, 0, NULL);
        expect(count(0), 300 * step);
        compute_on_host(2000);
    }
    free(batch);
}

static const struct {
    const char *name;
    void (*run)(void);
} programs[] = {{"computing", computing}, {"chatty", chatty}, {"pageable", pageable}, {"pinned", pinned},
                {"threads", threads},     {"events", events}, {"modules", modules},   {"training", training}};
#define N_PROGRAMS (sizeof programs / sizeof *programs)

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < N_PROGRAMS; i++) {
        if (strcmp(argv[1], "--list") == 0)
            puts(programs[i].name);
        if (strcmp(argv[1], programs[i].name) != 0)
            continue;
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        begin();
        programs[i].run();
        CHECK(cuMemFree(counters));
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("seconds %.9f\n",
               (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return 0;
    fprintf(stderr, "usage: predict_programs NAME | --list\n");
    return 2;
}
