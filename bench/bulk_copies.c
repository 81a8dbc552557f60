/*
 * bulk_copies.c - copies of one size to the device and back, for bench/bulk; a program of the driver API.
 *
 *   bulk_copies BYTES pageable|pinned random|plain [TIMES]
 *
 * Each copy is waited for. Prints the shortest time of each way in seconds; every byte is compared. `plain` data can be
 * compressed to about a third.
 */
#include "measure.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        const CUresult check_result = (call);                                                                \
        if (check_result != CUDA_SUCCESS) {                                                                  \
            fprintf(stderr, "%s: error %d\n", #call, (int)check_result);                                     \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fill(unsigned char *memory, size_t size, int plain)
{
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at + 8 <= size; at += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const uint64_t word = plain ? state & 0xff0000ff0000 : state;
        memcpy(memory + at, &word, 8);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 64;
    const size_t size = strtoull(argv[1], NULL, 10);
    const int pinned = strcmp(argv[2], "pinned") == 0, times = argc > 4 ? atoi(argv[4]) : 3;
    CUdevice device;
    CUcontext context;
    CUdeviceptr there;
    void *from, *to;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&there, size));
    if (pinned) {
        CHECK(cuMemAllocHost(&from, size));
        CHECK(cuMemAllocHost(&to, size));
    } else if (!(from = malloc(size)) || !(to = malloc(size))) {
        return 1;
    }
    fill(from, size, strcmp(argv[3], "plain") == 0);
    memset(to, 0, size);
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < times; i++) {
        memcpy(from, &i, sizeof i);
        const double start = now();
        CHECK(pinned ? cuMemcpyHtoDAsync(there, from, size, NULL) : cuMemcpyHtoD(there, from, size));
        CHECK(cuCtxSynchronize());
        const double middle = now();
        CHECK(pinned ? cuMemcpyDtoHAsync(to, there, size, NULL) : cuMemcpyDtoH(to, there, size));
        CHECK(cuCtxSynchronize());
        const double end = now();
        if (memcmp(from, to, size) != 0) {
            fprintf(stderr, "bulk_copies: what came back is not what was sent\n");
            return 1;
        }
        best[0] = middle - start < best[0] ? middle - start : best[0];
        best[1] = end - middle < best[1] ? end - middle : best[1];
    }
    printf("%.6f %.6f\n", best[0], best[1]);
    return 0;
}
