/*
 * window.c - the window of addresses that device memory lies in. See internal.h.
 *
 * It is reserved with the first allocation: where SOFTGPU_WINDOW says, else at a fixed place, or among the process's libraries where that
 * is taken or the device behaves as NVIDIA's. What fails: no room for it, which is logged, and no memory is to be had.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/addresses.h"
#include "common/base/align.h"
#include "common/base/parse.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/range/internal.h"
#include "softgpu/guest.h"

/*
 * In a program of the thread sanitizer's, which lets nothing be mapped outside of its few windows of addresses (mmap then has
 * other addresses, or fails): in its low application window.
 */
#define SANITIZED_START 0x0000004000000000ull
#define SANITIZED_SIZE  (128ull << 30)
#define WINDOW_LEAST    (1ull << 30)
#define LIBRARY_WINDOW  (512ull << 30)

/* This process's: what is nobody else's in it. */
static _Atomic uint64_t window_first = RG_ADDRESS_WINDOW_START, window_size = RG_ADDRESS_WINDOW_SIZE;

/* There if the program, or this library, was built with the thread sanitizer. */
extern void __tsan_init(void) __attribute__((weak)); // NOLINT(bugprone-reserved-identifier)

void sg_window_advise(void *at, uint64_t size)
{
    madvise(at, size, MADV_DONTDUMP);
    madvise(at, size, MADV_DONTFORK);
}

bool sg_window_map_nothing(void *at, uint64_t size)
{
    if (mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
    sg_window_advise(at, size);
    return true;
}

/* SOFTGPU_WINDOW=START+BYTES: which addresses may be used, so that nobody else's are. */
static void choose_window(uint64_t *first, uint64_t *size)
{
    uint64_t wanted, bytes;
    int end = 0;
    const char *text = secure_getenv("SOFTGPU_WINDOW");
    *first = __tsan_init ? SANITIZED_START : RG_ADDRESS_WINDOW_START;
    *size = __tsan_init ? SANITIZED_SIZE : RG_ADDRESS_WINDOW_SIZE;
    if (!text || __tsan_init || sscanf(text, "0x%" SCNx64 "+0x%" SCNx64 "%n", &wanted, &bytes, &end) != 2 ||
        text[end] || wanted % SG_LARGE || bytes % SG_LARGE || bytes < WINDOW_LEAST ||
        wanted > UINT64_MAX - bytes)
        return;
    *first = wanted;
    *size = bytes;
}

/* Whether kernels can reach the window if they are guarded. */
static bool is_in_reach(uint64_t first, uint64_t size)
{
    const bool reached = !sg_guest_guarded() || (first <= SG_GUEST_MASK && size <= SG_GUEST_MASK + 1 - first);
    if (!reached)
        rg_error("device memory cannot be at %#" PRIx64
                 " (SOFTGPU_WINDOW): kernels, which are guarded, cannot reach it",
                 first);
    return reached;
}

/* Notes what has been reserved. */
static bool have_window(uint64_t start, uint64_t size)
{
    sg_window_advise((void *)(uintptr_t)start, size);
    /* Accesses slightly below a program's first allocation find memory, as on GPUs, where the driver's own lies there. */
    const uint64_t below =
        !sg_memory.guarded &&
                mmap((void *)(uintptr_t)start, SG_BLOCK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED
            ? SG_BLOCK
            : 0;
    sg_memory.start = sg_memory.cursor = start + below;
    sg_memory.middle = sg_memory.reserved_cursor = start + size / 2;
    sg_memory.end = start + size;
    atomic_store_explicit(&window_first, start, memory_order_relaxed);
    atomic_store_explicit(&window_size, size, memory_order_relaxed);
    return true;
}

/*
 * NVIDIA's driver takes addresses where the kernel finds room for them, among the libraries of the process.
 */
static bool reserve_among_libraries(void)
{
    void *at =
        mmap(NULL, LIBRARY_WINDOW + SG_LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED && have_window(rg_align_up((uintptr_t)at, SG_LARGE), LIBRARY_WINDOW);
}

bool sg_window_reserve(void)
{
    if (!sg_guest_possible())
        return false;
    sg_memory.guarded = rg_is_on(secure_getenv("SOFTGPU_REPORT"));
    if (sg_behaviour()->nvidia && !sg_guest_guarded() && reserve_among_libraries())
        return true;
    uint64_t first, whole;
    choose_window(&first, &whole);
    if (!is_in_reach(first, whole))
        return false;
    for (uint64_t size = whole; size >= WINDOW_LEAST; size = (size / 2) & ~(SG_LARGE - 1)) {
        for (uint64_t start = first; start + size <= first + whole; start += (whole / 8) & ~(SG_LARGE - 1)) {
            void *at = mmap((void *)(uintptr_t)start, size, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
            if (at == (void *)(uintptr_t)start)
                return have_window(start, size);
            if (at != MAP_FAILED) /* a kernel that takes the address as a hint */
                munmap(at, size);
        }
    }
    const int error = errno;
    if (!sg_guest_guarded() && !__tsan_init && !secure_getenv("SOFTGPU_WINDOW") && reserve_among_libraries())
        return true; /* the place is the program's, or another copy's of this library */
    rg_error("no address space for device memory: %s", strerror(error));
    return false;
}

bool sg_address_is_device(uint64_t address)
{
    const uint64_t first = atomic_load_explicit(&window_first, memory_order_relaxed);
    return address - first < atomic_load_explicit(&window_size, memory_order_relaxed);
}
