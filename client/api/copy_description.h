/* copy_description.h - what copies of the API, and of graphs, describe, as regions. Any thread; no locks held. */
#ifndef RG_CLIENT_API_COPY_DESCRIPTION_H
#define RG_CLIENT_API_COPY_DESCRIPTION_H

#include "client/transfer/protocol.h"

/** Where host memory is for a copy: managed memory, and page-locked memory that the device knows, is the device's. */
enum rg_region_kind rg_copy_place_of(uint64_t address);
/**
 * Copies what `c` describes; nothing if an extent is 0. The caller has checked that it may be called, and the stream. `in_order`: host
 * memory is read and written when the stream gets there.
 */
CUresult rg_copy_described(const CUDA_MEMCPY3D *c, CUstream stream, bool asynchronous, bool in_order);

#endif
