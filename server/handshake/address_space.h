/*
 * address_space.h - which addresses the worker's driver may give to device memory.
 *
 * NVIDIA's driver takes device addresses from the process that loads it, where mmap finds room: in a worker,
 * where the client has its libraries and its heap. So the client names a window that it keeps free, and
 * everything else is closed before the driver is loaded: mapped without access, so that mmap finds no room
 * but in the window. What the worker maps for itself from then on is in the window as well, which harms
 * nobody.
 *
 * Closed addresses are opened for one thing: page-locked memory of the client, which must be at the client's
 * own address.
 *
 * One for the process. Any thread.
 */
#ifndef RG_SERVER_HANDSHAKE_ADDRESS_SPACE_H
#define RG_SERVER_HANDSHAKE_ADDRESS_SPACE_H

#include "common/base/status.h"

#include <stdint.h>

/**
 * Closes all addresses that nothing is mapped at, but those from `start` on, `size` bytes, and those that
 * drivers take by fixed addresses (common/base/addresses.h). To be called before the driver is loaded, as
 * early as possible: what is unmapped outside the window after this can be found by the driver. RG_ERR_IO,
 * RG_ERR_NO_MEMORY: some are not closed, or none, where the process may have only so many (RLIMIT_AS); the
 * client notices addresses that it cannot use.
 */
RG_MUST_CHECK enum rg_status rg_address_space_close(uint64_t start, uint64_t size);
/**
 * Gives the process the limit of the size of stacks that it would have had if the daemon had not started it
 * with a larger one (RG_ADDRESS_STACK_GAP), which becomes the size of every thread's, up to 1 GiB (else 8
 * MiB). Before the first thread is started.
 */
void rg_address_space_limit_stack(uint64_t limit);
/**
 * What is mapped from now on where confined kernels cannot reach (common/base/addresses.h) is shared memory, which can be
 * mapped a second time (softgpu/guest.h); it counts as the process's own all the same. Before the first thread is started.
 */
void rg_address_space_map_shared(void);
/** Maps it readable and writable, without memory yet; NULL, and errno: something else is there. */
void *rg_address_space_map(uint64_t start, uint64_t size);
/** Unmaps it; where addresses are closed, these are from then on. */
void rg_address_space_unmap(uint64_t start, uint64_t size);

#endif
