/*
 * advice.h - what an application has said of its managed memory (cuMemAdvise, cuMemPrefetchAsync), to answer
 * cuMemRangeGetAttribute: facts about ranges of addresses, the same for the client and the software device.
 *
 * Addresses that nobody has said anything of have no preferred location, are accessed by nobody in particular, and were
 * never prefetched. Attributes of a range are those of all of its bytes; where they differ, the answer is what it would
 * be for such addresses. Any thread.
 */
#ifndef RG_COMMON_CUDA_ADVICE_H
#define RG_COMMON_CUDA_ADVICE_H

#include "common/cuda/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The location of an older form of a call: a device, or CU_DEVICE_CPU. */
CUmemLocation rg_location_of(CUdevice device);
/** Whether `location` can be that of managed memory; a device's number is for the caller to check. */
bool rg_location_valid(const CUmemLocation *location);
/** Whether advice of this kind names a location. */
bool rg_advice_has_location(CUmem_advise advice);

/** Notes advice. CUDA_ERROR_INVALID_VALUE: there is none of this kind; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult rg_advice_set(uint64_t start, uint64_t size, CUmem_advise advice, const CUmemLocation *location);
CUresult rg_advice_prefetched(uint64_t start, uint64_t size, const CUmemLocation *location);
/** Forgets a range that was freed. */
void rg_advice_forget(uint64_t start, uint64_t size);
/** Writes an attribute of a range to `data`, which has `data_size` bytes. CUDA_ERROR_INVALID_VALUE: no such attribute. */
CUresult rg_advice_get(void *data, size_t data_size, CUmem_range_attribute attribute, uint64_t start,
                       uint64_t size);

#endif
