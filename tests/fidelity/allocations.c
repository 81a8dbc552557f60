/*
 * allocations.c - a transcript of allocations of many sizes, some of them again and again: what a client makes ready ahead of
 * its program, and what it remembers for the program's next start. The program's own heap is used all the while, so that a
 * client that writes where it must not is found out. Nothing that differs between two runs is printed; see run.py.
 */
#include "must.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIZES  24
#define ROUNDS 6
#define BYTES  600 /* of a block of the heap: about what a client's answers take */

static uint32_t *heap[SIZES][ROUNDS];

static size_t size_of(unsigned i)
{
    return 1000u + 3000u * i;
}

static uint32_t mark(unsigned i, unsigned round)
{
    return 0x5EED0000u + i * 64 + round;
}

/* Takes a block of the heap and fills it with a mark of its own. */
static void take(unsigned i, unsigned round)
{
    uint32_t *block = malloc(BYTES);
    if (!block)
        abort();
    for (unsigned word = 0; word < BYTES / sizeof *block; word++)
        block[word] = mark(i, round);
    heap[i][round] = block;
}

/* Whether a block is as it was filled; frees it. */
static int give_back(unsigned i, unsigned round)
{
    int good = 1;
    for (unsigned word = 0; word < BYTES / sizeof *heap[i][round]; word++)
        good &= heap[i][round][word] == mark(i, round);
    free(heap[i][round]);
    return good;
}

/* One allocation of each size, written and read; `keep` leaves them allocated. */
static void allocate_all(unsigned round, int keep)
{
    CUdeviceptr all[SIZES];
    for (unsigned i = 0; i < SIZES; i++) {
        take(i, round);
        CHECK(cuMemAlloc_v2(&all[i], size_of(i)));
        CHECK(cuMemsetD32_v2(all[i], mark(i, round), size_of(i) / 4));
    }
    for (unsigned i = 0; i < SIZES; i++) {
        uint32_t ends[2];
        CHECK(cuMemcpyDtoH_v2(&ends[0], all[i], 4));
        CHECK(cuMemcpyDtoH_v2(&ends[1], all[i] + size_of(i) - 4, 4));
        printf("%zu bytes: %08x %08x\n", size_of(i), ends[0], ends[1]);
        if (!keep)
            CHECK(cuMemFree_v2(all[i]));
    }
}

int main(void)
{
    use_first_device();
    for (unsigned round = 0; round < ROUNDS; round++)
        allocate_all(round, round % 2);
    unsigned good = 0;
    for (unsigned i = 0; i < SIZES; i++)
        for (unsigned round = 0; round < ROUNDS; round++)
            good += give_back(i, round);
    printf("heap: %u of %d\n", good, SIZES * ROUNDS);
    return 0;
}
