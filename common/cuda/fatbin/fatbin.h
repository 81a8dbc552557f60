/*
 * fatbin.h - fat binaries: the entries of a container, and the PTX in it that fits the device.
 *
 * A container (its bounds come from common/cuda/image.h) holds one entry for each architecture and form that
 * nvcc was asked for. The software device can use PTX only. Every offset and size in the container is
 * checked.
 */
#ifndef RG_COMMON_CUDA_FATBIN_FATBIN_H
#define RG_COMMON_CUDA_FATBIN_FATBIN_H

#include "common/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rg_fatbin_status {
    RG_FATBIN_OK = 0,
    RG_FATBIN_END,       /* there are no more entries */
    RG_FATBIN_INVALID,   /* malformed, or the data does not decompress: CUDA_ERROR_INVALID_IMAGE */
    RG_FATBIN_LIMIT,     /* larger than RG_FATBIN_TEXT_MAX: CUDA_ERROR_INVALID_IMAGE */
    RG_FATBIN_NO_PTX,    /* no PTX that the device can take: CUDA_ERROR_NO_BINARY_FOR_GPU */
    RG_FATBIN_NO_MEMORY, /* CUDA_ERROR_OUT_OF_MEMORY */
};
/** A short English phrase for `status`; static storage. */
const char *rg_fatbin_status_string(enum rg_fatbin_status status);

enum rg_fatbin_kind { RG_FATBIN_PTX = 1, RG_FATBIN_ELF = 2, RG_FATBIN_NVVM = 8 }; /* others exist */

#define RG_FATBIN_FLAG_DEBUG  0x2u
#define RG_FATBIN_FLAG_LZ4    0x2000u
#define RG_FATBIN_FLAG_ZSTD   0x8000u
#define RG_FATBIN_FLAG_ARCH   0x100000u /* compute_90a: for exactly this architecture */
#define RG_FATBIN_FLAG_FAMILY 0x200000u /* compute_100f */

/** One entry. Pointers are into the container; names and options are not NUL-terminated. */
struct rg_fatbin_entry {
    uint32_t kind;         /* enum rg_fatbin_kind */
    uint32_t architecture; /* 75, 90, 120 */
    uint32_t ptx_major, ptx_minor;
    uint64_t flags;
    const unsigned char *payload;
    uint64_t stored_size; /* bytes of the payload that count: compressed, or padded with zeros to 8 */
    uint64_t size;        /* bytes when decompressed */
    const char *name, *options;
    uint32_t name_size, options_size;
};

/** A position in a container. */
struct rg_fatbin {
    const unsigned char *next, *end;
};

/** Begins at the first entry of the container at `data`, of which `size` bytes may be read. */
enum rg_fatbin_status rg_fatbin_open(struct rg_fatbin *fatbin, const void *data, uint64_t size);
/** The next entry; RG_FATBIN_END after the last. *entry is set on success only. */
enum rg_fatbin_status rg_fatbin_next(struct rg_fatbin *fatbin, struct rg_fatbin_entry *entry);

/**
 * Whether an entry is PTX that a device of `capability` (120 for 12.0) can take: of its architecture or a
 * lower one; family-specific PTX (compute_120f) only of its own major version, architecture-specific PTX
 * only of exactly its own.
 */
bool rg_fatbin_fits(const struct rg_fatbin_entry *entry, uint32_t capability);

/**
 * Finds the PTX entry of the highest architecture that fits; of two for the same one the portable, then the
 * first. RG_FATBIN_NO_PTX if none does.
 */
enum rg_fatbin_status rg_fatbin_select(const void *data, uint64_t size, uint32_t capability,
                                       struct rg_fatbin_entry *entry);

#endif
