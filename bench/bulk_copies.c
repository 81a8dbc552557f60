/*
 * bulk_copies.c - copies of one size to the device and back, for bench/bulk; a program of the driver API.
 *
 *   bulk_copies BYTES pageable|pinned random|plain [TIMES]
 *
 * Each copy is waited for. Prints the shortest time of each way in seconds; every byte is compared. `plain` data can be
 * compressed to about a third.
 */
#include "cuda_program.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    CUdeviceptr there;
    void *from, *to;
    use_first_device();
    CHECK(cuMemAlloc(&there, size));
    if (pinned) {
        CHECK(cuMemAllocHost(&from, size));
        CHECK(cuMemAllocHost(&to, size));
    } else if (!(from = malloc(size)) || !(to = malloc(size))) {
        return 1;
    }
    fill(from, size, strcmp(argv[3], "plain") == 0);
    memset(to, 0, size);
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
    for (int i = 0; i < times; i++) {
        memcpy(from, &i, sizeof i);
        const uint64_t start = now_ns();
        CHECK(pinned ? cuMemcpyHtoDAsync(there, from, size, NULL) : cuMemcpyHtoD(there, from, size));
        CHECK(cuCtxSynchronize());
        const uint64_t middle = now_ns();
        CHECK(pinned ? cuMemcpyDtoHAsync(to, there, size, NULL) : cuMemcpyDtoH(to, there, size));
        CHECK(cuCtxSynchronize());
        const uint64_t end = now_ns();
        if (memcmp(from, to, size) != 0)
            fail("bulk_copies: what came back is not what was sent");
        best[0] = middle - start < best[0] ? middle - start : best[0];
        best[1] = end - middle < best[1] ? end - middle : best[1];
    }
    printf("%.6f %.6f\n", (double)best[0] / 1e9, (double)best[1] / 1e9);
    return 0;
}
