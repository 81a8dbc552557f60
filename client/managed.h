/*
 * managed.h - managed memory: one address for host and device, coherent where CUDA promises it to a device without
 * concurrent access (the host does not touch managed memory while kernels run).
 *
 * The worker's side is ordinary device memory; this process maps memory at the same address and follows, in chunks,
 * who holds the current contents:
 *
 *   FRESH   the host may do anything; only pages it touched are worth sending
 *   DIRTY   the host may do anything, and has
 *   SHARED  both sides are the same; the host may read
 *   DEVICE  the device's; a touch by the host fetches it
 *
 * Before anything that the device may touch memory by (RG_CALL_WORK), rg_managed_release sends what the host has
 * written and takes all access away. A touch then raises SIGSEGV; the handler asks a service thread, which fetches a
 * stretch of chunks and puts it in place at once, so that no thread ever sees half of it. System calls do not raise
 * signals: one that reads or writes managed memory that the device holds fails with EFAULT.
 */
#ifndef RG_CLIENT_MANAGED_H
#define RG_CLIENT_MANAGED_H

#include "client/address_map.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/** Makes the host's changes visible to the device. Costs one load while the host holds nothing. Any thread. */
CUresult rg_managed_release(void);
/**
 * Allocates memory for both sides in the current context and notes it as a range of `kind` (RG_RANGE_MANAGED, or
 * RG_RANGE_MAPPED with the flags of the host allocation).
 */
CUresult rg_managed_allocate(size_t size, enum rg_range_kind kind, unsigned flags, CUdeviceptr *out);
/** Frees managed memory that begins at `start`; false if there is none. */
bool rg_managed_free(uint64_t start, CUresult *result);
/** Forgets the managed memory of a context that has ended. */
void rg_managed_drop_context(uint64_t context);

#endif
