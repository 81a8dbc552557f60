/*
 * blocks.c - large pieces of memory that are used again: the address sanitizer maps each anew, and the shadow that it has of it, which takes
 * longer than all that most inputs do. Linked in the place of malloc, calloc, realloc, posix_memalign and free (rg_fuzzer, with RG_FUZZ).
 *
 * A piece is one of the sanitizer's, of a size rounded up, and begins with a page; what is behind its end is poisoned, and all of it once it
 * is freed, until as many of its size were freed after it as rest. Of a mistake that is found in one the report says where a piece was
 * first made, not where last. Who frees it otherwise, as a library does, frees it for good. Any thread.
 */
#include "common/sync/scoped_lock.h"
#include "tests/fuzz/fuzzer.h"

#include <errno.h>
#include <pthread.h>
#include <sanitizer/allocator_interface.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    LEAST = 120 << 10, /* what is smaller is quick */
    RESTING = 4,       /* of a kind, so many are not used again yet */
    KEPT = 8,
    FILLED = 4096, /* of new memory, as the sanitizer does it, and with what */
    FILLING = 0xbe,
    MANY = 256 << 10 /* zeros: those of pages that are touched the kernel makes faster than all are written */
};

/* Bytes of pieces, their tails among them. */
static const size_t sizes[] = {128 << 10, 192 << 10, 256 << 10, 320 << 10,        384 << 10,       512 << 10,
                               768 << 10, 1 << 20,   3 << 19,   (2 << 20) + PAGE, (4 << 20) + PAGE};
enum { KINDS = sizeof sizes / sizeof *sizes };

/* At the end of a piece, where nobody else looks. */
struct tail {
    uint64_t magic, size;
};
#define MAGIC 0x626c6f636b73u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `kept` */
static struct {
    unsigned char *blocks[KEPT];
    unsigned first, n;
} kept[KINDS];
static atomic_uintptr_t lowest = UINTPTR_MAX,
                        highest; /* where pieces are, so that others are told from them at once */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void __wrap_free(void *memory);

/* KINDS: it is no large one. */
static unsigned kind_of(size_t size)
{
    unsigned kind = 0;
    while (kind < KINDS && sizes[kind] - sizeof(struct tail) < size)
        kind++;
    return size < LEAST ? KINDS : kind;
}

static struct tail *tail_of(unsigned char *block, unsigned kind)
{
    return (struct tail *)(void *)(block + sizes[kind]) - 1;
}

__attribute__((no_sanitize("address"))) static void set_tail(unsigned char *block, unsigned kind, size_t size)
{
    struct tail *tail = tail_of(block, kind);
    tail->magic = MAGIC;
    tail->size = size;
}

/* The kind of a piece that is in use, and its size; KINDS: it is none. */
__attribute__((no_sanitize("address"))) static unsigned kind_at(unsigned char *block, size_t *size)
{
    if ((uintptr_t)block < atomic_load(&lowest) || (uintptr_t)block > atomic_load(&highest))
        return KINDS;
    const size_t all = __sanitizer_get_allocated_size(block);
    unsigned kind = 0;
    while (kind < KINDS && sizes[kind] != all)
        kind++;
    if (kind == KINDS || tail_of(block, kind)->magic != MAGIC)
        return KINDS;
    *size = tail_of(block, kind)->size;
    return kind;
}

static void note_address(uintptr_t at)
{
    uintptr_t known = atomic_load(&lowest);
    while (at < known && !atomic_compare_exchange_weak(&lowest, &known, at))
        ;
    known = atomic_load(&highest);
    while (at > known && !atomic_compare_exchange_weak(&highest, &known, at))
        ;
}

static unsigned char *take_kept(unsigned kind)
{
    RG_SCOPED_LOCK(&lock);
    if (kept[kind].n <= RESTING)
        return NULL;
    kept[kind].n--;
    return kept[kind].blocks[kept[kind].first++ % KEPT];
}

/* Returns the one that must go for it, or NULL. */
static unsigned char *keep(unsigned char *block, unsigned kind)
{
    RG_SCOPED_LOCK(&lock);
    unsigned char *oldest = NULL;
    if (kept[kind].n == KEPT) {
        oldest = kept[kind].blocks[kept[kind].first++ % KEPT];
        kept[kind].n--;
    }
    kept[kind].blocks[(kept[kind].first + kept[kind].n++) % KEPT] = block;
    return oldest;
}

static unsigned char *take(unsigned kind, size_t size)
{
    unsigned char *block = take_kept(kind);
    if (!block) {
        void *made;
        if (__real_posix_memalign(&made, PAGE, sizes[kind]) != 0)
            return NULL;
        block = made;
        note_address((uintptr_t)block);
        __asan_poison_memory_region(block, sizes[kind]);
    }
    set_tail(block, kind, size);
    __asan_unpoison_memory_region(block, size);
    return block;
}

void *__wrap_malloc(size_t size)
{
    const unsigned kind = kind_of(size);
    if (kind == KINDS)
        return __real_malloc(size);
    unsigned char *block = take(kind, size);
    if (block)
        memset(block, FILLING, FILLED);
    return block;
}

static void clear(unsigned char *block, size_t size)
{
    size_t pages = size < MANY ? 0 : size & ~(size_t)(PAGE - 1);
    if (pages && madvise(block, pages, MADV_DONTNEED) != 0)
        pages = 0;
    memset(block + pages, 0, size - pages);
}

void *__wrap_calloc(size_t n, size_t size)
{
    size_t all;
    const unsigned kind = __builtin_mul_overflow(n, size, &all) ? KINDS : kind_of(all);
    if (kind == KINDS)
        return __real_calloc(n, size);
    unsigned char *block = take(kind, all);
    if (block)
        clear(block, all);
    return block;
}

void *__wrap_realloc(void *memory, size_t size)
{
    size_t before = 0;
    const bool ours = memory && kind_at(memory, &before) != KINDS;
    if (!memory)
        return __wrap_malloc(size);
    if (!size) {
        __wrap_free(memory);
        return NULL;
    }
    if (!ours && kind_of(size) == KINDS)
        return __real_realloc(memory, size);
    if (!ours)
        before = __sanitizer_get_allocated_size(memory);
    void *moved = __wrap_malloc(size);
    if (moved) {
        memcpy(moved, memory, before < size ? before : size);
        __wrap_free(memory);
    }
    return moved;
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment > PAGE || kind_of(size) == KINDS)
        return __real_posix_memalign(out, alignment, size);
    void *made = __wrap_malloc(size);
    if (!made)
        return ENOMEM;
    *out = made;
    return 0;
}

void __wrap_free(void *memory)
{
    size_t size;
    const unsigned kind = memory ? kind_at(memory, &size) : KINDS;
    if (kind == KINDS) {
        __real_free(memory);
        return;
    }
    if (__asan_address_is_poisoned(memory)) { /* for the second time: the sanitizer's to say */
        __real_free(memory);
        __real_free(memory);
    }
    __asan_poison_memory_region(memory, (size + 7) & ~(size_t)7); /* what is behind that is so already */
    __real_free(keep(memory, kind));
}
