/*
 * mps.h - NVIDIA's multi-process service: what a process needs to share a GPU by it, and whether it is there.
 *
 * A control daemon (nvidia-cuda-mps-control) waits in a folder of pipes and sockets. A driver that CUDA_MPS_PIPE_DIRECTORY shows the
 * folder goes through it from cuInit on, and without it if nobody answers there: who relies on it looks before, and asks the driver after.
 */
#ifndef RG_COMMON_CUDA_MPS_H
#define RG_COMMON_CUDA_MPS_H

#include <stdbool.h>
#include <stddef.h>

#define RG_MPS_FOLDER    "CUDA_MPS_PIPE_DIRECTORY"
#define RG_MPS_PERCENT   "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" /* of the multiprocessors, 1 to 100 */
#define RG_MPS_MEMORY    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"  /* of each device: "0=1G,1=512M" */
#define RG_MPS_NO_FOLDER "/nonexistent"                      /* shown to drivers that are to go without */

/** Whether a control daemon waits in the folder. False: `why` is what is wrong. Nothing is said to it. */
bool rg_mps_answers(const char *folder, char *why, size_t why_size);

#endif
