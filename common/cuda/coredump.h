/*
 * coredump.h - the settings of GPU core dumps: which values each can have, and which of them are the business of the machine
 * that writes the dump.
 */
#ifndef RG_COMMON_CUDA_COREDUMP_H
#define RG_COMMON_CUDA_COREDUMP_H

#include "common/base/limits.h"
#include "common/cuda/api.h"

#include <stdbool.h>
#include <stddef.h>

/** Bytes of the setting's value, of a name the most. 0: there is no such setting. */
size_t rg_coredump_size(CUcoredumpSettings setting);
/** Whether `size` bytes are a value that the setting can have: of exactly its size, or a name that ends in them. */
bool rg_coredump_value_good(CUcoredumpSettings setting, const void *value, size_t size);
/**
 * Whether such a value of a client's is not for a server's driver, which would write a file or make a pipe where the server
 * runs: names, and that dumps are wanted at all. Those are set by who runs the server (SECURITY.md).
 */
bool rg_coredump_of_server(CUcoredumpSettings setting, const void *value);
/** What a client gets that wants such flags for a context: CUDA_SUCCESS, or the error, if they ask for dumps. */
CUresult rg_coredump_context_flags(unsigned flags);

#endif
