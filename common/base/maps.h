/* maps.h - what the kernel says of this process's memory (/proc/self/maps). Any thread. */
#ifndef RG_COMMON_BASE_MAPS_H
#define RG_COMMON_BASE_MAPS_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Whether memory is mapped everywhere in a range and, if `writable`, may be written to by this process. True where the kernel
 * does not say: who is told false must be sure.
 */
bool rg_maps_allow(const void *start, size_t size, bool writable);
/**
 * Whether all of a range is mapped for reading and writing, and shared: others may have the same memory at other addresses. False where
 * the kernel does not say.
 */
bool rg_maps_shared(const void *start, size_t size);

#endif
