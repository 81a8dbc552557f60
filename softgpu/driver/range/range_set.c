/*
 * range_set.c - ranges of addresses in a sorted array: found by bisection, inserted and removed by moving
 * what is behind. Without memory for a larger array an insertion fails and changes nothing. The caller holds
 * the ranges' lock.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/align.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/range/range_set.h"

size_t sg_range_set_upper(const struct sg_range_set *set, uint64_t address)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->at[middle]->base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct sg_range *sg_range_set_find(const struct sg_range_set *set, uint64_t address)
{
    size_t i = sg_range_set_upper(set, address);
    if (i == 0)
        return NULL;
    struct sg_range *range = set->at[i - 1];
    return address - range->base < range->size ? range : NULL;
}

bool sg_range_set_insert(struct sg_range_set *set, struct sg_range *range)
{
    if (set->n == set->capacity) {
        size_t capacity = set->capacity == 0 ? 64 : set->capacity * 2;
        struct sg_range **at = realloc(set->at, capacity * sizeof *at);
        if (at == NULL)
            return false;
        set->at = at;
        set->capacity = capacity;
    }
    size_t i = sg_range_set_upper(set, range->base);
    memmove(&set->at[i + 1], &set->at[i], (set->n - i) * sizeof *set->at);
    set->at[i] = range;
    set->n++;
    return true;
}

void sg_range_set_remove(struct sg_range_set *set, const struct sg_range *range)
{
    size_t i = sg_range_set_upper(set, range->base) - 1;
    memmove(&set->at[i], &set->at[i + 1], (set->n - i - 1) * sizeof *set->at);
    set->n--;
}

bool sg_range_fits(uint64_t at, uint64_t span, uint64_t end)
{
    return at <= end && end - at >= span;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t sg_range_set_place(const struct sg_range_set *set, uint64_t start, uint64_t end, uint64_t cursor,
                            uint64_t span, uint64_t alignment)
{
    uint64_t at = rg_align_up(cursor, alignment);
    size_t above = sg_range_set_upper(set, cursor - 1); /* one that begins at the cursor counts */
    if (sg_range_fits(at, span, above < set->n ? least(set->at[above]->base, end) : end))
        return at;
    at = rg_align_up(start, alignment);
    for (size_t i = 0; i < set->n; i++) {
        if (sg_range_fits(at, span, least(set->at[i]->base, end)))
            return at;
        at = rg_align_up(set->at[i]->base + set->at[i]->span, alignment);
    }
    return sg_range_fits(at, span, end) ? at : 0;
}
