/* range_set.h - ranges of addresses that do not meet, by address. No lock of its own. */
#ifndef SG_DRIVER_RANGE_RANGE_SET_H
#define SG_DRIVER_RANGE_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sg_range;

/** Starts zeroed. */
struct sg_range_set {
    struct sg_range **at; /* sorted by base */
    size_t n, capacity;
};

/** Index of the first range whose base is above `address`. */
size_t sg_range_set_upper(const struct sg_range_set *set, uint64_t address);
/** The range that holds `address`, or NULL. */
struct sg_range *sg_range_set_find(const struct sg_range_set *set, uint64_t address);
/** False: no memory. */
bool sg_range_set_insert(struct sg_range_set *set, struct sg_range *range);
/** Takes out a range that is in the set. */
void sg_range_set_remove(struct sg_range_set *set, const struct sg_range *range);
/**
 * Where `span` bytes are free in [start, end), at a multiple of `alignment`: behind `cursor`, which is the
 * end of the last one given out, else in the first gap. 0: nowhere.
 */
uint64_t sg_range_set_place(const struct sg_range_set *set, uint64_t start, uint64_t end, uint64_t cursor,
                            uint64_t span, uint64_t alignment);
/** Whether `span` bytes from `at` end before `end`. */
bool sg_range_fits(uint64_t at, uint64_t span, uint64_t end);

#endif
