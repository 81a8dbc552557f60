/* pinned_scan.c - see pinned_scan.h. What is counted is atomic; ranges are the address map's. */
#include "client/managed/pinned_scan.h"

#include "client/core/address_map.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* More than so many bytes are only looked at as a whole if there are addresses in the first ones. */
#define SCANNED (1u << 20)
#define SAMPLE  (64u << 10)

static atomic_uint n_unmapped; /* page-locked ranges that are not mapped */
static _Atomic uint64_t lowest = UINT64_MAX, highest;

void rg_pinned_cover(uint64_t start, uint64_t size)
{
    uint64_t now = atomic_load(&lowest);
    while (start < now && !atomic_compare_exchange_weak(&lowest, &now, start))
        ;
    now = atomic_load(&highest);
    while (start + size > now && !atomic_compare_exchange_weak(&highest, &now, start + size))
        ;
}

void rg_pinned_count_unmapped(int change)
{
    atomic_fetch_add(&n_unmapped, (unsigned)change);
}

bool rg_pinned_any_unmapped(void)
{
    return atomic_load_explicit(&n_unmapped, memory_order_relaxed) != 0;
}

bool rg_pinned_is_unmapped(uint64_t address, struct rg_range *range)
{
    return rg_pinned_any_unmapped() && rg_map_find(address, range) && rg_range_pinned(range) &&
           !range->mapped;
}

static bool add_to(struct rg_pinned_list *list, uint64_t start)
{
    for (size_t i = list->n; i-- > 0;)
        if (list->start[i] == start)
            return true;
    if (list->n == list->capacity) {
        const size_t more = list->capacity ? list->capacity * 2 : 16;
        uint64_t *bigger = realloc(list->start, more * sizeof *bigger);
        if (!bigger)
            return false;
        list->start = bigger;
        list->capacity = more;
    }
    list->start[list->n++] = start;
    return true;
}

/* Whether one of the words points into page-locked memory, mapped or not. */
static bool has_pointers(const void *data, size_t size)
{
    const uint64_t low = atomic_load(&lowest), span = atomic_load(&highest) - low;
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        struct rg_range range;
        memcpy(&word, (const unsigned char *)data + at, sizeof word);
        if (word - low < span && rg_map_find(word, &range) && rg_range_pinned(&range))
            return true;
    }
    return false;
}

bool rg_pinned_find(const void *data, size_t size, struct rg_pinned_list *list)
{
    enum { BLOCK = 64 };
    if (!rg_pinned_any_unmapped())
        return true;
    if (size > SCANNED && !has_pointers(data, SAMPLE)) /* plain data, which is to be as fast as it can */
        return true;
    const uint64_t low = atomic_load(&lowest), span = atomic_load(&highest) - low;
    const unsigned char *at = data;
    struct rg_range range = {0}; /* the one found last */
    for (size_t left = size / 8; left;) {
        uint64_t words[BLOCK];
        const size_t part = left < BLOCK ? left : BLOCK;
        unsigned hits = 0;
        memcpy(words, at, part * 8);
        for (size_t i = 0; i < part; i++)
            hits += words[i] - low < span;
        for (size_t i = 0; hits && i < part; i++)
            if (words[i] - low < span && words[i] - range.start >= range.size &&
                rg_pinned_is_unmapped(words[i], &range) && !add_to(list, range.start))
                return false;
        at += part * 8;
        left -= part;
    }
    return true;
}
