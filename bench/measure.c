/* measure.c - see measure.h. */
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double clock_cost_ns(void)
{
    enum { TRIES = 1001, CALLS = 100 };
    static uint64_t cost[TRIES];
    for (int i = 0; i < TRIES; i++) {
        const uint64_t start = now_ns();
        for (int call = 1; call < CALLS; call++)
            (void)now_ns();
        cost[i] = now_ns() - start;
    }
    qsort(cost, TRIES, sizeof cost[0], compare_numbers);
    return (double)cost[TRIES / 2] / CALLS;
}

void samples_add(struct samples *samples, double value)
{
    if (samples->n < SAMPLES_MAX)
        samples->value[samples->n++] = value;
}

void samples_print(struct samples *samples, const char *name, const char *unit)
{
    printf("%s %s", name, unit);
    for (size_t i = 0; i < samples->n; i++)
        printf(" %.6g", samples->value[i]);
    printf("\n");
    fflush(stdout);
    samples->n = 0;
}

void fill_random(void *memory, size_t size, uint64_t seed)
{
    unsigned char *at = memory;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    while (size) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const size_t part = size < sizeof state ? size : sizeof state;
        memcpy(at, &state, part);
        at += part;
        size -= part;
    }
}

void *memory_of_pages(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory for %zu bytes", size);
    return memory;
}

struct arrival *shared_arrival(void)
{
    const char *path = getenv("BENCH_ARRIVAL");
    if (!path)
        return NULL;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct arrival)) != 0)
        fail("%s cannot be used", path);
    void *memory = mmap(NULL, sizeof(struct arrival), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        fail("%s cannot be mapped", path);
    return memory;
}

void arrival_note(struct arrival *arrival)
{
    atomic_store(&arrival->time_ns, now_ns());
    atomic_fetch_add(&arrival->count, 1);
}

uint64_t arrival_await(const struct arrival *arrival, uint64_t count)
{
    while (atomic_load(&arrival->count) == count)
        ;
    return atomic_load(&arrival->time_ns);
}

void compute_for(uint64_t ns)
{
    for (const uint64_t begin = now_ns(); now_ns() - begin < ns;)
        ;
}

void wait_for_end_of_input(void)
{
    char byte;
    printf("ready\n");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

bool receive(int fd, void *to, size_t size)
{
    unsigned char *at = to;
    while (size) {
        const ssize_t n = recv(fd, at, size, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}
