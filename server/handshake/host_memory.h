/*
 * host_memory.h - the budget of memory of this machine that one session has: whatever a client makes its worker, or the driver
 * in it, allocate (records that wait, images and what they unpack to, maps of host memory, page-locked memory, threads' stacks)
 * comes out of it, and fails as if the machine had no more.
 *
 * The kernel keeps the account (RLIMIT_DATA): no place that allocates can be forgotten, nor can a library's. What is mapped
 * to be shared is not in it: device memory of GPUs, and files.
 */
#ifndef RG_SERVER_HANDSHAKE_HOST_MEMORY_H
#define RG_SERVER_HANDSHAKE_HOST_MEMORY_H

#include <stdint.h>

/** If memory runs out, the kernel ends this process before those that are not one client's alone. Main thread. */
void rg_host_memory_yield(void);

/**
 * From now on the process may allocate as much as REMOTE_GPU_SESSION_MEMORY says beyond what it has, and `device_memory` bytes that
 * devices have which are made of host memory.
 */
void rg_host_memory_limit(uint64_t device_memory);

#endif
