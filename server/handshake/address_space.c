/*
 * address_space.c - see address_space.h. The closed addresses are a sorted list of spans, under one lock,
 * which is a leaf; system calls are made under it, so that a span is in the list if and only if it is mapped
 * without access.
 */
#include "server/handshake/address_space.h"

#include "common/base/addresses.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define FIRST        (1ull << 20) /* what is below the kernel refuses (vm.mmap_min_addr), or nobody wants */
#define STACK_MOST   (1ull << 30) /* that is left for the stack to grow into, whatever its limit */
#define STACK_LEAST  (64ull << 20)
#define THREAD_STACK (8ull << 20) /* where stacks have no limit */
#define LOOKS        4 /* at what is mapped: the heap may grow while it is noted, and other threads map something */

struct span {
    uint64_t start, end;
};

struct spans {
    struct span *at;
    size_t n, capacity;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool map_shared;

/* Shared memory is in no account of the kernel's (RLIMIT_DATA): private memory that nobody touches stands for it there. */
struct charge {
    struct charge *next;
    uint64_t start, size;
    void *memory;
};
static struct charge *charges;
static struct spans closed; /* by start, disjoint, not touching */

/* Room for one span more. */
static bool grow(struct spans *spans)
{
    if (spans->n < spans->capacity)
        return true;
    const size_t more = spans->capacity ? spans->capacity * 2 : 128;
    struct span *bigger = realloc(spans->at, more * sizeof *bigger);
    if (!bigger)
        return false;
    spans->at = bigger;
    spans->capacity = more;
    return true;
}

/* Index of the first span that ends behind `address`. */
static size_t ends_behind(const struct spans *spans, uint64_t address)
{
    size_t i = 0;
    while (i < spans->n && spans->at[i].end <= address)
        i++;
    return i;
}

/* Adds what no span touches but at its ends; false: no memory. */
static bool add(struct spans *spans, uint64_t start, uint64_t end)
{
    size_t i = ends_behind(spans, start);
    if (i > 0 && spans->at[i - 1].end == start) {
        spans->at[--i].end = end;
    } else {
        if (!grow(spans))
            return false;
        memmove(&spans->at[i + 1], &spans->at[i], (spans->n++ - i) * sizeof *spans->at);
        spans->at[i] = (struct span){start, end};
    }
    if (i + 1 < spans->n && spans->at[i + 1].start == end) {
        spans->at[i].end = spans->at[i + 1].end;
        memmove(&spans->at[i + 1], &spans->at[i + 2], (--spans->n - i - 1) * sizeof *spans->at);
    }
    return true;
}

/* Takes [start, end) out of the one span that holds it; false: none does, or there is no memory. */
static bool take(struct spans *spans, uint64_t start, uint64_t end)
{
    const size_t i = ends_behind(spans, start);
    if (i == spans->n || spans->at[i].start > start || spans->at[i].end < end || !grow(spans))
        return false;
    const struct span whole = spans->at[i];
    memmove(&spans->at[i], &spans->at[i + 1], (--spans->n - i) * sizeof *spans->at);
    if (whole.start < start)
        (void)add(spans, whole.start, start); /* there is room for both */
    if (end < whole.end)
        (void)add(spans, end, whole.end);
    return true;
}

/* What the process has mapped, and what its stack may grow into. */
static enum rg_status read_maps(struct spans *maps)
{
    struct rlimit stack;
    uint64_t grows = STACK_MOST, start, end;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < STACK_MOST)
        grows = stack.rlim_cur > STACK_LEAST ? stack.rlim_cur : STACK_LEAST;
    FILE *file = fopen("/proc/self/maps", "re");
    if (!file)
        return RG_ERR_IO;
    enum rg_status status = RG_OK;
    char line[4400]; /* a path, and what is before it */
    while (status == RG_OK && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) != 2)
            continue;
        if (strstr(line, "[stack]"))
            start = start > grows ? start - grows : 0;
        if (maps->n && start < maps->at[maps->n - 1].end)
            start = maps->at[maps->n - 1].end;
        if (start < end && !add(maps, start, end))
            status = RG_ERR_NO_MEMORY;
    }
    fclose(file);
    return status;
}

/* Closes [start, end), of which nothing is mapped; what is mapped meanwhile stays. The lock is held. */
static bool close_span(uint64_t start, uint64_t end)
{
    if (start >= end)
        return true;
    void *wanted = (void *)(uintptr_t)start;
    void *got = mmap(wanted, end - start, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted && add(&closed, start, end))
        return true;
    if (got != MAP_FAILED)
        munmap(got, end - start);
    return false;
}

