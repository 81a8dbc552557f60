/* extract.h - the contents of a fat binary's entry; needs the libraries that decompress it. Any thread. */
#ifndef RG_COMMON_CUDA_FATBIN_EXTRACT_H
#define RG_COMMON_CUDA_FATBIN_EXTRACT_H

#include "common/cuda/fatbin/fatbin.h"

/**
 * The entry's contents, decompressed if need be, followed by a NUL: *out is the caller's to free. *out_size
 * does not count the NUL, nor, for PTX, the padding.
 */
enum rg_fatbin_status rg_fatbin_extract(const struct rg_fatbin_entry *entry, char **out, size_t *out_size);

#endif
