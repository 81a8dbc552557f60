/*
 * guest.h - which addresses are the kernels', where they are guarded (SOFTGPU_GUARD): those below 2^46. A
 * kernel's addresses are confined to them by leaving out the higher bits, so what was an address of the
 * process's own code, heap or stacks becomes one that nothing is mapped at. That holds as everything that a
 * process gets without asking for an address lies above (what is loaded, the heap, stacks, mmap), which is
 * looked at when the device starts; and as all that kernels may access is put below: device memory, shared and
 * .local memory, the heap of kernels, parameters.
 *
 * Page-locked memory that must be at an address above is mapped a second time, at what is left of its address.
 *
 * Not guarded, all of this is without effect.
 */
#ifndef SG_GUEST_H
#define SG_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_GUEST_BITS 46u
#define SG_GUEST_MASK ((UINT64_C(1) << SG_GUEST_BITS) - 1)
/**
 * Accesses may begin this far from an address that was confined, in either direction: a distance that is known
 * to be small is added afterwards. Nothing is mapped so far behind the end; what is before 0 is no address of
 * a process.
 */
#define SG_GUEST_SLACK (UINT64_C(1) << 40)

/** Whether kernels are guarded; decided once, by SOFTGPU_GUARD. Any thread. */
bool sg_guest_guarded(void);
/**
 * False if they should be and cannot be: something of the process's own is where kernels can reach. Told in
 * the log. sg_guest_map fails then.
 */
bool sg_guest_possible(void);
/** SG_GUEST_MASK if kernels are guarded, else all bits. Valid after sg_guest_guarded. */
extern uint64_t sg_guest_mask;
/** What a kernel gave as an address, confined. */
static inline void *sg_guest_pointer(const void *pointer)
{
    return (void *)((uintptr_t)pointer & sg_guest_mask); // NOLINT
}
/** Maps memory for kernels, zeroed, with no memory reserved; guarded, below 2^46. NULL: there is none. */
void *sg_guest_map(size_t size, int protection);
void sg_guest_unmap(void *memory, size_t size);
/** Sees to it that `*memory`, of `*capacity` bytes (NULL and 0 at first), has at least `size`: what was there is lost. False: there is none. */
bool sg_guest_reserve(unsigned char **memory, size_t *capacity, size_t size);
/**
 * Maps the shared memory at `address` (whole pages) where guarded kernels find it as well, if it is not there
 * already. False: with *taken, something else is there; else it is not shared memory.
 */
bool sg_guest_alias(uint64_t address, size_t size, bool *taken);
void sg_guest_unalias(uint64_t address, size_t size);

#endif
