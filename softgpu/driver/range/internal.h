/*
 * internal.h - what the files of ranges share: window.c (the window of device addresses), range.c (device
 * allocations, questions), range_host.c, range_shared.c (memory of files that other processes may have mapped), range_mapped.c
 * (addresses that applications reserve), range_saved.c (memory that is put away and brought back).
 *
 * One lock over all: system calls that map and unmap memory are made under it, so that addresses are never
 * known before they are usable. What is declared here expects it to be held.
 */
#ifndef SG_DRIVER_RANGE_INTERNAL_H
#define SG_DRIVER_RANGE_INTERNAL_H

#include "softgpu/driver/range/range.h"
#include "softgpu/driver/range/range_set.h"

#define SG_PAGE 4096ull
/* Allocations of this size and more begin at a multiple of it and may be backed by large pages. */
#define SG_LARGE (2ull << 20)
/*
 * A GPU maps memory in blocks of this size, and notices no access that stays in a block where anything is
 * allocated.
 */
#define SG_BLOCK (2ull << 20)

extern struct sg_memory {
    pthread_mutex_t lock;
    struct sg_range_set device, host, reserved;
    /* of the window; start 0 until it is reserved. Allocations lie below `middle`, reservations above. */
    uint64_t start, middle, end, cursor, reserved_cursor;
    bool guarded; /* accesses behind an allocation are to be noticed at once */
    uint64_t used[SG_DEVICES_MAX];
    uint64_t put_away[SG_DEVICES_MAX]; /* of what is `used` otherwise (range_saved.c) */
    unsigned long long next_id;
} sg_memory;

/** Reserves the window of device addresses; false, and said, if there is none. */
bool sg_window_reserve(void);
/**
 * Makes [at, at + size) of the window what it was before anything was mapped there. All that the window was
 * told goes for it again: it merges with what is around it then, and a process may have only so many
 * mappings.
 */
bool sg_window_map_nothing(void *at, uint64_t size);
/** What goes for all of the window: it is in no core dump, and in no child. */
void sg_window_advise(void *at, uint64_t size);

/** Bytes of the range's pages. */
uint64_t sg_range_committed(const struct sg_range *range);
void sg_range_keep_secret(struct sg_range *range, const unsigned char *secret);
/** The same for mprotect. */
int sg_range_protection(const struct sg_range *range);
/** Gives the pages of a device range, or of host memory, back and forgets the range. */
void sg_range_drop(struct sg_range *range);
void sg_range_drop_host(struct sg_range *range);

#endif
