/*
 * device_region.h - what a copy between host and device names on the device: rows of memory, or a box of an array or
 * of memory. Its bytes travel packed, without the gaps.
 *
 * Of the description that a record carries only numbers are believed, and those after checking: an array is
 * looked up by its handle, device memory of a box must be memory that the driver knows, and all pointers to
 * host memory are the worker's.
 */
#ifndef RG_SERVER_TRANSFER_DEVICE_REGION_H
#define RG_SERVER_TRANSFER_DEVICE_REGION_H

#include "server/core/request.h"

struct rg_device_region {
    bool to_device;
    size_t total; /* bytes, packed */
    /* rows of `width` bytes, `pitch` apart; rows without gaps are one */
    CUdeviceptr device;
    size_t pitch, width;
    bool boxed; /* then it is this instead, of which the device's side is filled in */
    CUDA_MEMCPY3D box;
    bool bad; /* a box that is not there */
};

/** False, with a violation: rows that nothing could hold. They may be of nothing (total 0). */
bool rg_device_region_of_rows(struct rg_request *request, bool to_device, CUdeviceptr device, size_t pitch,
                              size_t width, size_t height, struct rg_device_region *out);
/** False, with a violation: a box of nothing, or that overflows. */
bool rg_device_region_of_box(struct rg_request *request, bool to_device, const CUDA_MEMCPY3D *box,
                             CUarray array, struct rg_device_region *out);
/** Fills in one side of a copy between two boxes on the device; false: it is not there. */
bool rg_device_region_box_side(struct rg_request *request, const CUDA_MEMCPY3D *box, CUarray array,
                               bool source, CUDA_MEMCPY3D *own);
/** Whether all of it is there: nothing may be put into a stream for a copy that then fails. */
CUresult rg_device_region_check(struct rg_request *request, const struct rg_device_region *region);
/** Whether its bytes lie on the device as they travel. */
static inline bool rg_device_region_is_plain(const struct rg_device_region *region)
{
    return !region->boxed && region->pitch == region->width;
}
/** Puts the copy of packed bytes [offset, offset + size), which `host` holds or will, into the stream. */
CUresult rg_device_region_copy(const struct rg_device_region *region, void *host, size_t offset, size_t size,
                               CUstream stream);

#endif
