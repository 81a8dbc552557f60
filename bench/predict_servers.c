/*
 * predict_servers.c - programs with a GPU on each of two servers, whose predicted times over other links between these bench/predict
 * compares with measured ones.
 *
 *   predict_servers NAME       prints "seconds N", from before cuInit until all is freed; --list prints the names
 *
 * As in predict_programs.c, kernels last a given time. Results are checked; a wrong one is exit status 1.
 */
#include "nccl_program.h"
#include "timed_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, BUCKETS = 4, STEPS = 10, ROUNDS = 30 };
#define MIB    ((size_t)1 << 20)
#define BUCKET (4 * MIB)
#define ROWS   (2 * MIB)

static struct device {
    CUcontext context;
    CUstream stream, between; /* of kernels; of what goes to the other device */
    CUevent ready[BUCKETS], done;
    CUfunction kernel;
    CUdeviceptr counter, given, taken;
    ncclComm_t comm;
} devices[DEVICES];

static void make_current(const struct device *device)
{
    CHECK(cuCtxSetCurrent(device->context));
}

static void begin(size_t size)
{
    int n;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&n));
    if (n < DEVICES)
        fail("%d devices are too few: this takes two, of two servers (run -s A,B)", n);
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = &devices[i];
        CHECK(cuDevicePrimaryCtxRetain(&device->context, i));
        make_current(device);
        CHECK(cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamCreate(&device->between, CU_STREAM_NON_BLOCKING));
        for (int k = 0; k < BUCKETS; k++)
            CHECK(cuEventCreate(&device->ready[k], CU_EVENT_DISABLE_TIMING));
        CHECK(cuEventCreate(&device->done, CU_EVENT_DISABLE_TIMING));
        device->kernel = load_timed_kernel("last");
        CHECK(cuMemAlloc(&device->counter, sizeof(uint32_t)));
        CHECK(cuMemAlloc(&device->given, size));
        CHECK(cuMemAlloc(&device->taken, size));
        CHECK(cuMemsetD8(device->counter, 0, sizeof(uint32_t)));
    }
}

static void launch(const struct device *device, uint64_t us)
{
    make_current(device);
    launch_timed_kernel(device->kernel, us, device->counter, device->stream);
}

/* The stream `second` goes on when `first` has got here, which is of the same device. */
static void follow(const struct device *device, CUevent event, CUstream first, CUstream second)
{
    make_current(device);
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
}

static void finish(void)
{
    for (int i = 0; i < DEVICES; i++) {
        make_current(&devices[i]);
        CHECK(cuCtxSynchronize());
        CHECK(cuMemFree(devices[i].given));
        CHECK(cuMemFree(devices[i].taken));
        CHECK(cuMemFree(devices[i].counter));
    }
}

static void expect(const struct device *device, CUdeviceptr at, uint32_t wanted)
{
    uint32_t found = 0;
    make_current(device);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&found, at, sizeof found));
    if (found != wanted)
        fail("%u instead of %u", found, wanted);
}

/* --- the programs ------------------------------------------------------------------------------------------ */

/* A bucket of gradients of all devices is added up while the next one is computed. */
static void add_up(int bucket)
{
    const size_t count = BUCKET / sizeof(uint32_t);
    NCCL(ncclGroupStart());
    for (int i = 0; i < DEVICES; i++) {
        const CUdeviceptr given = devices[i].given + (size_t)bucket * BUCKET,
                          taken = devices[i].taken + (size_t)bucket * BUCKET;
        make_current(&devices[i]);
        NCCL(ncclAllReduce((const void *)(uintptr_t)given, (void *)(uintptr_t)taken, count, ncclUint32,
                           ncclSum, devices[i].comm, devices[i].between));
    }
    NCCL(ncclGroupEnd());
}

/* Steps of training, each with the same sums on all devices, and a result that the program reads. */
static void data_parallel(void)
{
    ncclComm_t comms[DEVICES];
    begin(BUCKETS * BUCKET);
    load_nccl();
    NCCL(ncclCommInitAll(comms, DEVICES, NULL));
    for (int i = 0; i < DEVICES; i++) {
        devices[i].comm = comms[i];
        make_current(&devices[i]);
        CHECK(cuMemsetD32(devices[i].given, (unsigned)i + 1, BUCKETS * BUCKET / sizeof(uint32_t)));
    }
    for (unsigned step = 1; step <= STEPS; step++) {
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            for (int i = 0; i < DEVICES; i++) {
                launch(&devices[i], 2000);
                follow(&devices[i], devices[i].ready[bucket], devices[i].stream, devices[i].between);
            }
            add_up(bucket);
        }
        for (int i = 0; i < DEVICES; i++) {
            follow(&devices[i], devices[i].done, devices[i].between, devices[i].stream);
            launch(&devices[i], 1000);
        }
        for (int i = 0; i < DEVICES; i++)
            expect(&devices[i], devices[i].counter, step * (BUCKETS + 1));
    }
    for (int i = 0; i < DEVICES; i++)
        expect(&devices[i], devices[i].taken + BUCKETS * BUCKET - sizeof(uint32_t), 3);
    for (int i = 0; i < DEVICES; i++)
        NCCL(ncclCommDestroy(comms[i]));
    finish();
}

/* Rounds of a simulation: each device gives the other one its outer rows, computes, and goes on when those of the other are there. */
static void halo(void)
{
    begin(ROWS);
    for (int i = 0; i < DEVICES; i++) {
        make_current(&devices[i]);
        CHECK(cuMemsetD32(devices[i].given, (unsigned)i + 1, ROWS / sizeof(uint32_t)));
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < DEVICES; i++) {
            struct device *from = &devices[i], *to = &devices[1 - i];
            follow(from, from->ready[0], from->stream, from->between);
            make_current(from);
            CHECK(cuMemcpyPeerAsync(to->taken, to->context, from->given, from->context, ROWS, from->between));
            launch(from, 3000);
        }
        for (int i = 0; i < DEVICES; i++) { /* the other one's rows came by its stream */
            make_current(&devices[i]);
            CHECK(cuEventRecord(devices[i].done, devices[i].between));
        }
        for (int i = 0; i < DEVICES; i++) {
            make_current(&devices[i]);
            CHECK(cuStreamWaitEvent(devices[i].stream, devices[1 - i].done, 0));
            launch(&devices[i], 500);
        }
        if (round % 10 == 0)
            for (int i = 0; i < DEVICES; i++)
                expect(&devices[i], devices[i].counter, (uint32_t)(2 * round));
    }
    for (int i = 0; i < DEVICES; i++)
        expect(&devices[i], devices[i].taken + ROWS - sizeof(uint32_t), (uint32_t)(2 - i));
    finish();
}

static const struct {
    const char *name;
    void (*run)(void);
} programs[] = {{"data_parallel", data_parallel}, {"halo", halo}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(argv[1], "--list") == 0)
            puts(programs[i].name);
        if (strcmp(argv[1], programs[i].name) != 0)
            continue;
        const uint64_t start = now_ns();
        programs[i].run();
        printf("seconds %.9f\n", (double)(now_ns() - start) / 1e9);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return 0;
    fprintf(stderr, "usage: predict_servers NAME | --list\n");
    return 2;
}
