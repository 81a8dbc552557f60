/*
 * guest.c - see guest.h. Addresses for kernels' memory are taken front to back from regions in which Linux
 * puts nothing by itself, and asked for without replacing anything, so that whatever is there stays. Any
 * thread.
 */
#include "softgpu/guest.h"

#include "common/base/align.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE  UINT64_C(4096)
#define STEP  UINT64_C(65536) /* addresses begin at multiples of it … */
#define TRIES 4096            /* … and so many are tried */

/* Below the window of devices (common/base/addresses.h), and above what NVIDIA's driver takes. */
static const struct {
    uint64_t first, end;
} regions[] = {{0x00001c0000000000, 0x0000200000000000}, {0x0000020000000000, 0x0000040000000000}};
#define N_REGIONS (sizeof(regions) / sizeof(*regions))

uint64_t sg_guest_mask = UINT64_MAX;
static bool guarded, possible = true;
static _Atomic uint64_t cursors[N_REGIONS];

#if !defined(__SANITIZE_ADDRESS__)
static bool is_low(const void *pointer, const char *what)
{
    if ((uintptr_t)pointer >= SG_GUEST_MASK + 1 + SG_GUEST_SLACK)
        return false;
    rg_error("kernels cannot be guarded (SOFTGPU_GUARD): %s of this process is at %p, where they can reach; "
             "a limit on the size of stacks (ulimit -s unlimited) does that, and programs that are not "
             "position-independent",
             what, pointer);
    return true;
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            is_low((void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), "the code")) { // NOLINT
            *(bool *)found = true;
            return 1;
        }
    return 0;
}

/* Whether anything that the process got without asking for an address is where kernels can reach. */
static bool something_is_low(void)
{
    bool found = false;
    void *small = malloc(16), *map = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dl_iterate_phdr(look_at_object, &found);
    found = found || is_low(&found, "the stack") || (small && is_low(small, "the heap")) ||
            is_low(sbrk(0), "the heap") || (map != MAP_FAILED && is_low(map, "memory"));
    free(small);
    if (map != MAP_FAILED)
        munmap(map, PAGE);
    return found;
}
#else
static bool something_is_low(void)
{
    return false; /* the sanitizer's own memory is; tests run all the same */
}
#endif

static void decide(void)
{
    const char *text =
        getenv("SOFTGPU_GUARD"); /* with other rights than the user's, too: it takes away only */
    guarded = rg_is_on(text);
#if defined(__SANITIZE_THREAD__)
    guarded = false; /* it gives all addresses away itself */
#endif
    if (!guarded)
        return;
    sg_guest_mask = SG_GUEST_MASK;
    for (size_t i = 0; i < N_REGIONS; i++)
        atomic_store(&cursors[i], regions[i].first);
    void *behind = (void *)(uintptr_t)(SG_GUEST_MASK + 1); // NOLINT
    void *got = mmap(behind, SG_GUEST_SLACK, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != behind)
        rg_error("kernels cannot be guarded (SOFTGPU_GUARD): the addresses behind theirs, from %p on, are "
                 "not free: %s",
                 behind, strerror(errno));
    else
        madvise(behind, SG_GUEST_SLACK, MADV_DONTDUMP);
    possible = got == behind && !something_is_low();
}

bool sg_guest_guarded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, decide);
    return guarded;
}

bool sg_guest_possible(void)
{
    (void)sg_guest_guarded();
    return possible;
}

/* Maps at exactly this address; false if something is there, or there is no memory. */
static bool map_at(uint64_t address, size_t size, int protection)
{
    void *wanted = (void *)(uintptr_t)address; // NOLINT
    void *got = mmap(wanted, size, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != wanted)
        munmap(got, size);
    return got == wanted;
}

void *sg_guest_map(size_t size, int protection)
{
    if (!sg_guest_guarded()) {
        void *memory = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
    }
    const uint64_t whole = (size + STEP) & ~(STEP - 1); /* some of it stays unmapped */
    for (size_t i = 0; possible && i < N_REGIONS; i++) {
        for (int tries = 0; tries < TRIES && whole < regions[i].end - regions[i].first; tries++) {
            uint64_t at = atomic_fetch_add(&cursors[i], whole);
            if (at > regions[i].end - whole) {
                atomic_store(&cursors[i], regions[i].first);
                continue;
            }
            if (map_at(at, size, protection))
                return (void *)(uintptr_t)at; // NOLINT
            if (errno == ENOMEM)
                return NULL;
        }
    }
    return NULL;
}

void sg_guest_unmap(void *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}

bool sg_guest_reserve(unsigned char **memory, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    const size_t larger = rg_align_up(size, PAGE);
    unsigned char *map = sg_guest_map(larger, PROT_READ | PROT_WRITE);
    if (map == NULL)
        return false;
    sg_guest_unmap(*memory, *capacity);
    *memory = map;
    *capacity = larger;
    return true;
}

bool sg_guest_alias(uint64_t address, size_t size, bool *taken)
{
    const uint64_t there = address & SG_GUEST_MASK;
    *taken = false;
    if (!sg_guest_guarded() || there == address)
        return true;
    *taken = !possible || !map_at(there, size, PROT_NONE);
    if (*taken)
        return false;
    /* a size of 0: the pages are mapped once more, not moved; of private memory that is refused */
    if (mremap((void *)(uintptr_t)address, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, // NOLINT
               (void *)(uintptr_t)there) != MAP_FAILED)                            // NOLINT
        return true;
    munmap((void *)(uintptr_t)there, size); // NOLINT
    return false;
}

void sg_guest_unalias(uint64_t address, size_t size)
{
    const uint64_t there = address & SG_GUEST_MASK;
    if (sg_guest_guarded() && there != address)
        munmap((void *)(uintptr_t)there, size); // NOLINT
}