/* Closes what is between the mappings, but for what stays open (two spans, by start). The lock is held. */
static bool close_gaps(const struct spans *maps, const struct span *open)
{
    bool good = true;
    uint64_t from = FIRST;
    for (size_t i = 0; i <= maps->n && from < RG_ADDRESS_END; i++) {
        const uint64_t to = i < maps->n && maps->at[i].start < RG_ADDRESS_END
                                ? maps->at[i].start
                                : RG_ADDRESS_END - RG_ADDRESS_PAGE;
        for (unsigned k = 0; k < 2; k++) {
            if (from < open[k].start)
                good &= close_span(from, to < open[k].start ? to : open[k].start);
            if (from < open[k].end)
                from = open[k].end;
        }
        good &= close_span(from, to);
        from = i < maps->n ? maps->at[i].end : RG_ADDRESS_END;
    }
    return good;
}

enum rg_status rg_address_space_close(uint64_t start, uint64_t size)
{
    struct span open[2] = {{RG_ADDRESS_LOW_START, RG_ADDRESS_LOW_END}, {start, start + size}};
    if (open[1].start < open[0].start) {
        const struct span low = open[0];
        open[0] = open[1];
        open[1] = low;
    }
    struct rlimit addresses;
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
        return RG_ERR_NO_MEMORY; /* they would all count, and none be left for the driver */
    struct spans maps = {0};
    bool good = false;
    enum rg_status status = RG_OK;
    pthread_mutex_lock(&lock);
    for (int look = 0; look < LOOKS && status == RG_OK && !good; look++) {
        maps.n = 0;
        status = read_maps(&maps);
        good = status == RG_OK && close_gaps(&maps, open);
    }
    pthread_mutex_unlock(&lock);
    free(maps.at);
    return status == RG_OK && !good ? RG_ERR_NO_MEMORY : status;
}

void rg_address_space_limit_stack(uint64_t limit)
{
    struct rlimit stack;
    pthread_attr_t threads;
    if (getrlimit(RLIMIT_STACK, &stack) == 0) {
        stack.rlim_cur = limit < stack.rlim_max ? limit : stack.rlim_max;
        (void)setrlimit(RLIMIT_STACK, &stack);
    }
    pthread_attr_init(&threads);
    (void)pthread_attr_setstacksize(&threads, limit > STACK_MOST ? THREAD_STACK : limit);
    (void)pthread_setattr_default_np(&threads);
    pthread_attr_destroy(&threads);
}

void rg_address_space_map_shared(void)
{
    map_shared = true;
}

/* The lock is held. */
static bool charge(uint64_t start, uint64_t size)
{
    struct charge *new = malloc(sizeof *new);
    if (!new)
        return false;
    *new = (struct charge){.next = charges, .start = start, .size = size};
    new->memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (new->memory == MAP_FAILED) {
        free(new);
        return false;
    }
    charges = new;
    return true;
}

/* The lock is held. */
static void discharge(uint64_t start)
{
    for (struct charge **at = &charges; *at; at = &(*at)->next)
        if ((*at)->start == start) {
            struct charge *gone = *at;
            *at = gone->next;
            munmap(gone->memory, gone->size);
            free(gone);
            return;
        }
}

void *rg_address_space_map(uint64_t start, uint64_t size)
{
    const bool shared = map_shared && start >= RG_ADDRESS_CONFINED_END;
    const int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE;
    void *wanted = (void *)(uintptr_t)start;
    pthread_mutex_lock(&lock);
    if (shared && !charge(start, size)) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
    }
    const bool was_closed = take(&closed, start, start + size);
    void *got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                     flags | (was_closed ? MAP_FIXED : MAP_FIXED_NOREPLACE), -1, 0);
    int error = errno;
    if (got == MAP_FAILED && was_closed)
        (void)add(&closed, start, start + size); /* it still is */
    if (got != wanted && shared)
        discharge(start);
    pthread_mutex_unlock(&lock);
    if (got != MAP_FAILED && got != wanted) { /* a kernel without MAP_FIXED_NOREPLACE took it as a hint */
        munmap(got, size);
        got = MAP_FAILED;
        error = EEXIST;
    }
    errno = error;
    return got == MAP_FAILED ? NULL : got;
}

void rg_address_space_unmap(uint64_t start, uint64_t size)
{
    void *memory = (void *)(uintptr_t)start;
    RG_SCOPED_LOCK(&lock);
    discharge(start);
    if (!closed.n)
        munmap(memory, size);
    else if (mmap(memory, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
                 MAP_FAILED ||
             !add(&closed, start, start + size))
        munmap(memory, size);
}
