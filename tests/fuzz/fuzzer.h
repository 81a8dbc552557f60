/*
 * fuzzer.h - what a fuzzer of this folder is made of.
 *
 * A fuzzer is one source file that defines LLVMFuzzerTestOneInput; libFuzzer calls it (preset fuzz), or replay.c
 * does with each file of its corpus (every other preset). It may define fuzz_seeds, which gives the inputs that
 * the format's own encoders make: `fuzz_NAME --seeds FOLDER` of a preset that replays writes them.
 *
 * A fuzzer must be deterministic, keep nothing between inputs that changes what the next one does, and return 0.
 */
#ifndef RG_TESTS_FUZZ_FUZZER_H
#define RG_TESTS_FUZZ_FUZZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define FUZZ_ASKS_SANITIZER
#endif
#endif

#define FUZZ_EXPORT __attribute__((visibility("default")))

FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/** Optional: before the first input. */
FUZZ_EXPORT int LLVMFuzzerInitialize(int *argc, char ***argv);
/** Optional: changes an input of `size` bytes in place, to one of at most `max_size`; returns its size. */
FUZZ_EXPORT size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
/** libFuzzer's own way of changing bytes, for custom mutators. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/** Optional: writes seeds by fuzz_seed. */
void fuzz_seeds(void);
/** Only while fuzz_seeds runs. `name`: of the file. */
void fuzz_seed(const char *name, const void *data, size_t size) __attribute__((weak)); /* replay.c has it */

/**
 * Whether the address sanitizer knows all of it to be there, so that it need not be touched for that: pages that nobody needs cost most of
 * the time. Memory that is nobody's, of which it knows nothing, is found by touching some.
 */
static inline bool fuzz_is_there(const void *data, size_t size)
{
#ifdef FUZZ_ASKS_SANITIZER
    return !__asan_region_is_poisoned((void *)(uintptr_t)data, size);
#else
    (void)data, (void)size;
    return false;
#endif
}

/**
 * Memory for `size` bytes, at most `most`, which is always the same: the last byte is the last of memory that was made once, so that a
 * sanitizer finds what is written behind it. Whoever uses it calls it with one `most` alone. One thread.
 */
static inline unsigned char *fuzz_room(size_t size, size_t most)
{
    static unsigned char *room;
    if (!room && !(room = (unsigned char *)malloc(most)))
        abort();
    return room + most - size;
}

enum { FUZZ_SOME = 4096, FUZZ_STRIDE = 64 << 10 };

/** Reads all of it (NULL: nothing), so that a sanitizer finds what is not there; much of it as fast as memory is. Any thread. */
static inline void fuzz_read(const void *data, size_t size)
{
    unsigned char bytes[FUZZ_SOME];
    const size_t stride = size > FUZZ_SOME && data && fuzz_is_there(data, size) ? FUZZ_STRIDE : FUZZ_SOME;
    for (size_t at = 0; data && at < size; at += stride) {
        memcpy(bytes, (const unsigned char *)data + at, size - at < sizeof bytes ? size - at : sizeof bytes);
        __asm__ volatile("" : : "r"(bytes) : "memory");
    }
}

/** Sets all of it to `value`, or some where it is known to be there. */
static inline void fuzz_fill(void *data, int value, size_t size)
{
    const size_t stride = size > FUZZ_SOME && data && fuzz_is_there(data, size) ? FUZZ_STRIDE : FUZZ_SOME;
    for (size_t at = 0; data && at < size; at += stride)
        memset((unsigned char *)data + at, value, size - at < FUZZ_SOME ? size - at : FUZZ_SOME);
}

#endif
