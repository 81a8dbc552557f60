/*
 * mappings.c - page-locked memory that can be had at other addresses as well: a second mapping of a file's memory, and another process
 * that has mapped it. Both see what the device has written once that is done, or while it waits for them, and the device what they write.
 */
#include "scenario.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE };

static unsigned char *first, *second; /* two mappings of one memory; the first is page-locked */
static CUdeviceptr device;            /* the first, as the device knows it */

static int map_twice(void)
{
    const int file = (int)syscall(SYS_memfd_create, "mapped-twice", 0);
    if (file < 0 || ftruncate(file, SIZE) != 0)
        return 1;
    first = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    second = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return first == MAP_FAILED || second == MAP_FAILED;
}

static void lock_first(size_t from, size_t size)
{
    TRY(cuMemHostRegister_v2(first + from, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    TRY(cuMemHostGetDevicePointer_v2(&device, first + from, 0));
}

/* What the device finds at an offset. */
static int device_reads(size_t offset)
{
    CUdeviceptr copy;
    unsigned char value = 0;
    if (cuMemAlloc_v2(&copy, 1) != CUDA_SUCCESS ||
        cuMemcpyDtoD_v2(copy, device + offset, 1) != CUDA_SUCCESS ||
        cuMemcpyDtoH_v2(&value, copy, 1) != CUDA_SUCCESS || cuMemFree_v2(copy) != CUDA_SUCCESS)
        return -1;
    return value;
}

/* Rounds of writes by the device, the second mapping, the device again; no byte that another side has changed is lost. */
static int exchange(void)
{
    for (int round = 1; round <= 3; round++) {
        int bad = (int)cuMemsetD8_v2(device, (unsigned char)(10 * round), SIZE / 2);
        bad |= (int)cuCtxSynchronize();
        say("round %d: %d; seen: %d %d %d\n", round, bad, second[0], second[SIZE / 2 - 1], second[SIZE - 1]);
        second[1] = (unsigned char)(10 * round + 1);
        second[SIZE - 1] = (unsigned char)(10 * round + 2);
        say("by the device: %d %d %d\n", device_reads(0), device_reads(1), device_reads(SIZE - 1));
        say("by the first: %d %d\n", first[1], first[SIZE - 1]);
    }
    return 0;
}

static int second_mapping(void)
{
    if (map_twice() != 0)
        return 1;
    device_up();
    lock_first(0, SIZE);
    exchange();
    TRY(cuMemsetD8_v2(device, 77, SIZE));
    TRY(cuMemHostUnregister(first)); /* gives it back with what the device has written */
    say("afterwards: %d %d\n", first[5], second[SIZE - 5]);
    return 0;
}

/* The same of memory that begins and ends within pages. */
static int within_pages(void)
{
    if (map_twice() != 0)
        return 1;
    device_up();
    second[0] = second[SIZE - 1] = 3;
    lock_first(100, SIZE - 300);
    TRY(cuMemsetD8_v2(device, 9, SIZE - 300));
    TRY(cuCtxSynchronize());
    say("%d %d %d %d\n", second[99], second[100], second[SIZE - 201], second[SIZE - 200]);
    second[100] = 4;
    say("by the device: %d %d\n", device_reads(0), device_reads(1));
    TRY(cuMemHostUnregister(first + 100));
    say("%d %d\n", second[0], second[SIZE - 1]);
    return 0;
}

/* Whether a word comes to have a value within a minute. */
static int comes(const unsigned char *at, unsigned value)
{
    const _Atomic unsigned *word = (const _Atomic unsigned *)(const void *)at;
    for (int i = 0; i < 60000 && atomic_load(word) != value; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return atomic_load(word) == value;
}

/* A stream that has written data, and then a word, waits for the second mapping's answer. */
static int while_at_work(void)
{
    CUstream stream;
    if (map_twice() != 0)
        return 1;
    device_up();
    lock_first(0, SIZE);
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= 5; round++) {
        int bad = (int)cuMemsetD8Async(device + PAGE, (unsigned char)round, SIZE - PAGE, stream);
        bad |= (int)cuStreamWriteValue32_v2(stream, device, round, 0);
        bad |= (int)cuStreamWaitValue32_v2(stream, device + 4, round, CU_STREAM_WAIT_VALUE_EQ);
        bad |= (int)cuMemsetD8Async(device + 8, (unsigned char)round, 1, stream);
        const int came = comes(second, round);
        say("round %d: %d %d; with it: %d %d\n", (int)round, bad, came, second[PAGE], second[SIZE - 1]);
        atomic_store((_Atomic unsigned *)(void *)(second + 4), round);
        bad = (int)cuStreamSynchronize(stream);
        say("answered: %d %d\n", bad, second[8]);
    }
    return 0;
}

/* A child that was there before CUDA shares the memory. */
static int other_process(void)
{
    int to_child[2], to_parent[2];
    char word = 0;
    first = second = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED || pipe(to_child) != 0 || pipe(to_parent) != 0)
        return 1;
    const int pid = fork();
    if (pid == 0) {
        int good = read(to_child[0], &word, 1) == 1 && second[0] == 5 && second[SIZE - 1] == 5;
        second[PAGE] = 6;
        good = good && write(to_parent[1], &word, 1) == 1;
        _exit(good ? 0 : 1);
    }
    device_up();
    lock_first(0, SIZE);
    TRY(cuMemsetD8_v2(device, 5, SIZE));
    TRY(cuCtxSynchronize());
    const int told = write(to_child[1], &word, 1) == 1 && read(to_parent[0], &word, 1) == 1;
    say("told: %d; by the device: %d %d\n", told, device_reads(PAGE), device_reads(PAGE + 1));
    say_child("child", pid);
    return 0;
}

const struct scenario scenarios[] = {
    {"second_mapping", second_mapping},
    {"within_pages", within_pages},
    {"while_at_work", while_at_work},
    {"other_process", other_process},
    {NULL, NULL},
};
