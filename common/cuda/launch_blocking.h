/* launch_blocking.h - programs that are debugged by launches that wait. */
#ifndef RG_COMMON_CUDA_LAUNCH_BLOCKING_H
#define RG_COMMON_CUDA_LAUNCH_BLOCKING_H

#include <stdbool.h>

/**
 * Whether the launch of a kernel is to return when that is done, and with its error (CUDA_LAUNCH_BLOCKING=1, in the CUDA
 * Programming Guide). The variable is read at the first question. Any thread.
 */
bool rg_launches_block(void);

#endif
