/*
 * nccl_config.h - what a program says of a communicator that it begins (ncclConfig_t), checked as NCCL 2.27 checks it.
 */
#ifndef RG_COMMON_CUDA_NCCL_CONFIG_H
#define RG_COMMON_CUDA_NCCL_CONFIG_H

#include "common/cuda/nccl.h"

#include <stdbool.h>

#define RG_NCCL_CONFIG_WHY 160 /* bytes of a sentence */

/**
 * Whether NCCL would take it; else what is wrong with it, in words. Members are looked at as far as the structure reaches and its version has
 * them. NULL: nothing is said, which is never wrong. *blocking changes only where the program says something of that, and all is right.
 */
bool rg_nccl_config_read(const ncclConfig_t *config, bool *blocking, char why[RG_NCCL_CONFIG_WHY]);

#endif
