/*
 * The addresses that a worker leaves to its driver: a window, and nothing else but what is mapped at the
 * client's own addresses.
 */
#include "server/handshake/address_space.h"
#include "common/base/addresses.h"

#include "tests/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define START 0x234500000000ull
#define SIZE  (64ull << 30)

static bool is_inside(const void *at, uint64_t size)
{
    const uint64_t start = (uint64_t)(uintptr_t)at;
    return start >= START && start + size <= START + SIZE;
}

/* The kernel has room in the window alone, as long as there is some. */
static void what_is_mapped_from_now_on(void)
{
    static const uint64_t sizes[] = {4096, 2ull << 20, 1ull << 30, 16ull << 30};
    for (int i = 0; i < 200; i++) {
        const uint64_t size = sizes[i % 4];
        void *hint = i % 2 ? NULL : (void *)(uintptr_t)(0x7f0000000000ull + (uint64_t)i * (1ull << 30));
        void *at = mmap(hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(at != MAP_FAILED && is_inside(at, size));
        if (size > 4096)
            CHECK(munmap(at, size) == 0);
    }
}

static void *on_a_thread(void *unused)
{
    (void)unused;
    char local[1 << 16];
    memset(local, 1, sizeof local);
    CHECK(is_inside(local, sizeof local));
    return malloc(10 << 20);
}

static void threads_and_heaps(void)
{
    pthread_t thread;
    void *memory[1000];
    CHECK(pthread_create(&thread, NULL, on_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, &memory[0]) == 0 && memory[0] != NULL);
    memset(memory[0], 1, 10 << 20);
    free(memory[0]);
    for (int i = 0; i < 1000; i++) {
        memory[i] = malloc((size_t)i * 100);
        CHECK(memory[i] != NULL);
        memset(memory[i], i, (size_t)i * 100);
    }
    for (int i = 0; i < 1000; i++)
        free(memory[i]);
}

/* The stack grows as far as its limit says. */
static int deep(int left)
{
    volatile char frame[4096];
    frame[0] = (char)left;
    return left ? deep(left - 1) + frame[0] - frame[0] : 0;
}

static void memory_of_the_client(void)
{
    const uint64_t at = 0x7f1234500000ull, size = 16ull << 20;
    for (int i = 0; i < 3; i++) {
        char *got = rg_address_space_map(at, size);
        CHECK((uint64_t)(uintptr_t)got == at);
        got[0] = got[size - 1] = 1;
        CHECK(rg_address_space_map(at + 4096, 4096) == NULL && errno == EEXIST);
        CHECK(rg_address_space_map(at - 4096, 8192) == NULL);
        /* its neighbours, and what is between two of them */
        CHECK(rg_address_space_map(at + size, 4096) != NULL &&
              rg_address_space_map(at + size + 8192, 4096) != NULL);
        CHECK(rg_address_space_map(at + size + 4096, 4096) != NULL);
        rg_address_space_unmap(at + size + 4096, 4096);
        rg_address_space_unmap(at + size, 4096);
        rg_address_space_unmap(at + size + 8192, 4096);
        rg_address_space_unmap(at, size);
        CHECK(mmap((void *)(uintptr_t)at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                   -1, 0) == MAP_FAILED); /* it is closed again */
        CHECK(rg_address_space_map(at, size) != NULL && ((char *)(uintptr_t)at)[0] == 0);
        rg_address_space_unmap(at, size);
    }
    CHECK(rg_address_space_map((uint64_t)(uintptr_t)&errno & ~4095ull, 4096) == NULL); /* the process's own */
}

/* With a heap whose end is near: what is noted while the addresses are looked at makes it grow. */
static void a_heap_that_grows(void)
{
    for (size_t left = 16384; left > 512; left -= 512) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            const uintptr_t page = (uintptr_t)sbrk(0);
            char *last = malloc(64);
            while ((uintptr_t)last + left < page)
                last = malloc(64);
            CHECK(rg_address_space_close(START, SIZE) == RG_OK);
            void *at = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            _exit(is_inside(at, 1 << 20) ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* Where addresses are limited none is closed: each would count. */
static void a_limit_of_addresses(void)
{
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {RG_ADDRESS_END, RG_ADDRESS_END}; /* far more than there is */
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        CHECK(rg_address_space_close(START, SIZE) == RG_ERR_NO_MEMORY);
        CHECK(mmap(NULL, 1ull << 35, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
              MAP_FAILED);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    a_limit_of_addresses();
    a_heap_that_grows();
    /* Before anything is closed it is as mmap says. */
    char *early = rg_address_space_map(0x7e1234500000ull, 4096);
    CHECK(early != NULL);
    rg_address_space_unmap(0x7e1234500000ull, 4096);

    CHECK(rg_address_space_close(START, SIZE) == RG_OK);
    what_is_mapped_from_now_on();
    threads_and_heaps();
    CHECK(deep(1000) == 0);
    memory_of_the_client();
    what_is_mapped_from_now_on();

    rg_address_space_limit_stack(1 << 20);
    struct rlimit stack;
    pthread_attr_t threads;
    size_t size;
    CHECK(getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur == 1 << 20);
    CHECK(pthread_getattr_default_np(&threads) == 0 && pthread_attr_getstacksize(&threads, &size) == 0 &&
          size == 1 << 20);
    return 0;
}
