/*
 * pinned_scan.h - finds addresses of page-locked memory in data that a kernel will see, of which the device
 * has not learned yet (pinned.h). Any thread.
 */
#ifndef RG_CLIENT_MANAGED_PINNED_SCAN_H
#define RG_CLIENT_MANAGED_PINNED_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_range;

/** Page-locked memory is there. */
void rg_pinned_cover(uint64_t start, uint64_t size);
/** There are as many more ranges of it that are not mapped. */
void rg_pinned_count_unmapped(int change);
bool rg_pinned_any_unmapped(void);
/** Whether `address` is in such a range. */
bool rg_pinned_is_unmapped(uint64_t address, struct rg_range *range);

/** Page-locked memory that is to be mapped: where each piece begins. Starts zeroed. */
struct rg_pinned_list {
    uint64_t *start;
    size_t n, capacity;
};
/**
 * Adds the memory to the list that is not mapped yet and that such data points into. False: no memory for the
 * list.
 */
bool rg_pinned_find(const void *data, size_t size, struct rg_pinned_list *list);

#endif
