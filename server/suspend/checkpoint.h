/*
 * checkpoint.h - the driver's part of a suspension: this process's device memory goes to host memory and comes back.
 *
 * The driver's functions are called for the worker's own process, so that neither the sandbox nor another process needs rights for
 * it; they exist from NVIDIA's driver 570 (CUDA 12.8) on, and on the software device. While the process is locked every other call
 * of the driver waits: nobody may be inside the device gate. One thread at a time.
 */
#ifndef RG_SERVER_SUSPEND_CHECKPOINT_H
#define RG_SERVER_SUSPEND_CHECKPOINT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/** Whether the driver has such functions. */
bool rg_checkpoint_possible(void);
/**
 * Puts all device memory away. RG_ERR_TIMEOUT: work was still running after `timeout_ms`; all goes on. RG_ERR_UNSUPPORTED, with
 * `why`: the driver refused, and all goes on. RG_ERR_IO, with `why`: it did not let the process go on after that.
 */
RG_MUST_CHECK enum rg_status rg_checkpoint_away(unsigned timeout_ms, char *why, size_t why_size);
/**
 * Brings it back, and calls go on. RG_ERR_NO_MEMORY: there is too little of the device's; it may be tried again. RG_ERR_IO, with
 * `why`: it is lost.
 */
RG_MUST_CHECK enum rg_status rg_checkpoint_back(char *why, size_t why_size);

#endif
