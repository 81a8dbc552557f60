/*
 * fiber.c - stacks and fibers, made in batches and kept in the slot for ever after.
 *
 * A batch is one mapping: under each stack lies a guard that faults, so an overflow is told from other bad
 * addresses. Guards cost no mapping of their own where the kernel has guard regions (Linux 6.13); elsewhere
 * they are made with mprotect, which splits the mapping, and only so many that the process keeps room for its
 * own mappings. Where kernels are guarded, no stack of the processor's is without: what lies below it is another's, with
 * return addresses. The tops of the stacks are offset by a few hundred bytes each ("coloured"), or the hot frames
 * of all fibers would compete for the same lines of the first-level cache.
 *
 * Memory that runs out makes sg_fiber_acquire return NULL. Slot's thread only.
 */
#include "softgpu/exec/fiber/fiber.h"
#include "common/base/clock.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define BATCH_BYTES  (4u << 20) /* of one mapping, unless one stack is larger */
#define BATCH_FIBERS 32u
#define COLOURS      21u
#define COLOUR_STEP  192u
#define TRIM_CLASS   3u            /* stacks of 512 KiB and more do not keep their memory after a grid … */
#define KEEP_BYTES   SG_STACK_BASE /* … but for the top, where a parked fiber's frames lie */
#define TRIM_NS                                                                                              \
    1000000u /* … and unless they gave it back so shortly before: it costs as much as a short kernel */
#define GUARDS_MAX  12000 /* made with mprotect: two mappings each, of 65530 that Linux allows by default … */
#define GUARDS_MOST 24000 /* … and that there must be, if kernels are guarded */

/** Makes [address, address + SG_STACK_GUARD) fault; false where that would take too many mappings. */
static bool install_guard(unsigned char *address, int most)
{
    static _Atomic bool no_guard_regions;
    static _Atomic int n_guards;

    if (!atomic_load_explicit(&no_guard_regions, memory_order_relaxed)) {
        if (madvise(address, SG_STACK_GUARD, MADV_GUARD_INSTALL) == 0)
            return true;
        atomic_store_explicit(&no_guard_regions, true, memory_order_relaxed);
    }
    if (atomic_load_explicit(&n_guards, memory_order_relaxed) >= most)
        return false;
    atomic_fetch_add_explicit(&n_guards, 1, memory_order_relaxed);
    return mprotect(address, SG_STACK_GUARD, PROT_NONE) == 0;
}

/** Guards below `count` stacks, `stride` bytes apart, and behind the last; false if one is lacking. */
static bool guard_all(unsigned char *map, size_t count, size_t stride, int most)
{
    bool all = true;
    for (size_t i = 0; i <= count; i++)
        all = install_guard(map + i * stride, most) && all;
    return all;
}

unsigned sg_stack_class(uint64_t size)
{
    unsigned stack_class = 0;
    while (stack_class < SG_STACK_CLASSES && ((uint64_t)SG_STACK_BASE << stack_class) < size)
        stack_class++;
    return stack_class;
}

/** (Re)sets a fiber to begin at the slot's fiber_main when next switched to. */
static void reset(const struct sg_slot *slot, struct sg_fiber *fiber)
{
    fiber->in_thread = false;
    fiber->run = NULL;
    fiber->local.top = fiber->local.high;
    sg_sanitize_reset(&fiber->sanitize, fiber->stack, fiber->stack_size);
    sg_fiber_context_make(&fiber->context, fiber->stack, fiber->stack_size, slot->fiber_main, fiber);
}

void sg_fiber_park(struct sg_slot *slot, struct sg_fiber *fiber)
{
    fiber->next = slot->fibers[fiber->stack_class];
    slot->fibers[fiber->stack_class] = fiber;
}

/** Maps a batch of stacks of the class and parks their fibers. Behind the last one is a guard as well. */
static bool make_batch(struct sg_slot *slot, unsigned stack_class)
{
    size_t size = (size_t)SG_STACK_BASE << stack_class;
    size_t stride = size + SG_STACK_GUARD;
    size_t count = BATCH_BYTES / stride;
    count = count < 1 ? 1 : count > BATCH_FIBERS ? BATCH_FIBERS : count;

    struct sg_fiber *fibers = aligned_alloc(64, count * sizeof(*fibers));
    if (!fibers)
        return false;
    memset(fibers, 0, count * sizeof(*fibers));
    unsigned char *map = mmap(NULL, count * stride + SG_STACK_GUARD, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        free(fibers);
        return false;
    }
    unsigned char *local = NULL;
    const bool guarded = sg_guest_guarded();
    if (guarded)
        local = sg_guest_map(count * stride + SG_STACK_GUARD, PROT_READ | PROT_WRITE);
    if ((guarded && !local) ||
        (!guard_all(map, count, stride, guarded ? GUARDS_MOST : GUARDS_MAX) && guarded)) {
        sg_guest_unmap(local, count * stride + SG_STACK_GUARD);
        munmap(map, count * stride + SG_STACK_GUARD);
        free(fibers);
        return false;
    }
    if (local) /* what is beyond is the kernels' as well: without guards, they spoil it */
        (void)guard_all(local, count, stride, GUARDS_MAX);
    for (size_t i = count; i-- > 0;) {
        struct sg_fiber *fiber = &fibers[i];
        fiber->stack = map + i * stride + SG_STACK_GUARD;
        fiber->stack_size = size - (slot->n_fibers++ % COLOURS) * COLOUR_STEP;
        fiber->stack_class = (uint8_t)stack_class;
        fiber->local.low = local ? (uintptr_t)local + i * stride + SG_STACK_GUARD : (uintptr_t)fiber->stack;
        fiber->local.high = fiber->local.low + (fiber->stack_size & ~(size_t)63);
        reset(slot, fiber);
        sg_fiber_park(slot, fiber);
    }
    return true;
}

struct sg_fiber *sg_fiber_acquire(struct sg_slot *slot, unsigned stack_class)
{
    struct sg_fiber *fiber = slot->fibers[stack_class];
    if (sg_unlikely(!fiber)) {
        if (!make_batch(slot, stack_class))
            return NULL;
        fiber = slot->fibers[stack_class];
    }
    slot->fibers[stack_class] = fiber->next;
    return fiber;
}

void sg_fiber_abandon(struct sg_slot *slot, struct sg_fiber *fiber)
{
    reset(slot, fiber);
    sg_fiber_park(slot, fiber);
}

void sg_fiber_trim(struct sg_slot *slot, unsigned stack_class)
{
    if (stack_class < TRIM_CLASS)
        return;
    const uint64_t now = rg_now_ns();
    if (now - slot->trimmed_at[stack_class] < TRIM_NS)
        return;
    slot->trimmed_at[stack_class] = now;
    const size_t size = ((size_t)SG_STACK_BASE << stack_class) - KEEP_BYTES;
    for (const struct sg_fiber *fiber = slot->fibers[stack_class]; fiber; fiber = fiber->next) {
        madvise(fiber->stack, size, MADV_DONTNEED);
        if (fiber->local.low != (uintptr_t)fiber->stack)
            madvise((void *)(uintptr_t)fiber->local.low, size, MADV_DONTNEED); // NOLINT
    }
}
