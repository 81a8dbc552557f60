/*
 * transfer.h - what all copies and fills come down to: rows and slices of bytes between two sides.
 *
 * A side is device memory (checked against the allocations), page-locked or pageable host memory. When a call waits follows the API's
 * rules:
 *   - between device memories: never;
 *   - to or from pageable memory: a small source is staged at the call, everything else is waited for;
 *   - page-locked memory: the asynchronous forms never wait, and read or write at their place in the stream.
 * Any thread; no locks held.
 */
#ifndef SG_DRIVER_MEMORY_TRANSFER_H
#define SG_DRIVER_MEMORY_TRANSFER_H

#include "softgpu/driver/driver.h"

enum sg_place { SG_PLACE_DEVICE, SG_PLACE_LOCKED, SG_PLACE_PAGEABLE };

struct sg_side {
    uint64_t address; /* of the first byte moved */
    size_t pitch, slice;
    enum sg_place place;
};

struct sg_transfer {
    struct sg_side to, from;
    size_t width, height, depth;
    uint32_t fill_size; /* 0: a copy; else bytes of an element, `from` unused */
    uint32_t fill_value;
    bool in_order; /* a graph's: all host memory is as page-locked memory is */
};

/** Whether there is nothing to move. */
bool sg_transfer_is_empty(const struct sg_transfer *t);
/** Makes one row of rows that follow each other without a gap. */
void sg_transfer_join_rows(struct sg_transfer *t, size_t pitch);
/**
 * Queues the transfer in the stream `handle`, and waits for it where the rules say so. `to_device`, `from_device`: the call says that
 * this side is device memory. CUDA_ERROR_INVALID_VALUE: a side is not, or not all of it, what it was said to be.
 */
CUresult sg_transfer(struct sg_transfer *t, bool to_device, bool from_device, bool asynchronous,
                     CUstream handle);

#endif
