/*
 * safe_copy.h - copies to and from memory that may not be there.
 *
 * Pointers that an application passed are the application's word: where a plain copy would kill the process
 * with SIGSEGV, these report how far they came. A call costs one system call; use memcpy for memory of one's
 * own.
 */
#ifndef RG_COMMON_BASE_SAFE_COPY_H
#define RG_COMMON_BASE_SAFE_COPY_H

#include <stdbool.h>
#include <stddef.h>

/** Copies from memory that may be unreadable into own memory. False: `from` cannot be read to its end. */
bool rg_safe_copy_from(void *to, const void *from, size_t size);
/** Copies from own memory into memory that may be unwritable. False: `to` cannot be written to its end. */
bool rg_safe_copy_to(void *to, const void *from, size_t size);

/**
 * Brings the pages of [memory, memory + size) in, for reading or `writing`, by one call and without any signal. False: some may not be accessed
 * so, or the kernel does not say (before Linux 5.14, and of memory of devices, such as a driver's page-locked memory may be).
 */
bool rg_memory_bring_in(const void *memory, size_t size, bool writing);
/**
 * Whether all of [memory, memory + size) can be read now, so that this process's own code may: what another thread
 * unmaps meanwhile kills it, as anywhere. Pages that are not there yet are brought in.
 */
bool rg_memory_is_readable(const void *memory, size_t size);
/** Whether it can be written. Part of what it holds may be overwritten: for memory whose contents are to be replaced. */
bool rg_memory_is_writable(void *memory, size_t size);

#endif
